"""A JSON list is split into its items however its text is cut."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.snapshot import items as module
from rebalancer.snapshot.items import ItemScanner

leaves = st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\{}[],:ä\n') | st.text()
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(alphabet='k"\\{]'), values, max_size=4)


@given(
    items=st.lists(objects, max_size=5),
    before=st.dictionaries(st.sampled_from(["kind", "x", '"items":[']), values),
    after=st.dictionaries(st.sampled_from(["metadata", "\\"]), values),
    size=st.integers(1, 40),
    indent=st.sampled_from([None, 1, 4]),
    ascii_only=st.booleans(),
)
@settings(deadline=None)
def test_items_are_located_however_the_text_is_cut(
    items: list[Any],
    before: dict[str, Any],
    after: dict[str, Any],
    size: int,
    indent: int | None,
    ascii_only: bool,
) -> None:
    whole = {**before, "items": items, **after}
    text = json.dumps(whole, indent=indent, ensure_ascii=ascii_only).encode()
    scanner = ItemScanner()
    parsed = [
        item
        for start in range(0, len(text), size)
        for item in scanner.feed(text[start : start + size])
    ]
    assert [json.loads(item.text) for item in parsed] == items
    assert all(text[item.offset :].startswith(item.text) for item in parsed)
    assert json.loads(scanner.envelope) == {**whole, "items": []}
    assert scanner.complete


def test_what_has_no_end_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_ITEM", 1000)
    scanner = ItemScanner()
    assert not list(scanner.feed(b'{"items":[{"a":"'))
    assert not list(scanner.feed(b"x" * 900))
    with pytest.raises(ValueError, match="an object is too large"):
        list(scanner.feed(b"x" * 100))
