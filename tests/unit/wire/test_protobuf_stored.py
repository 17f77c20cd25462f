"""What is kept of the server's bytes in a snapshot file: all but what may be secret or is only bulk."""

import msgspec
import pytest

from rebalancer.snapshot.store import KeptContainer, KeptContainerStatus
from rebalancer.wire.objects import Volume
from rebalancer.wire.protobuf import BrokenListError
from rebalancer.wire.protobuf.frames import ListFrames
from rebalancer.wire.protobuf.lists import decode_run, plain_objects, strip_run
from rebalancer.wire.protobuf.pods import pod_records
from rebalancer.wire.protobuf.schema import HELD_AS_BYTES, message, message_of_stored
from tests.unit.wire.protobuf_bytes import encoded, entries, field, pod

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
OPT_OUT = "rebalancer/evict"
HIDDEN = b"hidden"
SECRET = {
    "command": 3,
    "args": 4,
    "env": 7,
    "livenessProbe": 10,
    "readinessProbe": 11,
    "lifecycle": 12,
    "envFrom": 19,
    "startupProbe": 22,
    "what the next version adds": 77,
}
"""Field of a container that may be secret -> its number."""
CONTAINER = (
    field(1, b"main")
    + field(2, b"web:1")
    + b"".join(field(number, field(2, HIDDEN)) for number in SECRET.values())
    + field(21, b"kept-device")
)
EPHEMERAL = field(1, CONTAINER) + field(2, b"kept-target")


def metadata(name: bytes) -> bytes:
    given = {
        APPLIED: "hidden",
        OPT_OUT: "kept",
        "kubernetes.io/change-cause": "hidden",
        "vault.example/token": "hidden",
        "n" * 200: "hidden",
        "": "hidden",
    }
    annotations = b"".join(field(12, e) for e in entries(given))
    return field(1, name) + annotations + field(17, HIDDEN)


VOLUME = field(1, b"scratch") + field(2, field(29, field(1, field(1, metadata(b"")))))
FLEX, CSI = (
    field(1, b"other") + field(2, field(number, field(1, b"driver") + field(4, HIDDEN)))
    for number in (12, 28)
)
SPEC = (
    field(1, VOLUME)
    + field(1, FLEX)
    + field(1, CSI)
    + field(2, CONTAINER)
    + field(20, CONTAINER)
    + field(34, EPHEMERAL)
    + field(10, b"n1")
)
ENDED = b"\x08\x03" + field(3, b"kept-reason") + field(4, HIDDEN)
STATUS = field(1, b"main") + field(2, field(3, ENDED)) + field(3, field(3, ENDED)) + b"\x20\x01"
WAITING = field(1, b"side") + field(2, field(1, field(1, b"kept-why") + field(2, HIDDEN)))
STATUSES = b"".join(field(number, one) for number in (8, 10, 13) for one in (STATUS, WAITING))


def run_of(*items: bytes) -> bytes:
    return b"".join(field(2, item) for item in items)


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("Pod", field(1, metadata(b"a")) + field(2, SPEC) + field(3, STATUSES)),
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
def test_what_may_be_secret_is_left_out_and_all_else_stays(kind, item):
    kept, count = strip_run(kind, field(1, field(3, b"token")) + run_of(item, item))
    assert count == 2
    assert HIDDEN not in kept
    assert b"token" not in kept
    assert kept.count(OPT_OUT.encode()) == 2 * (1 if kind == "Node" else 2 + (kind != "Pod"))
    if kind != "Node":
        assert kept.count(b"kept-device") == 2 * 3
        assert kept.count(b"kept-target") == 2
    if kind == "Pod":
        assert kept.count(b"kept-reason") == kept.count(b"kept-why") == 2 * 3
    one, two = plain_objects(kind, kept)
    assert one == two
    assert one["metadata"]["name"] == "a"


def test_containers_keep_the_same_as_in_json():
    for of in (KeptContainer, KeptContainerStatus):
        declared = {
            each.name
            for each in message_of_stored(of.__name__.removeprefix("Kept")).DESCRIPTOR.fields
        }
        assert declared == {each.encode_name for each in msgspec.structs.fields(of)}


def test_volumes_keep_the_sources_that_are_read_in_both_forms():
    stored, read = message_of_stored("VolumeSource"), message("VolumeSource")
    in_json = {each.encode_name for each in msgspec.structs.fields(Volume)} - {"name"}
    for of in (stored, read):
        assert {each.name for each in of.DESCRIPTOR.fields} == in_json
    numbers = {each.name: each.number for each in read.DESCRIPTOR.fields}
    assert {each.name: each.number for each in stored.DESCRIPTOR.fields} == numbers


def test_what_is_absent_stays_absent():
    for item in (b"", field(2, b""), field(1, b""), pod("a")):
        assert strip_run("Pod", run_of(item)) == (run_of(item), 1)
    assert strip_run("Deployment", run_of(field(2, b""))) == (run_of(field(2, b"")), 1)


def test_pods_are_read_as_before():
    before = pod("a", labels={"app": "web"}, annotations={"rebalancer/evict": "true", APPLIED: "x"})
    kept, _ = strip_run("Pod", run_of(before))
    (one,), (two,) = pod_records(run_of(before)), pod_records(kept)
    assert one._replace(spec=one.spec) == two._replace(spec=one.spec)
    assert one.spec() == two.spec()


def test_a_list_without_its_envelope_is_cut_by_its_length():
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


def test_an_item_that_says_it_is_huge_is_not_waited_for():
    body = b"\x12" + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(BrokenListError, match="bytes long"):
        list(ListFrames(length=1 << 40, run_bytes=1).feed(body))


def test_other_bytes_are_refused():
    with pytest.raises(BrokenListError, match="no Pods"):
        strip_run("Pod", b"\x12\x7f")


def test_every_field_that_is_declared_as_bytes_is_known_to_be_something():
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
