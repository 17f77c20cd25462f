"""What is left out of snapshot files, and how they come to be."""

import io
import json

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.snapshot.store import SnapshotWriter, open_for_writing, slim


def test_what_may_be_secret_and_what_is_only_bulk_is_left_out() -> None:
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "hidden", "kept": "yes"}
    container = {"name": "main", "env": [{"name": "K", "value": "hidden"}], "envFrom": ["hidden"]}
    spec = {"containers": [container], "initContainers": [container], "nodeName": "n1"}
    meta = {"name": "a", "managedFields": ["hidden"], "annotations": applied}
    for kind, item in (
        ("Pod", {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}),
        ("ReplicaSet", {"metadata": meta, "spec": {"template": {"metadata": meta, "spec": spec}}}),
    ):
        text = slim(kind, json.dumps(item).encode())
        assert b"hidden" not in text
        kept = json.loads(text)
        assert list(kept)[:2] == ["kind", "apiVersion"]
        assert kept["metadata"] == {"name": "a", "annotations": {"kept": "yes"}}
        line = slim(kind, json.dumps(item, indent=4).encode())
        assert b"\n" not in line
        assert json.loads(line) == kept
    assert json.loads(slim("Pod", b'{"spec":null,"metadata":{}}')) == {
        "kind": "Pod",
        "apiVersion": "v1",
        "spec": None,
        "metadata": {},
    }


def test_a_writer_that_is_left_early_writes_no_end() -> None:
    stream = io.BytesIO()
    with SnapshotWriter(stream) as writer:
        writer.write_json("Pod", [b'{"metadata":{"name":"a"}}'])
    assert b"PK\x05\x06" not in stream.getvalue()


def test_an_output_that_is_full_is_named() -> None:
    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    with (
        pytest.raises(PolicyError, match="standard output: cannot be written: No space left"),
        open_for_writing(Full()) as stream,
        SnapshotWriter(stream) as writer,
    ):
        writer.write_json("Pod", [])
