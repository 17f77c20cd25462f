"""Stuck pods on three nodes: the node is at fault only where siblings elsewhere are Ready."""

from dataclasses import replace

import pytest

from rebalancer.plan.plan import Cause, Code
from rebalancer.planner.plan import plan as planned
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.registry import Registry
from rebalancer.testing.contract import check_strategy
from rebalancer.testing.snapshots import disruption_budget, node, number_pods, snapshot_of, workload
from rebalancer.wire.times import rfc3339
from strategies.stuck import StuckParams
from tests.strategies.pod_states import condition, running, waiting, with_state
from tests.unit.planner.conftest import plan_of, problem_of

NAME = "stuck"
CRASHES = waiting("CrashLoopBackOff", 7)


def nodes(**sizes):
    return [node(name, cpu=sizes.get(name, "4")) for name in ("n1", "n2", "n3")]


def params(**given):
    return StuckParams.model_validate(given)


def plan(objects, settings=None, **given):
    return plan_of(objects, settings=settings, strategies=[NAME], params={NAME: params(**given)})


def web(on, *stuck, kind="Deployment", **state):
    """A workload with pods on these nodes, those of these numbers stuck."""
    objects = workload("web", on, kind=kind)
    if kind == "StatefulSet":
        objects = number_pods(objects)
    state = {"main": CRASHES, "ready": False, **state}
    for number in stuck:
        objects = with_state(objects, f"web-{number}", **state)
    return objects


def test_a_stuck_pod_goes_to_another_node():
    # A filler on the others draws the replacement away from none: the stuck pod's own node is the fullest.
    objects = [*nodes(), *workload("fill", ["n1", "n1"], cpu="1"), *web(["n1", "n2"], 0)]
    (move,) = plan(objects).moves
    assert (move.pod, move.node, move.cause) == ("web-0", "n1", Cause.STATE)
    assert move.landings[0].node == "n3"
    assert plan(objects).lower_bound == 1
    assert move.reason == (
        "default/web-0 is not Ready on n1 for 1h (CrashLoopBackOff), while its siblings elsewhere are"
    )


def test_it_stays_where_the_scheduler_would_put_it_back():
    objects = [
        *nodes(),
        *workload("here", ["n2"], cpu="3"),
        *workload("there", ["n3"], cpu="3"),
        *web(["n1", "n2"], 0),
    ]
    result = plan(objects)
    assert result.moves == ()
    assert {skip.code for skip in result.skips} <= {Code.COMES_BACK, Code.NO_GAIN, Code.UNSURE}
    assert [skip.pod for skip in result.skips] == ["web-0"]


def test_a_bad_node_is_no_better_than_another():
    # n1 and n2 are both bad for web; n2 is empty and draws the replacement.
    objects = [
        *nodes(),
        *workload("fill", ["n1", "n3"], cpu="2"),
        *web(["n1", "n2", "n3", "n3"], 0, 1),
    ]
    assert plan(objects).moves == ()


@pytest.mark.parametrize(
    ("on", "stuck", "at_fault"),
    [
        (["n1", "n2"], [0], True),
        (["n1", "n2"], [0, 1], False),  # no sibling is Ready: the program is at fault
        (["n1", "n1", "n2"], [0], False),  # one is Ready on the same node
        (["n1", "n2", "n3"], [0, 1], False),  # stuck on more nodes than Ready on
        (["n1", "n1", "n2"], [0, 1], True),
        (["n1", "n2", "n3"], [0], True),
    ],
)
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_whose_fault_it_is(on, stuck, at_fault, kind):
    # Each pod of a StatefulSet has labels of its own, and is a sibling anyway.
    objects = [*nodes(), *web(on, *stuck, kind=kind)]
    assert bool(plan(objects).before[NAME].violated) is at_fault


def test_pods_of_another_revision_of_a_statefulset_are_no_siblings():
    objects = web(["n1", "n2"], 0, kind="StatefulSet")
    other = next(item for item in objects if item["metadata"]["name"] == "web-1")
    other["metadata"]["labels"]["controller-revision-hash"] = "web-2"
    assert plan([*nodes(), *objects]).before[NAME].violated == 0


