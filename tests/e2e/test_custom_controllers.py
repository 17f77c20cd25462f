"""Pods of controllers that Kubernetes does not bring: what nothing recreates stays."""

from tests.controlplane import objects, operations, wait_until
from tests.controlplane.api import ApiError
from tests.e2e.product import Product

GROUP = "argoproj.example"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"workflows.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": "Workflow", "plural": "workflows", "singular": "workflow"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


def is_served(api, path):
    try:
        return api.find(path) is not None
    except ApiError as error:  # its storage is being made
        if error.status == 429:
            return False
        raise


def _steps(cluster, count):
    """Make pods of one Workflow, which nothing would recreate."""
    path = f"/apis/{GROUP}/v1/namespaces/default/workflows"
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    if cluster.api.find(f"{definitions}/workflows.{GROUP}") is None:
        cluster.api.post(definitions, DEFINITION)
    wait_until(lambda: is_served(cluster.api, path), 30, "the Workflows are served")
    kind = {"apiVersion": f"{GROUP}/v1", "kind": "Workflow"}
    made = cluster.api.post(path, {**kind, "metadata": {"generateName": "build-"}})
    owner = {**kind, "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
    for index in range(count):
        pod = objects.pod(f"step-{index}", labels={"app": "build"}, restartPolicy="Never")
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        cluster.apply([pod])
    operations.wait_pods_ready(cluster.api, count, selector="app=build")


def test_running_steps_of_a_workflow_are_not_evicted(cluster, tmp_path):
    cluster.apply([objects.node("node-0")])
    operations.wait_nodes_ready(cluster.api, 1)
    _steps(cluster, 2)
    cluster.apply([objects.node("node-1")])
    operations.wait_nodes_ready(cluster.api, 2)
    done = Product(cluster, tmp_path).run()
    assert done.code == 0, done.err
    assert done.evicted == []
    stays = {(skip["strategy"], skip["code"]) for skip in done.report["skipped"]}
    assert ("duplicates", "NotRecreated") in stays
    names = {pod["metadata"]["name"] for pod in operations.pods(cluster.api, selector="app=build")}
    assert names == {"step-0", "step-1"}
