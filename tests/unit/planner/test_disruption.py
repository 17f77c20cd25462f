"""What PodDisruptionBudgets allow, class by class."""

import pytest

from rebalancer.plan.plan import Code
from rebalancer.testing.snapshots import node, workload
from tests.unit.planner.conftest import problem_of, said


def budget(name, app, allowed, healthy=2, desired=1):
    return {
        "kind": "PodDisruptionBudget",
        "apiVersion": "policy/v1",
        "metadata": {"name": name, "namespace": "default", "uid": name, "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": app}}, "minAvailable": desired},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": 2,
        },
    }


def problem(*budgets):
    apps = [*workload("web", ["n1", "n2"]), *workload("db", ["n1", "n2"])]
    made = problem_of([node("n1"), node("n2"), *apps, *budgets], strategies=[])
    pods = made.snapshot.pods
    return made, int(pods.cls[pods.name.index("web-0")]), int(pods.cls[pods.name.index("db-0")])


def refs(made, name):
    """The budgets that the eviction of a pod is counted by."""
    return made.disruptions.refs(made.snapshot.pods.name.index(name))


@pytest.mark.parametrize("allowed", [1, 5])
def test_a_budget_that_allows_any_forbids_none(allowed):
    made, web, _ = problem(budget("one", "web", allowed))
    assert made.disruptions.forbidden(web) is None
    assert refs(made, "web-0") == ("default/one",)
    assert refs(made, "db-0") == ()
    assert made.movable.all()


@pytest.mark.parametrize(("healthy", "counted"), [(1, ()), (0, ("default/one",))])
def test_an_unready_pod_needs_no_budget_that_enough_pods_are_healthy_for(healthy, counted):
    web = workload("web", ["n1", "n2"])
    web[-1]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    one = budget("one", "web", 0, healthy=healthy)
    made = problem_of([node("n1"), node("n2"), *web, one], strategies=[])
    assert refs(made, "web-0") == ("default/one",)
    assert refs(made, "web-1") == counted


def test_a_budget_that_allows_none_keeps_its_pods_and_no_others():
    made, web, db = problem(budget("one", "web", 0, healthy=1))
    assert said(made.disruptions.forbidden(web), made.snapshot) == (
        Code.PDB,
        "default/one allows no disruption (1 healthy, 1 desired)",
    )
    assert made.disruptions.forbidden(db) is None
    assert (made.movable == (made.snapshot.pods.cls == db)).all()


def test_two_budgets_forbid_whatever_they_allow():
    made, web, _ = problem(budget("one", "web", 1), budget("two", "web", 1))
    code, text = said(made.disruptions.forbidden(web), made.snapshot)
    assert code is Code.PDB_CONFLICT
    assert text == "default/one and default/two both select it; the API refuses that"
    assert made.disruptions.forbidden_pods().sum() == 2


@pytest.mark.parametrize("desired", [1, 2])
def test_a_budget_whose_status_is_of_an_older_generation_says_so(desired):
    one = budget("one", "web", 1, desired=desired)
    one["metadata"]["generation"] = 3
    made, web, _ = problem(one)
    assert said(made.disruptions.forbidden(web), made.snapshot) == (
        Code.PDB,
        (
            "default/one allows no disruption until its controller has seen it: "
            "its status is of generation 1, its spec of 3"
        ),
    )
    # What it would allow for good is not known either.
    assert made.disruptions.unevictable() == frozenset()
