"""What is kept of the server's bytes in a snapshot file: all but what may be secret or is only bulk."""

import pytest

from rebalancer.wire.protobuf import BrokenListError
from rebalancer.wire.protobuf.frames import ListFrames
from rebalancer.wire.protobuf.lists import decode_run, plain_objects, strip_run
from rebalancer.wire.protobuf.pods import pod_records
from rebalancer.wire.protobuf.schema import HELD_AS_BYTES, message
from tests.unit.wire.protobuf_bytes import encoded, entries, field, pod

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
HIDDEN = b"hidden"
ENV = field(7, field(1, HIDDEN)) + field(19, field(2, HIDDEN))
CONTAINER = field(1, b"main") + field(2, b"web:1") + ENV + field(21, b"kept-command")
EPHEMERAL = field(1, CONTAINER) + field(2, b"kept-target")
SPEC = field(2, CONTAINER) + field(20, CONTAINER) + field(34, EPHEMERAL) + field(10, b"n1")


def metadata(name: bytes) -> bytes:
    annotations = b"".join(field(12, e) for e in entries({APPLIED: "hidden", "kept": "yes"}))
    return field(1, name) + annotations + field(17, HIDDEN)


def run_of(*items: bytes) -> bytes:
    return b"".join(field(2, item) for item in items)


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("Pod", field(1, metadata(b"a")) + field(2, SPEC)),
        ("Node", field(1, metadata(b"a"))),
        (
            "ReplicaSet",
            field(1, metadata(b"a")) + field(2, field(3, field(1, metadata(b"")) + field(2, SPEC))),
        ),
        (
            "Deployment",
            field(1, metadata(b"a")) + field(2, field(3, field(1, metadata(b"")) + field(2, SPEC))),
        ),
    ],
)
def test_what_may_be_secret_is_left_out_and_all_else_stays(kind: str, item: bytes) -> None:
    kept, count = strip_run(kind, field(1, field(3, b"token")) + run_of(item, item))
    assert count == 2
    assert HIDDEN not in kept
    assert b"token" not in kept
    assert kept.count(b"kept") >= 2
    if kind != "Node":
        assert kept.count(b"kept-command") == 2 * 3
        assert kept.count(b"kept-target") == 2
    one, two = plain_objects(kind, kept)
    assert one == two
    assert one["metadata"]["name"] == "a"


def test_what_is_absent_stays_absent() -> None:
    for item in (b"", field(2, b""), field(1, b""), pod("a")):
        assert strip_run("Pod", run_of(item)) == (run_of(item), 1)
    assert strip_run("Deployment", run_of(field(2, b""))) == (run_of(field(2, b"")), 1)


def test_pods_are_read_as_before() -> None:
    before = pod("a", labels={"app": "web"}, annotations={"rebalancer/evict": "true", APPLIED: "x"})
    kept, _ = strip_run("Pod", run_of(before))
    (one,), (two,) = pod_records(run_of(before)), pod_records(kept)
    assert one._replace(spec=one.spec) == two._replace(spec=one.spec)
    assert one.spec() == two.spec()


def test_a_list_without_its_envelope_is_cut_by_its_length() -> None:
    kept, _ = strip_run("Node", run_of(*(encoded("Node", metadata={"name": n}) for n in "abc")))
    frames = ListFrames(run_bytes=4, length=len(kept))
    names = [
        node.metadata.name
        for at in range(len(kept))
        for run in frames.feed(kept[at : at + 1])
        for node in decode_run("Node", run)
    ]
    assert names == ["a", "b", "c"]
    frames.close()
    with pytest.raises(BrokenListError, match="inside the list"):
        ListFrames(length=len(kept)).close()


def test_an_item_that_says_it_is_huge_is_not_waited_for() -> None:
    body = b"\x12" + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(BrokenListError, match="bytes long"):
        list(ListFrames(length=1 << 40, run_bytes=1).feed(body))


def test_other_bytes_are_refused() -> None:
    with pytest.raises(BrokenListError, match="no Pods"):
        strip_run("Pod", b"\x12\x7f")


def test_every_field_that_is_declared_as_bytes_is_known_to_be_something() -> None:
    seen: set[str] = set()
    asked = [
        message(f"{kind}List").DESCRIPTOR for kind in ("Pod", "Node", "ReplicaSet", "Deployment")
    ]
    declared = set()
    while asked:
        of = asked.pop()
        if of.full_name in seen:
            continue
        seen.add(of.full_name)
        for each in of.fields:
            if each.type == each.TYPE_BYTES:
                declared.add(f"{of.name}.{each.name}")
            elif each.message_type is not None:
                asked.append(each.message_type)
    assert declared == HELD_AS_BYTES.keys()
