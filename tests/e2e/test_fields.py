"""The table of fields that may decide where a pod goes, against the schema of the real API server."""

from __future__ import annotations

from tests import fields
from tests.controlplane import objects

OFF = {
    "VolumeMount.bindMountOptions",
    "NodeSpec.podPreemptionPolicy",
    "NodePodPreemptionPolicy.disableResizePreemption",
}


def test_the_table_has_each_field_of_the_schema_and_no_other(control_plane, kubernetes):
    version = fields.minor(kubernetes)
    known = {field.name for field in fields.read() if version in field.versions}
    assert fields.fields_of(control_plane.api.get(fields.PATH)) == known


def test_what_is_off_is_dropped_by_the_server(cluster):
    assert {field.name for field in fields.read() if field.verdict == "off"} == OFF
    node = objects.node("a")
    node["spec"] = {
        **node.get("spec", {}),
        "podPreemptionPolicy": {"disableResizePreemption": ["example.com/all"]},
    }
    made = cluster.api.post("/api/v1/nodes?dryRun=All", node)
    assert "podPreemptionPolicy" not in made["spec"]
    mount = {"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}
    container = {"name": "main", "image": "x", "volumeMounts": [mount]}
    pod = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}]},
    }
    created = cluster.api.post("/api/v1/namespaces/default/pods?dryRun=All", pod)
    mounts = created["spec"]["containers"][0]["volumeMounts"]
    assert next(one for one in mounts if one["name"] == "v") == {"name": "v", "mountPath": "/v"}
