"""The objects of a snapshot of ours in protobuf, as the dictionaries that edits are made on."""

import copy
import io
import json

import pytest

from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.store import Capture, SnapshotWriter
from rebalancer.whatif.edits import read_objects
from rebalancer.wire.protobuf.schema import message
from tests.unit.wire.protobuf_bytes import encoded, field
from tests.unit.wire.test_protobuf_objects import replica_set
from tests.unit.wire.test_protobuf_pods import FULL_JSON, full_protobuf

QUANTITY = message("Quantity")
NODE = encoded(
    "Node",
    metadata={"name": "n1", "uid": "n1", "labels": {"zone": "a"}},
    spec={"taints": [{"key": "k", "effect": "NoSchedule"}]},
    status={
        "allocatable": {"cpu": QUANTITY(string="8"), "pods": QUANTITY(string="110")},
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": {"seconds": 7}}],
        "images": [encoded("ContainerImage", names=["nginx"], sizeBytes=100)],
    },
)
DEPLOYMENT = encoded("Deployment", metadata={"name": "web", "uid": "d"}, spec={"replicas": 3})
LISTS = {
    "Pod": full_protobuf(),
    "Node": NODE,
    "ReplicaSet": replica_set("rs-1"),
    "Deployment": DEPLOYMENT,
}


def archive() -> bytes:
    stream = io.BytesIO()
    with SnapshotWriter(stream) as writer:
        lists = [writer.write_protobuf(kind, [(field(2, item), 1)]) for kind, item in LISTS.items()]
        lists.append(writer.write_json("Namespace", [b'{"metadata":{"name":"default"}}']))
        writer.close(Capture(1795168800.0, (1, 35), "7", tuple(LISTS)), lists)
    return stream.getvalue()


def essence(snapshot: Snapshot) -> object:
    nodes = snapshot.nodes
    return (
        (snapshot.captured_at, snapshot.version, snapshot.resource_version),
        list(snapshot.pods.name),
        snapshot.pods.node.tolist(),
        snapshot.pods.created.tolist(),
        snapshot.pods.flags.tolist(),
        snapshot.classes,
        snapshot.owners,
        snapshot.namespaces,
        nodes.labels_of("n1"),
        nodes.allocatable.tolist(),
        snapshot.requests.tolist(),
    )


def test_a_pod_is_as_in_json_without_what_is_not_read():
    (pod,) = read_objects(archive()).of_kind("Pod")
    expected = copy.deepcopy(FULL_JSON)
    expected["status"]["conditions"][0]["lastTransitionTime"] = "2026-09-21T14:14:20Z"
    expected["spec"]["volumes"] = [
        {"name": "config"} if volume["name"] == "config" else volume
        for volume in FULL_JSON["spec"]["volumes"]
    ]
    assert pod == {"kind": "Pod", **expected}


def test_the_objects_fold_to_what_the_file_does():
    data = archive()
    direct = load_snapshot("-", stdin=io.BytesIO(data))
    assert essence(read_objects(data).snapshot()) == essence(direct)
    assert len(direct.pods) == len(direct.owners) == 1


@pytest.mark.parametrize("indent", [None, 2])
def test_json_texts_one_after_the_other_can_be_edited_as_one_list(indent):
    items = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in ("a", "b")
    ]
    listing = {"apiVersion": "v1", "kind": "List", "items": items}
    texts = "\n".join(json.dumps(item, indent=indent) for item in items)
    assert read_objects(texts.encode()).items == read_objects(json.dumps(listing).encode()).items
