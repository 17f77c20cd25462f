"""What a plan says of landings that kube-scheduler allows and that may not serve."""

import pytest

from rebalancer.testing.snapshots import node, workload
from tests.unit.planner.conftest import plan_of

ARCH = "kubernetes.io/arch"
LEFT_OUT = "node.kubernetes.io/exclude-from-external-load-balancers"


def service(policy, kind="LoadBalancer", app="web"):
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": "front", "namespace": "default"},
        "spec": {"type": kind, "externalTrafficPolicy": policy, "selector": {"app": app}},
    }


@pytest.mark.parametrize(
    ("labels", "others", "said"),
    [
        ({}, [], ""),
        ({ARCH: "arm64"}, [], "n1, of another architecture than its Ready pods"),
        ({ARCH: "amd64"}, [], ""),
        ({LEFT_OUT: ""}, [service("Local")], "n1, which external load balancers leave out"),
        ({LEFT_OUT: ""}, [service("Cluster")], ""),
        ({LEFT_OUT: ""}, [service("Local", kind="NodePort")], ""),
        ({LEFT_OUT: ""}, [service("Local", app="other")], ""),
        ({}, [service("Local")], ""),
    ],
)
def test_a_landing_that_may_not_serve_is_named_and_not_refused(labels, others, said):
    nodes = [node("n0", labels={ARCH: "amd64"}), node("n1", labels=labels)]
    plan = plan_of([*nodes, *others, *workload("web", ["n0", "n0"])], strategies=["duplicates"])
    assert len(plan.moves) == 1
    lines = [line for line in plan.warnings if line.startswith("Deployment/default/web may land")]
    assert [said in line for line in lines] == ([True] if said else [])
