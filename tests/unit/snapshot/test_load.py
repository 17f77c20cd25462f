"""Snapshot files of JSON and YAML, as kubectl prints them: whole and broken."""

import copy
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.base.errors import PolicyError
from rebalancer.snapshot.load import load_snapshot
from tests.unit.kube.scripted import REPLICA_SET, node, owned_pod, pod

TEN = 1795168800.0
"""2026-11-20T10:00:00Z."""


def kubectl_list(*, workloads_first: bool = True) -> dict[str, Any]:
    """Return what ``kubectl get rs,pods,nodes -A -o json`` prints, keys in its order."""
    pods = [{"apiVersion": "v1", "kind": "Pod", **owned_pod(name)} for name in "ab"]
    nodes = [{"apiVersion": "v1", "kind": "Node", **node("n1")}]
    sets = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", **REPLICA_SET}]
    items = [*sets, *pods, *nodes] if workloads_first else [*pods, *nodes, *sets]
    metadata = {"resourceVersion": ""}
    return {"apiVersion": "v1", "items": items, "kind": "List", "metadata": metadata}


def as_file(folder: Path, text: str | bytes, name: str = "file.json") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def list_of_one(item: dict[str, Any], indent: int) -> str:
    """Return an object as API servers list it: the list alone names the kind."""
    bare = {key: value for key, value in item.items() if key not in ("kind", "apiVersion")}
    listing = {"kind": f"{item['kind']}List", "apiVersion": item["apiVersion"], "items": [bare]}
    return json.dumps(listing, indent=indent or None)


def with_nulls(listing: dict[str, Any]) -> dict[str, Any]:
    """Return a listing with keys that have no value, as in manifests that people write."""
    empty = {"spec": None, "status": None}
    items = [{**empty, **item, "metadata": {**item["metadata"], "generation": None}} for item in listing["items"]]  # fmt: skip
    return {**listing, "items": items}


@pytest.mark.parametrize("workloads_first", [True, False])
@pytest.mark.parametrize(
    "shape",
    [
        "compact",
        "pretty",
        "sorted",
        "yaml",
        "gzip",
        "documents",
        "lines",
        "stream",
        "lists",
        "nulls",
    ],
)
def test_what_kubectl_prints_is_read(tmp_path, shape, workloads_first):
    listing = kubectl_list(workloads_first=workloads_first)
    text: dict[str, str | bytes] = {
        "compact": json.dumps(listing, separators=(",", ":")),
        "pretty": json.dumps(listing, indent=4) + "\n",
        "sorted": json.dumps(listing, sort_keys=True),
        "yaml": yaml.safe_dump(listing),
        "gzip": gzip.compress(json.dumps(listing).encode()),
        "documents": yaml.safe_dump_all(listing["items"]),
        "lines": "\n".join(json.dumps(item) for item in listing["items"]),
        "stream": "".join(json.dumps(item, indent=1) for item in listing["items"]),
        "lists": "\n".join(list_of_one(item, indent=n) for n, item in enumerate(listing["items"])),
        "nulls": yaml.safe_dump(with_nulls(listing)),
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
def test_a_list_of_one_kind_names_it_for_its_items(tmp_path, kind_last):
    kind, items = {"kind": "PodList"}, {"items": [pod("a"), pod("b")]}
    listing = {**items, **kind} if kind_last else {**kind, **items}
    assert len(load_snapshot(as_file(tmp_path, json.dumps(listing))).pods) == 2


def test_standard_input_is_read_and_need_not_seek():
    text = json.dumps(kubectl_list()).encode()

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: Any) -> int:
            raise OSError("a pipe")

    for data in (text, gzip.compress(text)):
        assert len(load_snapshot("-", stdin=Pipe(data)).pods) == 2


def test_kinds_that_do_not_matter_are_passed_over_and_empty_lists_are_fine(tmp_path):
    listing = kubectl_list()
    listing["items"] = [{"apiVersion": "v1", "kind": "Secret", "data": {"spec": 7}}]
    assert len(load_snapshot(as_file(tmp_path, json.dumps(listing))).pods) == 0
    for nothing in (list[Any](), None):
        listing["items"] = nothing
        snapshot = load_snapshot(as_file(tmp_path, json.dumps(listing)))
        assert (snapshot.captured_at, snapshot.version) == (0.0, (1, 36))
        assert "Pod: none in the file" in snapshot.missing


def test_yaml_documents_of_other_kinds_are_passed_over(tmp_path):
    others = ["kind: ConfigMap\ndata: {since: 2026-01-01}", "kind: CronJob\nspec: 7"]
    listed = yaml.safe_dump(kubectl_list())
    for text in ("\n---\n".join([*others, listed]), "\n---\n".join([listed, *others])):
        assert len(load_snapshot(as_file(tmp_path, text)).pods) == 2