def test_a_stuck_pod_of_a_statefulset_avoids_the_bad_nodes_of_its_siblings():
    # n1 and n2 are both bad for web; n2 is emptier than n3.
    objects = [
        *nodes(),
        *workload("fill", ["n1", "n3"], cpu="2"),
        *web(["n1", "n2", "n3", "n3"], 0, 1, kind="StatefulSet"),
    ]
    assert plan(objects).moves == ()


@pytest.mark.parametrize(
    ("state", "given", "is_stuck"),
    [
        ({"hours": 1 / 12}, {}, False),  # 5 minutes
        ({"hours": 1 / 12}, {"after": "5m"}, True),
        ({"hours": None}, {}, True),  # a time that is not known counts from its creation
        ({"main": waiting("ImagePullBackOff"), "phase": "Pending"}, {}, True),
        ({"main": waiting("ErrImagePull"), "phase": "Pending"}, {"reasons": ["Other"]}, False),
        (
            {"main": waiting("ErrImagePull"), "phase": "Pending"},
            {"reasons": ["ErrImagePull"]},
            True,
        ),
        ({"main": waiting("PodInitializing"), "init": CRASHES, "phase": "Pending"}, {}, True),
        ({"main": running(ready=False)}, {}, True),
        ({"main": running(ready=False)}, {"notReady": False}, False),
    ],
)
def test_which_pods_are_stuck(state, given, is_stuck):
    objects = [*nodes(), *web(["n1", "n2"], 0, **state)]
    assert bool(plan(objects, **given).before[NAME].violated) is is_stuck


def test_a_ready_pod_and_one_on_a_node_that_is_not_ready_are_not_stuck():
    objects = [node("n1", ready=False), node("n2"), node("n3"), *web(["n1", "n2"], 0)]
    assert plan(objects).before[NAME].violated == 0
    objects = with_state(
        workload("web", ["n1", "n2"]), "web-0", conditions=[condition("Ready", "True")]
    )
    assert plan([*nodes(), *objects]).before[NAME].violated == 0


def test_pods_of_another_template_are_no_siblings():
    objects = web(["n1", "n2"], 0)
    other = next(item for item in objects if item["metadata"]["name"] == "web-1")
    other["spec"] = {**other["spec"], "priority": 5}
    assert plan([*nodes(), *objects]).before[NAME].violated == 0


@pytest.mark.parametrize(
    ("budget", "goes"),
    [
        ({"healthy": 2, "desired": 2}, True),  # IfHealthyBudget: enough pods are Ready
        ({"healthy": 2, "desired": 3}, False),
        ({"healthy": 0, "desired": 0}, False),
        ({"healthy": 2, "desired": 3, "policy": "AlwaysAllow"}, True),
        ({"healthy": 2, "desired": 3, "policy": "IfHealthyBudget"}, False),
    ],
)
def test_a_budget_that_allows_no_disruption_lets_a_pod_go_that_is_not_ready(budget, goes):
    # pkg/registry/core/pod/storage/eviction.go: before disruptionsAllowed, the pod's own condition is looked at.
    pdb = disruption_budget("pdb", "web", allowed=0)
    pdb["spec"]["unhealthyPodEvictionPolicy"] = budget.get("policy")
    pdb["status"] |= {"currentHealthy": budget["healthy"], "desiredHealthy": budget["desired"]}
    fill = workload("fill", ["n1", "n1"], cpu="1")
    result = plan([*nodes(), *fill, *web(["n1", "n2"], 0), pdb])
    assert [move.pod for move in result.moves] == ["web-0"] * goes
    assert [skip.code for skip in result.skips] == [Code.PDB] * (not goes)


def test_two_budgets_keep_a_pod_that_is_not_ready():
    both = [disruption_budget(name, "web", allowed=1) for name in ("one", "two")]
    result = plan([*nodes(), *web(["n1", "n2"], 0), *both])
    assert [skip.code for skip in result.skips] == [Code.PDB_CONFLICT]


