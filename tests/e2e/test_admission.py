"""Pods into which admission writes what no template says, as VPA does: their replacements get it again."""

from typing import Any

import pytest

from tests.controlplane import ControlPlane, objects, operations, wait_until
from tests.e2e.product import Product

GROUP = "/apis/admissionregistration.k8s.io/v1"
WEB = {"app": "web"}
ENLARGE = """[JSONPatch{op: "replace", path: "/spec/containers/0/resources/requests/cpu", value: "1500m"}]"""
POLICY: dict[str, Any] = {
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ]
    },
    "matchConditions": [
        {"name": "web", "expression": "object.metadata.?labels['app'].orValue('') == 'web'"}
    ],
    "reinvocationPolicy": "Never",
    "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": ENLARGE}}],
}


@pytest.fixture
def enlarging(cluster):
    """The API server makes each pod of web ask for 1.5 processors when it is created."""
    kinds = {"policies": POLICY, "policybindings": {"policyName": "enlarge"}}
    for kind, spec in kinds.items():
        name = {"metadata": {"name": "enlarge"}}
        cluster.api.post(f"{GROUP}/mutatingadmission{kind}", {**name, "spec": spec})
    yield cluster
    for kind in kinds:
        cluster.api.delete(f"{GROUP}/mutatingadmission{kind}/enlarge")


def _is_in_force(cluster: ControlPlane) -> bool:
    """Ask by a pod that is not stored, since the API server takes a moment to load a policy."""
    tried = objects.pod("tried", labels=WEB)
    path = "/api/v1/namespaces/default/pods"
    made = cluster.api.post(f"{path}?dryRun=All", tried)
    return made["spec"]["containers"][0]["resources"].get("requests", {}).get("cpu") == "1500m"


def _list_requests(cluster: ControlPlane) -> dict[str, set[str]]:
    """Return node -> what its pods of web ask for."""
    asked: dict[str, set[str]] = {}
    for pod in operations.pods(cluster.api, selector="app=web"):
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        asked.setdefault(pod["spec"]["nodeName"], set()).add(requests["cpu"])
    return asked


def test_no_pod_is_moved_to_where_only_its_template_fits(enlarging, tmp_path):
    enlarging.apply([objects.node(n, zone=n) for n in ("a", "b")])
    operations.wait_nodes_ready(enlarging.api, 2)
    wait_until(lambda: _is_in_force(enlarging), 30, "the policy is in force")
    spec = {"topologySpreadConstraints": [objects.spread(WEB, hard=False)]}
    enlarging.apply([objects.deployment("web", 4, labels=WEB, **spec)])
    operations.wait_pods_ready(enlarging.api, 4, 60, selector="app=web")
    enlarging.apply([objects.node("small", zone="c", cpu="1")])
    operations.wait_nodes_ready(enlarging.api, 3)
    done = Product(enlarging, tmp_path).run()
    assert (done.code, done.evicted) == (0, []), done.err
    (why,) = done.report["before"]["topology-spread"]["unsatisfiable"]
    assert why.endswith("no node of c takes another of its pods")
    # What would have become of it.
    name = operations.pods(enlarging.api, selector="app=web")[0]["metadata"]["name"]
    operations.evict(enlarging.api, "default", name)
    operations.wait_pods_ready(enlarging.api, 4, 60, selector="app=web")
    assert _list_requests(enlarging) == {"a": {"1500m"}, "b": {"1500m"}}