WHOLE = json.dumps(kubectl_list(), indent=4)
OURS = '{"kind":"List","apiVersion":"v1","metadata":{},"items":['


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        (WHOLE[: len(WHOLE) // 2], "cut off: Input data was truncated"),
        (gzip.compress(WHOLE.encode())[:-20], "cut off"),
        (b"\x1f\x8b" + b"nonsense" * 20, "damaged|cannot be read|not"),
        (WHOLE + WHOLE, "Pod default/a and 1 more: stands in the file more than once"),
        (OURS + "]}\n" + WHOLE[:-9], "line 2: damaged or cut off: "),
        (OURS + "]}\n==== START logs", "line 2: damaged or cut off: "),
        (OURS + "]}\n[1]", "line 2: damaged or cut off: no API object"),
        ('{"kind":"Pod"}\n{"kind":"Pod"', "line 2: damaged or cut off"),
        (
            '{"kind":"Pod","metadata":{}}\n{"metadata":{}}',
            "line 2: damaged or cut off: no API object",
        ),
        (WHOLE.replace('"kind": "List"', '"kind" "List"'), "not one JSON list"),
        ('{"kind": "Pod", "metadata": {}}', "kind Pod: expected what `rebalancer snapshot"),
        ('{"kind": "Config", "clusters": [{}]}', "kind Config"),
        ('{"items": [{"metadata": {}}]}', "no list of API objects"),
        ('{"kind": "List", "items": [{"metadata": {}}]}', "have no kind"),
        (OURS + '{"kind":"Pod","metadata":{"name":7}}]}', r"object 1 \(Pod\): .*name"),
        (OURS + '{"kind":"Pod",}]}', r"not one JSON list: .*malformed.*byte 70"),
        ("kind: [List", ":2:1: neither JSON nor YAML"),
        ("a: " + "[" * 200_000, ":1:503: neither JSON nor YAML: nested more than 500 levels deep"),
        ("just text", "no list of API objects"),
        ("- a\n- b", "no list of API objects"),
        ("kind: Policy\nmode: off", "kind Policy: expected"),
        ("kind: Policy\n---\nkind: Secret", "kind Policy: expected"),
        ("kind: List\nitems:\n- kind: Pod\n  metadata: {name: 7}", r"object 1 \(Pod\): .*name"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, text, said):
    path = as_file(tmp_path, text)
    with pytest.raises(PolicyError, match=rf"{path}.*({said})"):
        load_snapshot(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PolicyError, match=r"none\.json: cannot be read: No such file"):
        load_snapshot(tmp_path / "none.json")
    with pytest.raises(PolicyError, match="cannot be read: Is a directory"):
        load_snapshot(tmp_path)


def replica_set(number: int) -> dict[str, Any]:
    owner = {"kind": "Deployment", "name": f"d{number}", "uid": f"d{number}", "controller": True}
    meta = {"name": f"rs{number}", "namespace": "one", "uid": f"rs{number}"}
    return {"kind": "ReplicaSet", "metadata": {**meta, "ownerReferences": [owner]}}


def pod_of(number: int) -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": f"rs{number}", "uid": f"rs{number}", "controller": True}
    meta = {"name": f"p{number}", "namespace": "one", "uid": f"p{number}"}
    return {"kind": "Pod", "metadata": {**meta, "ownerReferences": [owner]}}


@pytest.mark.parametrize("from_stdin", [False, True])
@pytest.mark.parametrize("order", [[0, 2, 1], [0, 1, 2], [2, 0, 1]])
def test_replica_sets_may_stand_before_between_and_after_the_pods_that_name_them(
    tmp_path, order, from_stdin
):
    parts = [[pod_of(0)], [pod_of(3)], [replica_set(number) for number in range(5)]]
    items = [item for part in order for item in parts[part]]
    text = json.dumps({"kind": "List", "items": items})
    if from_stdin:
        snapshot = load_snapshot("-", stdin=io.BytesIO(text.encode()))
    else:
        snapshot = load_snapshot(as_file(tmp_path, text))
    assert [owner.ref for owner in snapshot.owners] == ["Deployment/one/d0", "Deployment/one/d3"]


def test_a_list_may_say_its_time_and_version_in_annotations(tmp_path):
    listing = kubectl_list()
    listing["metadata"] = {
        "resourceVersion": "7",
        "annotations": {
            "rebalancer/captured-at": "2026-11-21T00:00:00Z",
            "rebalancer/server-version": "1.34",
            "rebalancer/kinds": "Pod,Node,ReplicaSet,Job",
        },
    }
    snapshot = load_snapshot(as_file(tmp_path, gzip.compress(json.dumps(listing).encode())))
    assert (snapshot.captured_at, snapshot.version) == (TEN + 14 * 3600, (1, 34))
    assert snapshot.resource_version == "7"
    assert "Job: none in the file" not in snapshot.missing
    assert "Deployment: none in the file" in snapshot.missing


def test_a_value_that_no_api_server_admits_is_named_with_its_object(tmp_path):
    listing = kubectl_list()
    drivers = [{"name": "d", "allocatable": {"count": 2**63}}]
    csi = {"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": drivers}}
    good = {"kind": "CSINode", "metadata": {"name": "n0"}, "spec": {"drivers": []}}
    listing["items"] += [good, csi]
    path = as_file(tmp_path, json.dumps(listing))
    with pytest.raises(
        PolicyError, match=rf"{path}: object 6 \(CSINode\): .* <= 2147483647 - at .*count"
    ):
        load_snapshot(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "kind: PodList\nmetadata: text\nitems: []\n",
            "metadata: has to be an object, and is a text",
        ),
        ("kind: PodList\nitems: text\n", "items: no list"),
        ("kind: PodList\nitems: [{~: 1}]\n", "object 1: no JSON"),
    ],
)
def test_yaml_that_is_no_list_of_objects_is_named(tmp_path, text, says):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(PolicyError, match=says):
        load_snapshot(path)


