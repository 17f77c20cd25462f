"""Snapshot files: our own and kubectl's, whole and broken."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.errors import ClusterReadError, PolicyError
from rebalancer.kube.capture import write_cluster_snapshot
from rebalancer.kube.read import read_snapshot
from rebalancer.snapshot.items import ItemScanner
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.store import load_snapshot, slim
from tests.unit.kube.scripted import (
    Say,
    ScriptedServer,
    Sleeps,
    client_of,
    empty_cluster,
    list_body,
    node,
    pod,
    status_body,
)

TEN = 1795168800.0
"""2026-11-20T10:00:00Z."""
REPLICA_SET = {
    "metadata": {
        "name": "web-1",
        "namespace": "default",
        "uid": "rs-1",
        "ownerReferences": [
            {"kind": "Deployment", "name": "web", "uid": "d-1", "controller": True}
        ],
    },
    "spec": {"replicas": 2},
}


def owned_pod(name: str, on: str = "n1") -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": "web-1", "uid": "rs-1", "controller": True}
    return pod(name, on, ownerReferences=[owner])


def cluster(server: ScriptedServer) -> None:
    empty_cluster(server)
    server.on("GET", "/api/v1/pods", Say(list_body([owned_pod("a"), owned_pod("b", "n2")])))
    server.on("GET", "/api/v1/nodes", Say(list_body([node("n1"), node("n2")])))
    server.on("GET", "/apis/apps/v1/replicasets", Say(list_body([REPLICA_SET])))


def kubectl_list(*, workloads_first: bool = True) -> dict[str, Any]:
    """Return what ``kubectl get rs,pods,nodes -A -o json`` prints, keys in its order."""
    pods = [{"apiVersion": "v1", "kind": "Pod", **owned_pod(name)} for name in "ab"]
    nodes = [{"apiVersion": "v1", "kind": "Node", **node("n1")}]
    sets = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", **REPLICA_SET}]
    items = [*sets, *pods, *nodes] if workloads_first else [*pods, *nodes, *sets]
    metadata = {"resourceVersion": ""}
    return {"apiVersion": "v1", "items": items, "kind": "List", "metadata": metadata}


def essence(snapshot: Snapshot) -> tuple[Any, ...]:
    return (
        snapshot.captured_at,
        snapshot.version,
        snapshot.resource_version,
        snapshot.missing,
        list(snapshot.pods.name),
        snapshot.pods.node.tolist(),
        snapshot.nodes.names,
        snapshot.classes,
        snapshot.owners,
    )


@pytest.mark.parametrize("name", ["cluster.json", "cluster.json.gz"])
def test_a_file_holds_what_the_cluster_was(
    server: ScriptedServer, tmp_path: Path, name: str
) -> None:
    cluster(server)
    client = client_of(server.url, tmp_path)
    path = tmp_path / name
    captured = write_cluster_snapshot(client, path, clock=lambda: 0.0, page_size=1)
    assert captured.counts["Pod"] == 2
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    assert path.stat().st_mode & 0o077 == 0
    live = read_snapshot(client, clock=lambda: 0.0)
    assert essence(load_snapshot(path)) == essence(live)
    assert live.captured_at == TEN


def test_the_same_cluster_makes_the_same_bytes(server: ScriptedServer, tmp_path: Path) -> None:
    cluster(server)
    client = client_of(server.url, tmp_path)
    one, two = tmp_path / "one.gz", tmp_path / "two.gz"
    for path in (one, two):
        write_cluster_snapshot(client, path, clock=lambda: 0.0)
    assert one.read_bytes() == two.read_bytes()


def test_nothing_is_left_behind_when_a_list_breaks_off(
    server: ScriptedServer, tmp_path: Path, sleeps: Sleeps
) -> None:
    cluster(server)
    client = client_of(server.url, tmp_path, sleeps)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "old.json").write_text("old")
    server.on("GET", "/apis/batch/v1/jobs", Say(list_body([{}]), cut=10))
    with pytest.raises(ClusterReadError, match="broke"):
        write_cluster_snapshot(client, folder / "old.json", clock=lambda: 0.0)
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("old.json", "old")]


def test_forbidden_lists_are_all_named(server: ScriptedServer, tmp_path: Path) -> None:
    cluster(server)
    for path in ("/api/v1/nodes", "/api/v1/services"):
        server.on("GET", path, Say(status_body(403, "no"), 403))
    with pytest.raises(ClusterReadError, match="may not list nodes; list services"):
        write_cluster_snapshot(
            client_of(server.url, tmp_path), tmp_path / "x.json", clock=lambda: 0.0
        )


def test_a_file_that_cannot_be_written_is_named(server: ScriptedServer, tmp_path: Path) -> None:
    cluster(server)
    with pytest.raises(PolicyError, match=r"none/x\.json: cannot be written: No such file"):
        write_cluster_snapshot(
            client_of(server.url, tmp_path), tmp_path / "none" / "x.json", clock=lambda: 0.0
        )


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
    assert json.loads(slim("Pod", b'{"spec":null,"metadata":{}}')) == {
        "kind": "Pod",
        "apiVersion": "v1",
        "spec": None,
        "metadata": {},
    }


# -- what kubectl prints ---------------------------------------------------------------------------


def as_file(folder: Path, text: str | bytes, name: str = "file.json") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("workloads_first", [True, False])
@pytest.mark.parametrize("shape", ["compact", "pretty", "sorted", "yaml", "gzip", "documents"])
def test_what_kubectl_prints_is_read(tmp_path: Path, shape: str, workloads_first: bool) -> None:
    found = kubectl_list(workloads_first=workloads_first)
    text: dict[str, str | bytes] = {
        "compact": json.dumps(found, separators=(",", ":")),
        "pretty": json.dumps(found, indent=4) + "\n",
        "sorted": json.dumps(found, sort_keys=True),
        "yaml": yaml.safe_dump(found),
        "gzip": gzip.compress(json.dumps(found).encode()),
        "documents": yaml.safe_dump_all(found["items"]),
    }
    snapshot = load_snapshot(as_file(tmp_path, text[shape]))
    assert list(snapshot.pods.name) == ["a", "b"]
    assert snapshot.nodes.names == ("n1",)
    assert [owner.ref for owner in snapshot.owners] == ["Deployment/default/web"]
    assert snapshot.version == (1, 35), "most kubelets say so"
    assert snapshot.captured_at == TEN - 30, "the newest time in it is a node's heartbeat"
    assert "PodDisruptionBudget: none in the file" in snapshot.missing
    assert not any(text.startswith(("Pod:", "Node:", "ReplicaSet:")) for text in snapshot.missing)


@pytest.mark.parametrize("kind_last", [True, False])
def test_a_list_of_one_kind_names_it_for_its_items(tmp_path: Path, kind_last: bool) -> None:
    kind, items = {"kind": "PodList"}, {"items": [pod("a"), pod("b")]}
    found = {**items, **kind} if kind_last else {**kind, **items}
    assert len(load_snapshot(as_file(tmp_path, json.dumps(found))).pods) == 2


def test_standard_input_is_read_and_need_not_seek() -> None:
    text = json.dumps(kubectl_list()).encode()

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: Any) -> int:
            raise OSError("a pipe")

    for data in (text, gzip.compress(text)):
        assert len(load_snapshot("-", stdin=Pipe(data)).pods) == 2


def test_kinds_that_do_not_matter_are_passed_over_and_empty_lists_are_fine(tmp_path: Path) -> None:
    found = kubectl_list()
    found["items"] = [{"apiVersion": "v1", "kind": "Secret", "data": {"spec": 7}}]
    assert len(load_snapshot(as_file(tmp_path, json.dumps(found))).pods) == 0
    for nothing in (list[Any](), None):
        found["items"] = nothing
        snapshot = load_snapshot(as_file(tmp_path, json.dumps(found)))
        assert (snapshot.captured_at, snapshot.version) == (0.0, (1, 36))
        assert "Pod: none in the file" in snapshot.missing


WHOLE = json.dumps(kubectl_list(), indent=4)
OURS = '{"kind":"List","apiVersion":"v1","metadata":{},"items":['


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        (WHOLE[: len(WHOLE) // 2], "cut off: it ends amid object"),
        (gzip.compress(WHOLE.encode())[:-20], "cut off"),
        (b"\x1f\x8b" + b"nonsense" * 20, "damaged|cannot be read|not"),
        (WHOLE + WHOLE, "not one JSON list"),
        (WHOLE.replace('"kind": "List"', '"kind" "List"'), "not one JSON list"),
        ('{"kind": "Pod", "metadata": {}}', "kind Pod: expected what `rebalancer snapshot"),
        ('{"kind": "Config", "clusters": [{}]}', "kind Config"),
        ('{"items": [{"metadata": {}}]}', "have no kind"),
        (OURS + '{"kind":"Pod","metadata":{"name":7}}]}', r"object 1 \(Pod\) at byte 56: .*name"),
        (OURS + '{"kind":"Pod",}]}', r"object 1 \(Pod\) at byte 56: .*malformed"),
        ("kind: [List", ":2:1: neither JSON nor YAML"),
        ("a: " + "[" * 200_000, ":1:503: neither JSON nor YAML: nested more than 500 levels deep"),
        ("just text", "no list of API objects"),
        ("- a\n- b", "no list of API objects"),
        ("kind: Policy\nmode: off", "kind Policy: expected"),
        ("kind: List\nitems:\n- kind: Pod\n  metadata: {name: 7}", r"object 1 \(Pod\): .*name"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = as_file(tmp_path, text)
    with pytest.raises(PolicyError, match=rf"{path}.*({said})"):
        load_snapshot(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"none\.json: cannot be read: No such file"):
        load_snapshot(tmp_path / "none.json")
    with pytest.raises(PolicyError, match="cannot be read: Is a directory"):
        load_snapshot(tmp_path)


# -- the scanner -----------------------------------------------------------------------------------

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
def test_items_are_found_however_the_text_is_cut(
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
    found = [
        item
        for start in range(0, len(text), size)
        for item in scanner.feed(text[start : start + size])
    ]
    assert [json.loads(item.text) for item in found] == items
    assert all(text[item.offset :].startswith(item.text) for item in found)
    assert json.loads(scanner.envelope) == {**whole, "items": []}
    assert scanner.complete
