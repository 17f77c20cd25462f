"""What the chart's admission policies leave of the rights of the accounts: the fields that runs and drains write, and no others."""

from functools import partial

import pytest

from rebalancer.kube.evict import RESTARTED_AT
from rebalancer.wire.pods import DELETION_COST, OUR_DELETION_COST
from tests.chart.helm import compared_fields, one, render
from tests.controlplane import ApiError, objects, operations, wait_until
from tests.e2e.installed import NAMESPACE, Installed
from tests.e2e.product import PATIENCE, rebalancer

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
RELEASE = "rebalancer-kube-rebalancer"
DRAINER = f"{RELEASE}-drain"
NODE = "/api/v1/nodes/a"
WEB = "/apis/apps/v1/namespaces/default/deployments/web"
POOL = {"nodeSelector": {"pool": "web"}}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "0" * 8}
TAINT = {"key": "rebalancer/mark", "value": "steer", "effect": "PreferNoSchedule"}
REFUSED = {
    NODE: [
        {"metadata": {"labels": {"pool": "other"}}},
        {"metadata": {"annotations": {"example.com/note": "x"}}},
        {"metadata": {"annotations": {"kwok.x-k8s.io/node": None}}},
        {"metadata": {"ownerReferences": [OWNER]}},
        {"metadata": {"finalizers": ["a.test/b"]}},
        {"spec": {"taints": [{"key": "a.test/b", "effect": "NoExecute"}]}},
        {"spec": {"taints": [TAINT | {"effect": "NoExecute"}]}},
        {"spec": {"taints": []}},
    ],
    f"{NODE}/status": [
        {"status": {"capacity": {"cpu": "1"}}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
    ],
    WEB: [
        {"spec": {"replicas": 0}},
        {"spec": {"paused": True}},
        {"metadata": {"annotations": {RESTARTED_AT: "x"}}},
        {"spec": {"template": {"metadata": {"annotations": {"a.test/b": "x"}}}}},
        {"spec": {"template": {"metadata": {"labels": {"a.test/b": "x"}}}}},
        {"spec": {"template": {"spec": {"priorityClassName": "system-node-critical"}}}},
    ],
}
OF_PODS = [
    {"metadata": {"labels": {"app": "other"}}},
    {"metadata": {"annotations": {"a.test/b": "x"}}},
    {"metadata": {"ownerReferences": [OWNER]}},
    {"metadata": {"finalizers": ["a.test/b"]}},
    {"spec": {"activeDeadlineSeconds": 1}},
    {"spec": {"containers": [{"name": "main", "image": "other:1"}]}},
    [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
]


def refused(client, path, patch):
    with pytest.raises(ApiError) as raised:
        client.patch(path, patch, "json" if isinstance(patch, list) else "strategic")
    said = str(raised.value)
    assert raised.value.status in (403, 422), said
    assert "may change" in said, (path, patch, said)


def test_accounts_write_the_fields_of_their_features_and_no_others(cluster, tmp_path):
    theirs = [{"key": "theirs", "effect": "PreferNoSchedule"}]
    cluster.apply(
        [objects.node("a", labels={"pool": "web"}, taints=theirs), objects.node("b", taints=theirs)]
    )
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([objects.deployment("web", 1, labels={"app": "web"}, **POOL)])
    operations.wait_pods_ready(cluster.api, 1, 60, selector="app=web")
    rights = {"admissionPolicy": True, "marks": True, "deletionCosts": True}
    installed = Installed(
        cluster,
        tmp_path,
        rbac=rights,
        drain={"enabled": True},
        policy={"method": {"singleReplicas": "restart"}, "nodeConditions": True},
        strategies={"node-affinity": {}},
    )
    client = cluster.client(cluster.token_for_service_account(NAMESPACE, installed.name))
    (pod,) = operations.pods(cluster.api, selector="app=web")
    of_pod = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
    asked = {**REFUSED, of_pod: OF_PODS}

    # The policies are in force a moment after they were made, each by itself.
    def in_force(path):
        try:
            client.patch(f"{path}?dryRun=All", asked[path][0])
        except ApiError as error:
            return "may change" in str(error)
        return False

    for path, patches in asked.items():
        wait_until(partial(in_force, path), PATIENCE, f"the policy of {path} in force")
        for patch in patches:
            refused(client, path, patch)

    for policy in cluster.api.list_all(POLICIES):
        assert "expressionWarnings" not in policy["status"].get("typeChecking", {}), policy

    costs = dict.fromkeys((DELETION_COST, OUR_DELETION_COST), "7")
    client.patch(of_pod, {"metadata": {"annotations": costs}})
    node = {
        "metadata": {"annotations": {"rebalancer/leave": "now"}},
        "spec": {"unschedulable": True},
    }
    client.patch(NODE, node)
    change_taints(cluster, client, lambda taints: [*taints, TAINT])
    open_ = {
        "metadata": {"annotations": {"rebalancer/leave": None}},
        "spec": {"unschedulable": None},
    }
    client.patch(NODE, open_)
    change_taints(cluster, client, lambda taints: [t for t in taints if t["key"] != TAINT["key"]])

    # A run of the release restarts, and a drain with its own account closes a node and says so.
    for name, pool in (("a", None), ("b", "web")):
        cluster.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"pool": pool}}})
    ran = installed.run()
    assert ran.code == 0, ran.err
    assert [move["outcome"] for move in ran.report["moves"]] == ["restarted"]
    token = cluster.token_for_service_account(NAMESPACE, DRAINER)
    kubeconfig = cluster.write_kubeconfig("drainer", token)
    drained = rebalancer("drain", "a", "--node-conditions", f"--kubeconfig={kubeconfig}")
    assert drained.code == 0, drained.err
    seen = cluster.api.get(NODE)
    assert seen["spec"]["unschedulable"]
    assert "Drained" in {one["type"] for one in seen["status"]["conditions"]}
    drainer = cluster.client(token)
    for patch in REFUSED[NODE][:4]:
        refused(drainer, NODE, patch)
    # Others are not concerned.
    cluster.api.patch("/api/v1/nodes/b", {"metadata": {"labels": {"a.test/b": "c"}}})


def change_taints(cluster, client, change):
    """Change the taints of a node as the product does: of the version that was read, or again.

    Others change them, too: the node controller adds one to a cordoned node.
    """

    def attempt():
        seen = cluster.api.get(NODE)
        taints = change(seen["spec"].get("taints", []))
        version = {"resourceVersion": seen["metadata"]["resourceVersion"]}
        try:
            client.patch(NODE, {"metadata": version, "spec": {"taints": taints}})
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        return True

    wait_until(attempt, PATIENCE, "the taints changed")


def test_the_policy_of_deployments_names_each_field_that_may_not_change(control_plane):
    """The fields that this version's server has; ``tests/chart`` says the same of nodes."""
    schema = control_plane.api.get("/openapi/v3/apis/apps/v1")["components"]["schemas"]
    policies = render({"rbac": {"admissionPolicy": True}}, "--kube-version=1.36.0")
    policy = one(policies, "ValidatingAdmissionPolicy", f"{NAMESPACE}-{RELEASE}-deployments")
    spec = set(schema["io.k8s.api.apps.v1.DeploymentSpec"]["properties"])
    assert compared_fields(policy, "spec") == spec - {"template"}
    template = set(schema["io.k8s.api.core.v1.PodTemplateSpec"]["properties"])
    assert compared_fields(policy, "spec.template") == template - {"metadata"}