def test_pods_without_uids_have_names_of_their_own(tmp_path):
    """Programs that write files may leave them out; all reports find pods by them."""
    listing = kubectl_list()
    for item in listing["items"]:
        item["metadata"] = {k: of for k, of in item["metadata"].items() if k != "uid"}
    pods = load_snapshot(str(as_file(tmp_path, json.dumps(listing)))).pods
    assert sorted(pods.uid) == ["default/a", "default/b"]


def tower(value: str, levels: int, per_level: int) -> str:
    lines = [f"x0: &x0 {value}"]
    for level in range(1, levels):
        of_level = ",".join([f"*x{level - 1}"] * per_level)
        lines.append(f"x{level}: &x{level} [{of_level}]")
    return "\n".join(lines)


HEAD_OF_POD = "kind: Pod\nmetadata: {name: a}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (tower("[a,a]", 40, 2), "its aliases come to more than 16 MiB"),
        (tower(f"'{'a' * 100_000}'", 2, 200), "its aliases come to more than 16 MiB"),
        ("x: &x [" + "a," * 1000 + "]\ny: [" + "*x," * 9000 + "]", "its aliases come to more than"),
        ("x: &x {y: *x}", "contains itself by an alias"),
        ("x: &x [[*x]]", "contains itself by an alias"),
    ],
)
def test_yaml_whose_aliases_come_to_very_much_is_refused_before_it_is_built(tmp_path, text, says):
    path = tmp_path / "bomb.yaml"
    path.write_text(HEAD_OF_POD + text)
    with pytest.raises(PolicyError, match=says):
        load_snapshot(path)


def test_yaml_with_a_few_aliases_is_read(tmp_path):
    path = tmp_path / "few.yaml"
    labels = "kind: Pod\nmetadata: {name: a, labels: &l {app: web}, annotations: *l}\n---\n"
    path.write_text(labels + "kind: Node\nmetadata: {name: n}\n")
    assert load_snapshot(path).classes[0].labels == {"app": "web"}


@pytest.mark.parametrize(
    ("kind", "path", "number", "limit"),
    [
        ("Pod", ("spec", "priority"), 2**64, "<= 2147483647"),
        ("Pod", ("spec", "priority"), 10**30, "<= 2147483647"),
        ("Pod", ("spec", "priority"), -(2**31) - 1, ">= -2147483648"),
        ("Pod", ("spec", "terminationGracePeriodSeconds"), 2**63, "<= 9223372036854775807"),
        ("Pod", ("spec", "topologySpreadConstraints", 0, "maxSkew"), 2**63, "<= 2147483647"),
        ("Pod", ("spec", "topologySpreadConstraints", 0, "minDomains"), 2**31, "<= 2147483647"),
        ("Pod", ("status", "containerStatuses", 0, "restartCount"), 2**31, "<= 2147483647"),
        ("ReplicaSet", ("spec", "replicas"), 2**31, "<= 2147483647"),
    ],
)
def test_a_number_that_no_api_server_admits_is_refused_in_words(
    tmp_path, kind, path, number, limit
):
    listing = copy.deepcopy(kubectl_list())
    item = next(one for one in listing["items"] if one["kind"] == kind)
    if "topologySpreadConstraints" in path:
        item["spec"]["topologySpreadConstraints"] = [{"topologyKey": "zone"}]
    if "containerStatuses" in path:
        item["status"]["containerStatuses"] = [{"name": "main"}]
    *above, last = path
    for step in above:
        item = item[step]
    item[last] = number
    with pytest.raises(PolicyError) as caught:
        load_snapshot(str(as_file(tmp_path, json.dumps(listing))))
    assert limit in str(caught.value)
    assert path[-1] in str(caught.value)
