"""Snapshot files of ours that are damaged, cut off, or made to do harm."""

import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.base.errors import PolicyError
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.store import Capture, SnapshotWriter
from rebalancer.wire.protobuf.lists import strip_run
from tests.unit.wire.protobuf_bytes import encoded, field, pod

CAPTURE = Capture(1795168800.0, (1, 36), "7", ("Pod", "Node", "Job"), "https://api")
PODS = b"".join(field(2, pod(name)) for name in ("a", "b"))
NODE = b'{"metadata":{"name":"n1"},"status":{"allocatable":{"cpu":"4"}}}'


def whole() -> bytes:
    """A file with pods in protobuf, behind nodes as JSON."""
    stream = io.BytesIO()
    with SnapshotWriter(stream) as writer:
        lists = [
            writer.write_json("Node", [NODE]),
            writer.write_protobuf("Pod", [strip_run("Pod", PODS)]),
        ]
        writer.close(CAPTURE, lists)
    return stream.getvalue()


WHOLE = whole()


def load(data: bytes) -> Snapshot:
    return load_snapshot("-", stdin=io.BytesIO(data))


def changed(
    change: Callable[[dict[str, Any]], object] = lambda _: None,
    *,
    members: dict[str, bytes] | None = None,
    method: int = zipfile.ZIP_DEFLATED,
) -> bytes:
    """The file with another manifest, or with members replaced or added."""
    with zipfile.ZipFile(io.BytesIO(WHOLE)) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    manifest = json.loads(parts.pop("manifest.json"))
    change(manifest)
    parts |= members or {}
    parts.setdefault("manifest.json", json.dumps(manifest).encode())
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as file:
        for name, data in parts.items():
            file.writestr(name, data)
    return stream.getvalue()


def listed(**of_first: Any) -> Callable[[dict[str, Any]], object]:
    return lambda manifest: manifest["lists"][0].update(of_first)


def test_the_file_is_read_whatever_the_order_of_its_lists():
    for data in (WHOLE, changed(), changed(lambda manifest: manifest["lists"].reverse())):
        snapshot = load(data)
        assert list(snapshot.pods.name) == ["a", "b"]
        assert snapshot.pods.node.tolist() == [0, 0]
        assert (snapshot.version, snapshot.resource_version) == ((1, 36), "7")
        assert "Job: none in the file" not in snapshot.missing
        assert "Service: none in the file" in snapshot.missing


def test_what_the_manifest_does_not_list_is_no_part_of_it():
    snapshot = load(changed(members={"other.json": b"no JSON", "../x": b""}))
    assert list(snapshot.pods.name) == ["a", "b"]
    assert len(load(changed(lambda manifest: manifest["lists"].pop())).pods) == 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (changed(members={"manifest.json": b"{}"}), "manifest.json: its kind is missing"),
        (
            changed(members={"manifest.json": b"["}),
            "manifest.json: has to be an object, and is a list",
        ),
        (
            changed(members={"manifest.json": b" " * (1 << 21)}),
            "manifest.json: .*more than 1048576",
        ),
        (changed(lambda m: m.update(format=3)), "format 3: this version .* reads format 2"),
        (changed(lambda m: m.pop("lists")), "manifest.json: .*missing required field `lists`"),
        (changed(lambda m: m.update(capturedAt="soon")), "manifest.json: capturedAt is no time"),
        (changed(lambda m: m.update(serverVersion="1")), "serverVersion no version"),
        (changed(lambda m: m["lists"].append(m["lists"][0])), "two lists are in one file"),
        (changed(listed(kind="Secret")), "a list of Secret, which is no kind of a snapshot"),
        (changed(listed(file="none.json")), "none.json: it is not in the file"),
        (changed(listed(bytes=5)), "NodeList.json: it has more than 5 bytes"),
        (changed(listed(bytes=5000)), "NodeList.json: .*not the 5000 of the manifest"),
        (changed(listed(objects=2)), "NodeList.json: it has 1 objects, not the 2"),
        (changed(listed(kind="Service")), "NodeList.json: .*no list of Service"),
        (changed(listed(kind="Job", file="PodList.pb", bytes=len(PODS))), "two lists"),
        (changed(members={"NodeList.json": b"x" * 200}), "NodeList.json: "),
        (changed(members={"PodList.pb": b"\x12" * len(PODS)}), "PodList.pb: "),
        (changed(members={"PodList.pb": PODS[:-1] + b"\xff"}), "PodList.pb: "),
        (changed(method=zipfile.ZIP_BZIP2), "compressed in a way that snapshots are not"),
        (b"PK\x05\x06" + bytes(18), "manifest.json: it is not in the file"),
        (b"PK\x03\x04", "damaged or cut off"),
    ],
)
def test_what_is_wrong_is_said(data, said):
    with pytest.raises(PolicyError, match=rf"standard input: .*{said}"):
        load(data)


@pytest.mark.parametrize("kind", ["Job", "Service"])
def test_other_kinds_are_not_kept_in_protobuf(kind):
    def change(manifest: dict[str, Any]) -> None:
        manifest["lists"][1]["kind"] = kind

    with pytest.raises(PolicyError, match=r"PodList\.pb: lists of this kind are not kept in"):
        load(changed(change))


@given(st.integers(0, len(WHOLE) - 1))
@settings(deadline=None)
def test_a_file_that_is_cut_off_anywhere_is_refused(length):
    with pytest.raises(PolicyError):
        load(WHOLE[:length])


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_a_changed_byte_is_noticed_or_does_not_matter(data):
    at = data.draw(st.integers(0, len(WHOLE) - 1))
    broken = bytearray(WHOLE)
    broken[at] ^= data.draw(st.integers(1, 255))
    try:
        snapshot = load(bytes(broken))
    except PolicyError:
        return
    assert (list(snapshot.pods.name), snapshot.captured_at) == (["a", "b"], 1795168800.0)


def test_a_list_that_inflates_without_end_is_not_held():
    zeros = bytes(120 << 20)
    size = len(zeros)
    bomb = changed(listed(bytes=size), members={"NodeList.json": zeros})
    huge = b"\x12" + b"\xff\xff\xff\xff\x0f" + zeros
    size = len(huge)
    other = changed(
        lambda manifest: manifest["lists"][1].update(bytes=size), members={"PodList.pb": huge}
    )
    del zeros, huge
    for data in (bomb, other):
        assert len(data) < 1 << 20
        tracemalloc.start()
        try:
            with pytest.raises(PolicyError, match=r"NodeList\.json|PodList\.pb"):
                load(data)
            assert tracemalloc.get_traced_memory()[1] < 100 << 20
        finally:
            tracemalloc.stop()


def test_nodes_in_protobuf_are_read():
    item = field(2, encoded("Node", metadata={"name": "n1"}))
    stream = io.BytesIO()
    with SnapshotWriter(stream) as writer:
        lists = [writer.write_protobuf("Node", [strip_run("Node", item)])]
        writer.close(CAPTURE, lists)
    assert load(stream.getvalue()).nodes.names == ("n1",)
