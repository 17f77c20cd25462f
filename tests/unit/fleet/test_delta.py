"""A delta and its base make the very bytes of the snapshot file, and nothing where one of them is damaged."""

import gzip
import io
import json
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.base import data_text
from rebalancer.base.errors import PolicyError
from rebalancer.fleet.delta import restore, write_delta
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.store import Capture, SnapshotWriter
from tests.unit.wire import protobuf_bytes

POD = {"kind": "Pod", "apiVersion": "v1"}


def in_json(name, phase):
    return json.dumps({**POD, "metadata": {"name": name}, "status": {"phase": phase}}).encode()


def in_protobuf(name, phase):
    # An item of a list: its tag, its length, its bytes.
    body = protobuf_bytes.pod(name, node=phase)
    length = bytes([len(body) & 0x7F | 0x80, len(body) >> 7])
    return b"\x12" + length + body


def archive(pods, *, protobuf=False, at=1795168800.0):
    """A snapshot file with these pods: (name, phase)."""
    stream = io.BytesIO()
    with SnapshotWriter(stream) as writer:
        if protobuf:
            runs = [(b"".join(in_protobuf(*pod) for pod in pods), len(pods))]
            lists = [writer.write_protobuf("Pod", runs)]
        else:
            lists = [writer.write_json("Pod", [in_json(*pod) for pod in pods])]
        lists.append(writer.write_json("Node", [b'{"metadata":{"name":"n"}}']))
        writer.close(Capture(at, (1, 36), "7", ("Pod", "Node"), "https://x"), lists)
    return stream.getvalue()


def delta_of(folder, old, new):
    base, snapshot, delta = folder / "a.full.zip", folder / "new.zip", folder / "b.delta.zip"
    base.write_bytes(old)
    snapshot.write_bytes(new)
    with delta.open("wb") as stream:
        write_delta(base, snapshot, stream)
    return delta


def restored(delta):
    with delta.open("rb") as stream:
        return restore(stream, lambda name: (delta.parent / name).open("rb"))


PODS = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "yy"])), max_size=8)


@settings(max_examples=30, deadline=None)
@given(PODS, PODS, st.booleans(), st.booleans())
def test_what_is_restored_is_the_file_itself(tmp_path_factory, old, new, before, after):
    folder = tmp_path_factory.mktemp("delta")
    whole = archive(new, protobuf=after)
    delta = delta_of(folder, archive(old, protobuf=before), whole)
    assert restored(delta).getvalue() == whole
    with zipfile.ZipFile(delta) as parts:
        assert json.loads(parts.read("delta.json"))["base"] == "a.full.zip"


def test_a_delta_of_few_changes_is_small_and_loads(tmp_path):
    old = [(f"pod-{number}", "Running") for number in range(3000)]
    new = [*old[:1000], ("pod-x", "Pending"), *old[1001:]]
    delta = delta_of(tmp_path, archive(old), archive(new))
    assert delta.stat().st_size < len(archive(new)) / 5
    assert len(load_snapshot("-", stdin=restored(delta)).pods) == 3000


@pytest.fixture
def delta(tmp_path):
    old = [(f"pod-{number}", "Running") for number in range(20)]
    return delta_of(tmp_path, archive(old), archive([*old[5:], ("new", "Pending")]))


def test_without_its_base_it_is_not_read(delta):
    (delta.parent / "a.full.zip").unlink()
    with pytest.raises(ValueError, match=r"a\.full\.zip is not beside it"):
        restored(delta)


def test_with_another_base_it_is_not_read(delta):
    (delta.parent / "a.full.zip").write_bytes(archive([("other", "x")]))
    with pytest.raises(ValueError, match="another file, or damaged"):
        restored(delta)


def test_cut_off_anywhere_it_is_not_read(delta):
    whole = delta.read_bytes()
    for length in range(0, len(whole), 7):
        delta.write_bytes(whole[:length])
        with pytest.raises((ValueError, EOFError)):
            restored(delta)