def test_pods_that_are_not_ready_take_nothing_of_what_a_budget_allows():
    pdb = disruption_budget("pdb", "web", allowed=1, healthy=6)
    crowd = web(["n1", "n1", "n2", "n2", "n2"], 0, 1)
    budgets = Budgets.model_validate({"perOwner": "100%", "perNode": "100%", "inFlight": "100%"})
    fill = workload("fill", ["n1", "n1"], cpu="1")
    result = plan([*nodes(), node("n4"), *fill, *crowd, pdb], settings=Settings(budgets=budgets))
    assert [(move.pod, move.wave) for move in result.moves] == [("web-0", 1), ("web-1", 1)]


def misplaced():
    """Two pods of a Deployment that needs nodes of a kind; the one on another is not Ready, and crashed 200 times."""
    term = {"matchExpressions": [{"key": "kind", "operator": "In", "values": ["good"]}]}
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    objects = workload("web", ["n1", "n2"], spec={"affinity": {"nodeAffinity": needed}})
    good = [node(name, labels={"kind": "good"}) for name in ("n2", "n3")]
    crashes = waiting("CrashLoopBackOff", 200)
    return [node("n1"), *good, *with_state(objects, "web-0", main=crashes, ready=False)]


def test_a_pod_that_a_hard_rule_moves_as_well_goes_for_its_state():
    # It is looked at again before its eviction: one that is not Ready goes for its state only.
    (move,) = plan_of(misplaced(), strategies=["node-affinity", "restarts"]).moves
    assert (move.strategy, move.cause) == ("node-affinity", Cause.STATE)


def test_what_only_observes_lets_no_pod_go_that_is_not_ready():
    problem = problem_of(misplaced(), strategies=["node-affinity", "restarts"])
    enforced, observed = problem.contributions
    result = planned(
        replace(problem, contributions=[enforced, replace(observed, observed=True)]), Settings()
    ).plan
    assert [move.observed for move in result.moves] == [True]


def test_contract():
    crowded = [*nodes(), *web(["n1", "n1", "n2", "n3"], 0, 1)]
    check_strategy(Registry.installed().strategy(NAME), params(), [snapshot_of(crowded)])


def test_pods_of_another_namespace_that_name_the_same_statefulset_are_no_siblings():
    objects = web(["n1", "n2"], 0, kind="StatefulSet")
    other = next(item for item in objects if item["metadata"]["name"] == "web-1")
    other["metadata"]["namespace"] = "intruder"
    assert plan([*nodes(), *objects]).before[NAME].violated == 0


@pytest.mark.parametrize("age", [301, 599, 601])
def test_a_pod_that_is_stuck_early_does_not_wait_for_itself(age):
    objects = [*nodes(), *workload("fill", ["n1", "n1"], cpu="1"), *web(["n1", "n2"], 0)]
    for each in objects:
        if each["metadata"]["name"] == "web-0":
            each["metadata"]["creationTimestamp"] = rfc3339(snapshot_of(objects).captured_at - age)
            for one in each["status"]["conditions"]:
                one["lastTransitionTime"] = each["metadata"]["creationTimestamp"]
    one_at_once = Settings(budgets=Budgets(per_owner=Limit.parse(1)))
    assert [m.pod for m in plan(objects, one_at_once, after="30s").moves] == ["web-0"]


def test_of_two_that_are_stuck_early_none_goes_beyond_the_budget():
    on = ["n1", "n1", "n2", "n3"]
    objects = [*nodes(), *workload("fill", ["n1", "n1"], cpu="1"), *web(on, 0, 1)]
    for each in objects:
        if each["metadata"]["name"] in ("web-0", "web-1"):
            each["metadata"]["creationTimestamp"] = rfc3339(snapshot_of(objects).captured_at - 300)
            for one in each["status"]["conditions"]:
                one["lastTransitionTime"] = each["metadata"]["creationTimestamp"]
    assert (
        plan(objects, Settings(budgets=Budgets(per_owner=Limit.parse(1))), after="30s").moves == ()
    )
    both = plan(objects, Settings(budgets=Budgets(per_owner=Limit.parse(2))), after="30s").moves
    assert [move.pod for move in both][:1] == ["web-0"]
