"""PodGroups of coscheduling, Volcano and KAI, as custom resources on a real API server: how many of its pods a gang needs."""

import pytest

from rebalancer.kube.access import DRAIN_RULES, list_pod_groups
from rebalancer.snapshot.load import load_snapshot
from rebalancer.wire.kinds import (
    COSCHEDULING_GROUPS,
    KAI_GROUPS,
    OLDER_COSCHEDULING_GROUPS,
    VOLCANO_GROUPS,
)
from tests.controlplane import objects, operations, wait_until
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.e2e.test_custom_controllers import is_served
from tests.e2e.test_gangs import gang

RULES = (*RUN_RULES, *DRAIN_RULES)
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS = {
    COSCHEDULING_GROUPS: ("labels", "scheduling.x-k8s.io/pod-group"),
    OLDER_COSCHEDULING_GROUPS: ("annotations", "gang.scheduling.koordinator.sh/name"),
    VOLCANO_GROUPS: ("annotations", "scheduling.k8s.io/group-name"),
    KAI_GROUPS: ("annotations", "pod-group-name"),
}


def definition(resource):
    """The kind PodGroup of a project; what its fields mean is only its controllers' concern."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": resource.version, "served": True, "storage": True}
    # The groups of Kubernetes are protected: such a definition names the review of its API.
    review = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
    meta = {
        "name": f"podgroups.{resource.group}",
        "annotations": {"api-approved.kubernetes.io": review},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta,
        "spec": {
            "group": resource.group,
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "scope": "Namespaced",
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def serve(cluster, resource):
    cluster.api.post(DEFINITIONS, definition(resource))
    path = resource.path("default")
    wait_until(lambda: is_served(cluster.api, path), 30, "PodGroups are served")
    group = {"apiVersion": resource.api_version, "kind": "PodGroup"}
    cluster.api.post(path, {**group, "metadata": {"name": "train"}, "spec": {"minMember": 2}})


def uids(cluster):
    return {pod["metadata"]["uid"] for pod in operations.pods(cluster.api, selector="app=train")}


@pytest.mark.parametrize(
    "resource",
    [
        pytest.param(resource, marks=[pytest.mark.long] if number else [])
        for number, resource in enumerate(KINDS)
    ],
    ids=lambda resource: resource.group,
)
def test_of_a_gang_that_needs_fewer_pods_a_drain_takes_those_that_have_to_leave(
    cluster, resource, tmp_path
):
    serve(cluster, resource)
    cluster.apply([objects.node(f"node-{number}", cpu="4") for number in range(4)])
    operations.wait_nodes_ready(cluster.api, 4)
    cluster.apply([gang("train", 3, KINDS[resource], cpu="2500m")])
    operations.wait_pods_ready(cluster.api, 3, 60, selector="app=train")
    before = uids(cluster)

    def drained(kubeconfig):
        node = operations.pods(cluster.api, selector="app=train")[0]["spec"]["nodeName"]
        ran = rebalancer(
            "drain", node, f"--kubeconfig={kubeconfig}", "--output=json", "--timeout=60s"
        )
        assert ran.code == 0, ran.err + ran.out
        cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": False}})
        operations.wait_pods_ready(cluster.api, 3, 60, selector="app=train")

    drained(grant(cluster, (*RULES, list_pod_groups(resource))))
    assert len(before & uids(cluster)) == 2

    # A file tells the same, also without the names.
    key, path = tmp_path / "key", tmp_path / "cluster.zip"
    key.write_text("0123456789abcdef")
    kubeconfig = grant(cluster, (*RULES, list_pod_groups(resource)))
    kept = rebalancer(
        "snapshot", f"--output={path}", f"--redact-key-file={key}", f"--kubeconfig={kubeconfig}"
    )
    assert kept.code == 0, kept.err
    assert list(load_snapshot(path).gang_least.values()) == [2]

    # Without the right all of them go, and runs say so.
    before, kubeconfig = uids(cluster), grant(cluster, RULES)
    drained(kubeconfig)
    assert before.isdisjoint(uids(cluster))
    planned = rebalancer("plan", f"--kubeconfig={kubeconfig}", "--output=json")
    assert f"gangs of {resource.group} move as a whole or not at all" in planned.out