def test_with_any_byte_flipped_it_is_refused_or_the_same(delta):
    expected, whole = restored(delta).getvalue(), delta.read_bytes()
    for position in range(0, len(whole), 11):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        delta.write_bytes(damaged)
        try:
            came = restored(delta).getvalue()
        except (ValueError, EOFError, OSError):
            continue
        assert came == expected


@pytest.mark.parametrize("name", ["../a.full.zip", "/etc/passwd", "..", ""])
def test_a_base_elsewhere_is_refused(delta, name):
    with zipfile.ZipFile(delta) as archive_of:
        members = {each: archive_of.read(each) for each in archive_of.namelist()}
    head = json.loads(members["delta.json"])
    members["delta.json"] = json.dumps({**head, "base": name}).encode()
    with zipfile.ZipFile(delta, "w") as changed:
        for each, data in members.items():
            changed.writestr(each, data)
    with pytest.raises(ValueError, match="is no name of a file"):
        restored(delta)


@pytest.fixture
def limited(monkeypatch):
    """A file may unpack to a thousand bytes, and beyond that to twice its size."""
    monkeypatch.setattr(data_text, "_UNPACKED", 1000)
    monkeypatch.setattr(data_text, "_RATIO", 2)


@pytest.mark.parametrize("member", ["PodList.json.new", "PodList.json.from", "delta.json"])
@pytest.mark.parametrize("lies", [False, True])
def test_what_unpacks_to_too_much_is_refused_before_it_is_read(delta, member, lies, monkeypatch):
    with zipfile.ZipFile(delta) as archive:
        texts = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(texts["delta.json"])
    for of in head["snapshot"]["lists"]:
        of |= {"bytes": 1 << 32, "objects": 1 << 28}
    texts["delta.json"] = json.dumps(head).encode()
    texts[member] = texts[member] + b" " * 200_000
    with zipfile.ZipFile(delta, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    if lies:
        # The directory at the end says that the member was much larger when it was packed.
        whole = bytearray(delta.read_bytes())
        at = whole.index(
            member.encode(), whole.rindex(b"PK\x01\x02", 0, whole.rindex(member.encode()))
        )
        whole[at - 26 : at - 22] = (1 << 30).to_bytes(4, "little")
        delta.write_bytes(whole)
    monkeypatch.setattr(data_text, "_UNPACKED", 100_000)
    monkeypatch.setattr(data_text, "_RATIO", 2)
    with pytest.raises(ValueError, match=r"unpacks to far more|is larger than"):
        restored(delta)


def test_a_list_that_repeats_an_object_of_its_base_is_refused(delta):
    with zipfile.ZipFile(delta) as archive:
        texts = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(texts["delta.json"])
    head["snapshot"]["lists"][0] |= {"objects": 100_000, "bytes": 1 << 31}
    texts["delta.json"] = json.dumps(head).encode()
    texts["PodList.json.from"] = b"\0" * 400_000
    with zipfile.ZipFile(delta, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    with pytest.raises(ValueError, match="larger than what its base and the delta hold"):
        restored(delta)


def test_a_whole_snapshot_that_unpacks_to_too_much_is_refused(limited, tmp_path):
    file = tmp_path / "a.zip"
    file.write_bytes(archive([("a" * 9000, "x")]))
    with pytest.raises(PolicyError, match=r"PodList\.json: it unpacks to far more"):
        load_snapshot(file)


def test_gzip_that_unpacks_to_too_much_is_refused(limited, tmp_path):
    file = tmp_path / "a.json.gz"
    items = [json.loads(in_json("a", "x")), {"kind": "Node", "metadata": {"name": "n"}}]
    text = json.dumps({"kind": "List", "items": items})
    file.write_bytes(gzip.compress(text.encode()))
    assert len(load_snapshot(file).pods) == 1
    file.write_bytes(gzip.compress(text.encode() + b" " * 100_000))
    with pytest.raises(PolicyError, match="it unpacks to more than 2 times its size"):
        load_snapshot(file)
