"""ResourceQuotas: a replacement counts beside its victim, so that there must be room for both."""

import pytest

from rebalancer.planner.quota import QuotaClaims
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.unit.planner.conftest import draft_of


def quota(hard, used, **spec):
    return {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used},
    }


def ledger_of(*quotas, spec=None, namespace="default"):
    """The ledger of a cluster with one pod of 100m, and the class of that pod."""
    pods = workload("web", ["n0"], spec=spec, namespace=namespace)
    snapshot = snapshot_of([node("n0"), *pods, *quotas])
    return QuotaClaims(snapshot), int(snapshot.pods.cls[0])


@pytest.mark.parametrize(
    ("hard", "used", "lack"),
    [
        ({"pods": "5"}, {"pods": "4"}, None),
        (
            {"pods": "5"},
            {"pods": "5"},
            "has 0 of pods left, a replacement beside the victim needs 1",
        ),
        ({"count/pods": "1"}, {"count/pods": "1"}, "has 0 of count/pods left"),
        ({"requests.cpu": "1"}, {"requests.cpu": "900m"}, None),
        ({"requests.cpu": "1"}, {"requests.cpu": "901m"}, "has 99 of requests.cpu left"),
        ({"cpu": "1"}, {"cpu": "1"}, "has 0 of cpu left"),
        # The pod has no limit, and the quota lets in none without.
        (
            {"limits.cpu": "1"},
            {"limits.cpu": "0"},
            "lets in no pod whose containers do not all say",
        ),
        # What no pod asks for.
        ({"services": "1"}, {"services": "1"}, None),
        # A quota that was lowered below what is used: only what the pod takes counts.
        ({"services": "1"}, {"services": "2"}, None),
        ({"count/deployments.apps": "1"}, {"count/deployments.apps": "2"}, None),
        ({"requests.nvidia.com/gpu": "0"}, {"requests.nvidia.com/gpu": "1"}, None),
        ({"requests.ephemeral-storage": "1"}, {"requests.ephemeral-storage": "2"}, None),
        ({"requests.cpu": "1"}, {"requests.cpu": "2"}, "has -1000 of requests.cpu left"),
    ],
)
def test_what_a_replacement_lacks(hard, used, lack):
    ledger, web = ledger_of(quota(hard, used))
    said = ledger.lacks(web)
    assert (
        said is None if lack is None else (said or "").startswith(f"ResourceQuota default/q {lack}")
    )


@pytest.mark.parametrize(
    ("name", "resources", "lets_in"),
    [
        ("requests.cpu", {"requests": {"cpu": "0"}}, True),
        ("cpu", {"limits": {"cpu": "1"}}, True),
        ("requests.cpu", {"requests": {"memory": "1Mi"}}, False),
        ("memory", {}, False),
        ("limits.memory", {"requests": {"memory": "1Mi"}}, False),
        ("limits.memory", {"limits": {"memory": "1Mi"}}, True),
        # Only cpu and memory must be said.
        ("requests.ephemeral-storage", {}, True),
    ],
)
def test_a_quota_lets_in_no_pod_that_does_not_say_what_it_counts(name, resources, lets_in):
    """The API server: failed quota: q: must specify requests.cpu for: c."""
    spec = {"containers": [{"name": "c", "image": "x", "resources": resources}]}
    ledger, web = ledger_of(quota({name: "10Gi"}, {name: "0"}), spec=spec)
    said = ledger.lacks(web)
    assert (said is None) is lets_in
    assert lets_in or f"say their {name}: c does not" in (said or "")


def test_of_a_limit_the_request_is_the_least_that_a_replacement_needs():
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}
    spec = {"containers": [{"name": "c", "image": "x", "resources": resources}]}
    ledger, web = ledger_of(quota({"limits.cpu": "1"}, {"limits.cpu": "950m"}), spec=spec)
    assert "has 50 of limits.cpu left" in (ledger.lacks(web) or "")


def test_moves_in_flight_use_it_up_until_their_victims_are_gone():
    draft = draft_of([node("n0"), *workload("web", ["n0"]), quota({"pods": "6"}, {"pods": "4"})])
    allowance, web = draft.allowance, int(draft.snapshot.pods.cls[0])
    assert allowance.lacks_for([web] * 2) is None
    assert "has 0 of pods left" in (allowance.lacks_for([web] * 3) or "")
    for _ in range(2):
        assert allowance.lacks(web) is None
        allowance.spend(web, 0, "duplicates")
    assert "has 0 of pods left" in (allowance.lacks(web) or "")
    allowance.next_wave()
    assert allowance.lacks(web) is None


def test_a_quota_holds_in_its_own_namespace():
    ledger, web = ledger_of(quota({"pods": "1"}, {"pods": "1"}), namespace="shop")
    assert ledger.lacks(web) is None


def in_class(operator, *values):
    scope = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
    return {"scopeSelector": {"matchExpressions": [scope]}}


@pytest.mark.parametrize(
    ("scopes", "applies"),
    [
        ({}, True),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["NotTerminating"]}, True),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "Terminating", "operator": "Exists"}]
                }
            },
            False,
        ),
        (in_class("In", "gold"), True),
        (in_class("In", "silver"), False),
        (in_class("NotIn", "gold"), False),
        (in_class("NotIn", "silver"), True),
        (in_class("Exists"), True),
        (in_class("DoesNotExist"), False),
    ],
)
def test_its_scopes_say_which_pods_it_counts(scopes, applies):
    full = quota({"pods": "1"}, {"pods": "1"}, **scopes)
    ledger, web = ledger_of(full, spec={"priorityClassName": "gold"})
    assert (ledger.lacks(web) is not None) == applies
