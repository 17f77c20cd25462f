"""Structs are prepared once, before threads decode them."""

import msgspec

from rebalancer.kube.client import prepare_structs

asked = list[str]()


def _kind():
    """Stand in an annotation, and note that it was looked at."""
    asked.append("")
    return int


class Inner(msgspec.Struct):
    number: "_kind()"  # type: ignore[valid-type]


class Outer(Inner):
    inner: Inner


class Unknown(msgspec.Struct):
    """No annotation of it can be resolved."""

    what: "NoSuchName"  # type: ignore[name-defined]  # noqa: F821


def test_what_was_prepared_is_not_built_again_when_it_is_decoded():
    prepare_structs()
    looked = len(asked)
    assert looked
    decoded = msgspec.json.decode(b'{"number": 1, "inner": {"number": 2}}', type=Outer)
    prepare_structs()
    assert decoded.inner.number == 2
    assert len(asked) == looked
