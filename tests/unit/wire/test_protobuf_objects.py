"""Nodes and workloads in protobuf are the structs that JSON gives; the compiled description is current."""

import json
import subprocess
import sys
from typing import Any

import pytest

from rebalancer.wire.lists import item_decoder
from rebalancer.wire.protobuf.lists import KINDS, decode_run
from rebalancer.wire.protobuf.schema import DESCRIPTION, STORED, message
from tests.unit.wire.protobuf_bytes import encoded, entries, field

QUANTITY = message("Quantity")


def from_json(kind: str, fields: dict[str, Any]) -> Any:
    return item_decoder(kind).decode(json.dumps(fields).encode())


def run_of(*items: bytes) -> bytes:
    return b"".join(field(2, item) for item in items)


def test_a_node_is_the_same_from_protobuf_and_from_json():
    images = [{"names": ["nginx:1", "nginx@sha256:0"], "sizeBytes": 100}]
    amounts = {"cpu": "8", "pods": "110"}
    mine = encoded(
        "Node",
        metadata={
            "name": "n1",
            "uid": "u",
            "creationTimestamp": {"seconds": 1_790_000_000},
            "labels": {"zone": "a", "disk": "ssd"},
            "annotations": {"rebalancer/leave": "now"},
        },
        spec={"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        status={
            "allocatable": {name: QUANTITY(string=text) for name, text in amounts.items()},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": {}}],
            "images": [encoded("ContainerImage", **image) for image in images],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
        },
    )
    theirs = {
        "metadata": {
            "name": "n1",
            "uid": "u",
            "creationTimestamp": "2026-09-21T14:13:20Z",
            "labels": {"zone": "a", "disk": "ssd"},
            "annotations": {"rebalancer/leave": "now"},
        },
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": None}],
            "images": images,
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
        },
    }
    (node,) = decode_run("Node", run_of(mine))
    assert node == from_json("Node", theirs)
    assert list(node.metadata.labels) == ["disk", "zone"]


def replica_set(uid: str) -> bytes:
    owner = {"kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    return encoded(
        "ReplicaSet",
        metadata={"name": "web-1", "namespace": "x", "uid": uid, "ownerReferences": [owner]},
        spec={
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"nodeSelector": entries({"disk": "ssd"})},
            },
        },
        status={"replicas": 3, "readyReplicas": 2, "observedGeneration": 4},
    )


def test_a_replica_set_has_what_decides_on_replacements():
    (decoded,) = decode_run("ReplicaSet", run_of(replica_set("u")))
    assert decoded.spec.replicas == 0
    assert decoded.spec.selector == {"matchLabels": {"app": "web"}}
    assert decoded.spec.template.metadata.labels == {"app": "web"}
    assert decoded.spec.template.spec.node_selector == {"disk": "ssd"}
    assert (decoded.status.ready_replicas, decoded.status.observed_generation) == (2, 4)
    assert decoded.metadata.owner_references[0].name == "web"


@pytest.mark.parametrize("kind", ["ReplicaSet", "Deployment"])
def test_of_a_workload_s_annotations_one_is_read(kind):
    annotations = entries({"rebalancer/evict": "false", "last-applied": "{" * 200})
    mine = encoded(kind, metadata={"name": "web", "uid": "u", "annotations": annotations})
    (decoded,) = decode_run(kind, run_of(mine))
    assert (decoded.metadata.name, decoded.metadata.uid) == ("web", "u")
    assert decoded.metadata.annotations == {"rebalancer/evict": "false"}


def test_unneeded_replica_sets_are_not_even_converted():
    run = run_of(replica_set("a"), replica_set("b"))
    assert [decoded.metadata.uid for decoded in decode_run("ReplicaSet", run, {"b"})] == ["b"]


def test_a_deployment_says_whether_it_is_in_a_rollout():
    mine = encoded(
        "Deployment",
        metadata={"name": "web", "uid": "d", "generation": 3},
        spec={"replicas": 3, "paused": True},
        status={"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "readyReplicas": 3},
    )
    (decoded,) = decode_run("Deployment", run_of(mine))
    theirs = {
        "metadata": {"name": "web", "uid": "d", "generation": 3},
        "spec": {"replicas": 3, "paused": True},
        "status": {
            "observedGeneration": 2,
            "replicas": 3,
            "updatedReplicas": 1,
            "readyReplicas": 3,
        },
    }
    assert decoded == from_json("Deployment", theirs)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_object_without_any_field_is_readable(kind):
    (decoded,) = decode_run(kind, run_of(b""))
    assert decoded.metadata.name == ""


@pytest.mark.parametrize("description", [DESCRIPTION, STORED])
def test_a_compiled_description_is_that_of_its_source(tmp_path, description):
    target = tmp_path / description.name
    source = description.with_suffix(".proto")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{source.parent}"]
    subprocess.run([*command, f"--descriptor_set_out={target}", source.name], check=True)
    assert target.read_bytes() == description.read_bytes(), "run `make protobuf`"
