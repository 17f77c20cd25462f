"""Consolidation on clusters of two to five nodes: which nodes are emptied, and why the others are not."""

from functools import partial

import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import NodeCode
from rebalancer.planner.planning import Reviewed, make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.snapshot.marks import as_planned_on
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import (
    HOSTNAME,
    NOW,
    apart,
    disruption_budget,
    node,
    snapshot_of,
    spread,
    workload,
)

POLICY = "apiVersion: rebalancer/v1\nkind: Policy\nsteer: marks\n{more}\nstrategies:\n  consolidation: {options}\n{others}"
MARK = {
    "key": "rebalancer/empty",
    "effect": "PreferNoSchedule",
    "value": "empty.20280101T000000Z.r1",
}


def rules_of(options="{}", more="", others="", runs=None):
    text = POLICY.format(options=options, more=more, others=others)
    loaded = load_text(text.encode(), "test", Registry.installed())
    return RunRules(loaded, Registry.installed(), Scope(), runs=runs)


def planned(objects, *args, **kwargs):
    return make_plan(rules_of(*args, **kwargs), snapshot_of(objects), Timings(SystemClock())).plan


def code(plan, name):
    return plan.nodes[name].code


def left_by(plan):
    return sorted({move.node for move in plan.moves})


PAIR = [node("n0"), node("n1")]
BUSY = workload("busy", ["n0", "n0", "n0"], cpu="500m")
FEW = workload("few", ["n1", "n1"], cpu="250m")
sole = partial(workload, "sole", ["n0", "n1"])
GANG = {"pod-group-name": "g"}


def test_the_node_with_the_fewest_pods_is_emptied_and_the_pods_land_on_the_other():
    plan = planned([*PAIR, *BUSY, *FEW])
    assert {(move.node, move.landings[0].node) for move in plan.moves} == {("n1", "n0")}
    assert len(plan.moves) == 2
    assert plan.emptied == ("n1",)
    assert code(plan, "n1") is NodeCode.EMPTIED
    assert (
        plan.before["consolidation"].nodes.holding,
        plan.after["consolidation"].nodes.holding,
    ) == (2, 1)
    assert plan.before["consolidation"].nodes.needed == 1
    assert "n1 is being emptied" in plan.moves[0].reason


@pytest.mark.parametrize(
    ("more", "of", "why"),
    [
        pytest.param(sole(cpu="2"), NodeCode.NO_PLACE, "need at least 2 nodes", id="no room"),
        pytest.param(workload("pin", ["n1", "n1"], spec={"nodeSelector": {HOSTNAME: "n1"}}), NodeCode.NO_PLACE, "pin-0", id="node selector"),
        pytest.param(sole(spec={"volumes": [{"name": "d", "emptyDir": {}}]}), NodeCode.POD_STAYS, "localStorage", id="local data"),
        pytest.param(workload("one", ["n1"]), NodeCode.POD_STAYS, "singleReplica", id="single replica"),
        pytest.param(sole(annotations={"karpenter.sh/do-not-disrupt": "true"}), NodeCode.POD_STAYS, "doNotDisrupt", id="opted out"),
        pytest.param([*sole(annotations=GANG), disruption_budget("b", "sole", allowed=1)], NodeCode.POD_STAYS, "PodGroup g", id="gang and PDB"),
        pytest.param(workload("big", ["n0", "n1"], cpu="1500m", annotations=GANG), NodeCode.NO_PLACE, "need at least 2 nodes", id="gang without room"),
        pytest.param([*sole(), disruption_budget("b", "sole", allowed=0)], NodeCode.POD_STAYS, "allows no disruption", id="PDB"),
        pytest.param(workload("set", ["n0", "n1"], spec=apart("set", HOSTNAME)), NodeCode.NO_PLACE, "set-1", id="required anti-affinity"),
        pytest.param(workload("s", ["n0", "n1"], spec=spread("s", HOSTNAME, hard=True, minDomains=2)), NodeCode.NO_PLACE, "s-1", id="hard spread"),
    ],
)  # fmt: skip
def test_where_one_pod_cannot_leave_none_does(more, of, why):
    plan = planned([*PAIR, *BUSY, *FEW, *more])
    assert "n1" not in left_by(plan)
    assert code(plan, "n1") is of
    assert why in plan.nodes["n1"].message


@pytest.mark.parametrize(
    ("prices", "emptied", "notes"),
    [
        ("", ("n1",), []),
        ("prices: {label: price}", ("n0",), []),
        (
            "prices: {table: {m5.large: 0.1}, asOf: 2026-01-01}",
            (),
            [
                "prices.asOf is 2026-01-01, 379 days ago: look the prices up again",
                "prices says none of 2 nodes: n0, n1; what has pods is not emptied to save money",
            ],
        ),
    ],
)
def test_by_prices_the_more_expensive_node_is_emptied(prices, emptied, notes):
    pair = [node("n0", labels={"price": "0.4"}), node("n1", labels={"price": "0.1"})]
    plan = planned([*pair, *BUSY, *FEW], more=prices)
    assert plan.emptied == emptied
    assert [note for note in plan.warnings if note.startswith("prices")] == notes


def test_a_gang_leaves_as_a_whole_with_its_pods_on_other_nodes():
    plan = planned([*PAIR, *BUSY, *FEW, *workload("llm", ["n0", "n1"], annotations=GANG)])
    assert code(plan, "n1") is NodeCode.EMPTIED
    assert {move.node for move in plan.moves if move.of_gang} == {"n0", "n1"}
    assert {move.landings[0].node for move in plan.moves} == {"n0"}


def test_the_pods_of_all_nodes_that_are_emptied_have_room_together():
    # Each of n1 and n2 could be emptied alone; n0 has room for the pods of one.
    nodes = [node(f"n{i}") for i in range(3)]
    objects = [
        *nodes,
        *workload("a", ["n0"] * 2, cpu="1100m"),
        *workload("b", ["n1", "n2"], cpu="1500m"),
    ]
    plan = planned(objects)
    assert len(plan.emptied) == 1
    assert len(plan.moves) == 1
    assert plan.before["consolidation"].nodes.needed == 2


def test_what_another_policy_empties_gets_no_pod():
    # Each of two policies has a pool. Ours is the node of pool a; n1 of pool b is to be empty.
    other = {"pool": "b"}
    nodes = [node("n0", labels={"pool": "a"}), node("n1", taints=[MARK], labels=other)]
    web = workload("web", ["n0", "n0"])
    ours = "{select: {nodes: {pool: a}}}"
    plan = planned([*nodes, *web, *workload("db", ["n1", "n1"])], ours)
    assert (plan.moves, plan.emptied) == ((), ())
    assert "n1, which is to be empty, too" in plan.nodes["n0"].message
    # What moves for a rule lands as the scheduler sees that mark: on n2, though it is fuller.
    nodes.append(node("n2", labels=other))
    fuller = [*nodes, *web, *workload("db", ["n2"], cpu="2")]
    (move,) = planned(fuller, ours, others="  duplicates: {}").moves
    assert [landing.node for landing in move.landings] == ["n2"]


def test_a_second_strategy_that_would_empty_nodes_is_named():
    nodes = [node(f"n{i}", labels={"pool": "ab"[i // 2]}) for i in range(4)]
    twin = "  twin: {strategy: consolidation, select: {nodes: {pool: b}}}"
    objects = [*nodes, *BUSY, *FEW, *workload("db", ["n2"])]
    plan = planned(objects, "{select: {nodes: {pool: a}}}", others=twin)
    assert "n1" in plan.emptied
    assert {"n2", "n3"}.isdisjoint(plan.emptied)
    assert plan.warnings == (
        "twin: it empties no node, for consolidation does: only one strategy of a policy can",
    )
    assert planned([*PAIR, *BUSY, *FEW]).warnings == ()


@pytest.mark.parametrize(
    ("annotations", "left"), [({}, 2), ({"karpenter.sh/do-not-disrupt": "true"}, 0)]
)
def test_of_a_reviewed_plan_no_pod_leaves_a_node_that_cannot_be_emptied_any_more(annotations, left):
    seen = planned([*PAIR, *BUSY, *FEW])
    assert len(seen.moves) == 2
    pinned = workload("more", ["n0", "n1"], cpu="100m", annotations=annotations)
    loaded = load_text(
        POLICY.format(options="{}", more="", others="").encode(), "test", Registry.installed()
    )
    rules = RunRules(loaded, Registry.installed(), Scope())
    snapshot = snapshot_of([*PAIR, *BUSY, *FEW, *pinned])
    plan = make_plan(rules, snapshot, Timings(SystemClock()), reviewed=Reviewed(seen.moves))
    assert len(plan.left) == left
    assert plan.plan.emptied == (("n1",) if left else ())


def test_no_more_nodes_are_needed_than_hold_pods():
    # The kubelet has reserved more since: the pods that run would not fit there any more.
    plan = planned([node("n0", cpu="1"), node("n1", cpu="1"), *workload("a", ["n0"] * 3, cpu="1")])
    count = plan.before["consolidation"].nodes
    assert (count.holding, count.needed) == (1, 1)


def test_no_pod_lands_on_a_node_that_is_to_be_empty():
    nodes = [node(f"n{i}") for i in range(5)]
    plan = planned(
        [*nodes, *workload("web", [f"n{i}" for i in range(5)] * 2, cpu="300m")],
        more="budgets: {perRun: 100%}",
    )
    assert len(plan.emptied) == 4
    assert {landing.node for move in plan.moves for landing in move.landings}.isdisjoint(
        plan.emptied
    )


def daemon(*on):
    objects = [one for one in workload("agent", on, kind="StatefulSet") if one["kind"] == "Pod"]
    for pod in objects:
        of = {
            "kind": "DaemonSet",
            "apiVersion": "apps/v1",
            "name": "agent",
            "uid": "ds",
            "controller": True,
        }
        pod["metadata"]["ownerReferences"] = [of]
    return objects


def test_pods_of_daemon_sets_do_not_count():
    plan = planned([*PAIR, *BUSY, *daemon("n0", "n1")])
    assert plan.moves == ()
    assert plan.emptied == ("n1",)
    assert code(plan, "n1") is NodeCode.EMPTY
    assert plan.before["consolidation"].nodes.holding == 1


def test_on_a_cluster_with_empty_nodes_that_are_marked_there_is_nothing_to_do():
    plan = planned([node("n0"), node("n1", taints=[MARK]), *BUSY])
    assert plan.moves == ()
    assert plan.emptied == ("n1",)
    assert plan.stopped.startswith("Nothing to do")


def test_a_node_that_was_begun_is_finished_before_others_are_begun():
    nodes = [node("n0"), node("n1", taints=[MARK]), node("n2"), node("n3")]
    objects = [
        *nodes,
        *workload("big", ["n1"] * 6, cpu="100m"),
        *workload("small", ["n2", "n3"], cpu="100m"),
    ]
    plan = planned(objects)
    assert left_by(plan) == ["n1"]
    assert code(plan, "n2") is NodeCode.WAITS


def test_a_node_that_was_begun_and_cannot_be_emptied_any_more_loses_its_mark():
    objects = [node("n0"), node("n1", taints=[MARK]), *BUSY, *FEW, *workload("one", ["n1"])]
    plan = planned(objects)
    assert "n1" not in left_by(plan)
    assert "n1" not in plan.emptied
    assert code(plan, "n1") is NodeCode.POD_STAYS


def test_what_holds_a_pod_of_a_begun_node_for_a_while_is_waited_for():
    young = workload("young", ["n1", "n0"])
    for pod in young[-2:]:
        pod["metadata"]["creationTimestamp"] = pod["status"]["conditions"][0][
            "lastTransitionTime"
        ] = NOW
    objects = [node("n0"), node("n1", taints=[MARK]), *young]
    assert planned(objects).emptied == ("n1",)
    assert planned(objects).moves == ()


@pytest.mark.parametrize(
    ("run", "left", "emptied", "verdict"),
    [
        pytest.param("r1", ["n1"], ("n1",), NodeCode.WAITS, id="begun by this release"),
        pytest.param(None, ["n1"], ("n1",), NodeCode.WAITS, id="a dry run does not ask by whom"),
        pytest.param("r2", ["n2"], ("n2",), NodeCode.EMPTIED, id="begun by another release"),
    ],
)
def test_a_node_that_another_release_empties_is_left_to_it_and_takes_no_pods(
    run, left, emptied, verdict
):
    objects = [
        node("n0"),
        node("n1", taints=[MARK]),
        node("n2"),
        *BUSY,
        *workload("theirs", ["n1", "n1", "n1"], cpu="100m"),
        *workload("ours", ["n2", "n2"], cpu="100m"),
    ]
    plan = planned(objects, runs=None if run is None else {run, "passing"})
    assert (left_by(plan), plan.emptied) == (left, emptied)
    assert "n1" not in {landing.node for move in plan.moves for landing in move.landings}
    assert code(plan, "n2") is verdict
    if run == "r2":
        assert plan.nodes["n1"].message == "another release keeps it empty"


@pytest.mark.parametrize(
    ("held", "verdict", "text"),
    [
        ({"rebalancer/evict": "false"}, NodeCode.POD_STAYS, "rebalancer/evict"),
        ({}, NodeCode.NOT_ELIGIBLE, "another release has marked it, since pods hold it"),
    ],
)
def test_a_node_that_another_release_marks_because_of_its_pods_is_not_closed(held, verdict, text):
    """Only n1 has room for the pods of n2; what holds n1 for the other release may be no reason for this one."""
    pins = {**MARK, "value": "pins.20280101T000000Z.r1"}
    objects = [
        node("n0", cpu="2"),
        node("n1", cpu="16", taints=[pins]),
        node("n2", cpu="1"),
        *workload("full", ["n0", "n0"], cpu="900m", annotations={"rebalancer/evict": "false"}),
        *workload("theirs", ["n1", "n1", "n1"], cpu="500m", annotations=held),
        *workload("ours", ["n2", "n0"], cpu="200m"),
    ]
    plan = planned(objects, runs={"r2", "passing"})
    assert (left_by(plan), plan.emptied) == (["n2"], ("n2",))
    assert {landing.node for move in plan.moves for landing in move.landings} == {"n1"}
    assert code(plan, "n1") is verdict
    assert text in plan.nodes["n1"].message


def test_marks_by_which_a_run_steers_are_its_own_between_its_waves_under_either_name():
    steering = {**MARK, "key": "rebalancer/mark", "value": "steer.20280101T000000Z.r1"}
    snapshot = snapshot_of([node("n0"), node("n1", taints=[steering])])
    for runs, seen in (({"nolease", "r1"}, 0), ({"nolease", "r2"}, 1), (None, 0)):
        taken = as_planned_on(snapshot, removes_stale=True, runs=runs)
        assert [len(taken.nodes.taint_sets[of]) for of in taken.nodes.taint_set] == [0, seen]


def test_moves_for_rules_come_first():
    objects = [
        *PAIR,
        node("n2"),
        *workload("twice", ["n0", "n0"]),
        *workload("few", ["n1", "n1"], cpu="100m"),
    ]
    plan = planned(objects, others="  duplicates: {}\n")
    assert {move.strategy for move in plan.moves} == {"duplicates"}
    assert plan.emptied == ()


def test_no_rule_that_holds_is_broken_for_it():
    # One replica on each node, as duplicates wants it.
    objects = [*PAIR, *workload("web", ["n0", "n1"])]
    assert left_by(planned(objects)) != []
    plan = planned(objects, others="  duplicates: {}\n")
    assert plan.moves == ()
    assert plan.emptied == ()


@pytest.mark.parametrize(
    ("options", "extra", "why"),
    [
        ("{under: {cpu: 10%}}", {}, "more than 10% of its cpu"),
        ("{under: {pods: 1%}}", {}, "more than 1% of its pods"),
        ("{minNodeAge: 2d}", {}, "younger than minNodeAge"),
        ("{select: {nodes: {pool: a}}}", {}, "the select of the strategy leaves it out"),
        ("{}", {"labels": {"node-role.kubernetes.io/control-plane": ""}}, "control-plane"),
        ("{}", {"unschedulable": True}, "it takes no pods"),
        ("{}", {"ready": False}, "it takes no pods"),
    ],
)
def test_nodes_that_are_not_to_be_emptied(options, extra, why):
    plan = planned(
        [node("n0"), node("n1", **extra), *BUSY, *FEW, *workload("more", ["n1", "n0"], cpu="200m")],
        options,
    )
    assert "n1" not in left_by(plan)
    assert code(plan, "n1") is NodeCode.NOT_ELIGIBLE
    assert why in plan.nodes["n1"].message


@pytest.mark.parametrize(
    ("under", "emptied", "kept"),
    [
        ("{nvidia.com/gpu: 40%}", ["g0"], "it has no nvidia.com/gpu"),
        ("{nvidia.com/gpu: 40%, amd.com/gpu: 40%}", ["g0"], "it has no nvidia.com/gpu and no amd.com/gpu"),
        ("{nvidia.com/gpu: 10%}", [], "it has no nvidia.com/gpu"),
        ("{amd.com/gpu: 40%}", [], "it has no amd.com/gpu"),
        ("{nvidia.com/gpu: 40%, cpu: 40%}", ["c0", "g0"], "more than 40% of its cpu is requested"),
    ],
)  # fmt: skip
def test_a_threshold_for_gpus_empties_no_node_that_has_none(under, emptied, kept):
    of_gpu = [node("g0"), node("g1")]
    for one in of_gpu:
        one["status"]["allocatable"]["nvidia.com/gpu"] = "4"
    asks = {"requests": {"cpu": "100m"}, "limits": {"nvidia.com/gpu": "1"}}
    spec = {"containers": [{"name": "main", "resources": asks}]}
    objects = [*of_gpu, node("c0"), node("c1"), *workload("infer", ["g0", "g1", "g1"], spec=spec)]
    plan = planned([*objects, *workload("web", ["c0", "c1"], cpu="300m"), *workload("busy", ["c1", "c1"], cpu="900m")], f"{{under: {under}}}")  # fmt: skip
    assert left_by(plan) == emptied
    assert kept in plan.nodes["c1"].message


@pytest.mark.parametrize(
    "key", ["cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt"]
)
def test_nodes_that_their_annotations_keep(key):
    kept = node("n1")
    kept["metadata"]["annotations"] = {key: "true"}
    plan = planned([node("n0"), kept, *BUSY, *FEW])
    assert "n1" not in left_by(plan)
    assert key in plan.nodes["n1"].message


@pytest.mark.parametrize(
    ("eagerness", "emptied"),
    [("timid", ()), ("careful", ()), ("steady", ("n1",)), ("relentless", ("n1",))],
)
def test_eagerness_says_how_much_a_saved_node_may_disturb(eagerness, emptied):
    # n1 has 18 of 20 pods, and can alone be emptied: 1/2 of the capacity for 19/22 of the disruption is 0.58 ...
    objects = [node("n0", cpu="8"), node("n1", cpu="2"), *workload("many", ["n1"] * 18, cpu="50m")]
    objects += workload("kept", ["n0"], cpu="1")
    # ... but of the cpu it has only 1/5.
    plan = planned(objects, more=f"eagerness: {eagerness}")
    assert plan.emptied == emptied


def test_without_steer_nothing_is_emptied_and_the_report_says_why():
    loaded = "apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {consolidation: {}}\n"
    rules = RunRules(
        load_text(loaded.encode(), "test", Registry.installed()), Registry.installed(), Scope()
    )
    plan = make_plan(rules, snapshot_of([*PAIR, *BUSY, *FEW]), Timings(SystemClock())).plan
    assert plan.moves == ()
    assert plan.emptied is None
    assert any("steer: marks" in warning for warning in plan.warnings)


def test_what_only_observes_shows_its_moves_and_marks_nothing():
    plan = planned([*PAIR, *BUSY, *FEW], "{mode: observe}")
    assert [move.observed for move in plan.moves] == [True, True]
    assert plan.emptied is None


@pytest.mark.parametrize(
    ("objects", "needed"),
    [
        ([*PAIR, *workload("a", ["n0", "n1"], cpu="2")], 1),
        ([*PAIR, *workload("a", ["n0", "n1"], cpu="2001m")], 2),
        ([*PAIR, *workload("a", ["n0", "n1"], memory="9Gi")], 2),
        ([node("n0", pods=2), node("n1", pods=2), *workload("a", ["n0", "n1", "n1"])], 2),
        ([node("n0", cpu="1"), node("n1", cpu="9"), *workload("a", ["n0", "n1"], cpu="900m")], 1),
        ([*PAIR, *daemon("n0", "n1"), *workload("a", ["n0", "n1"], cpu="1960m")], 2),
        ([*PAIR, *workload("one", ["n0"]), *workload("two", ["n1"])], 2),
        (PAIR, 0),
    ],
)
def test_at_least_so_many_nodes_are_needed(objects, needed):
    assert planned(objects).before["consolidation"].nodes.needed == needed


def test_of_a_reviewed_plan_the_nodes_that_it_empties_are_marked_again():
    objects = [*PAIR, *BUSY, *FEW]
    moves = planned(objects).moves
    text = POLICY.format(options="{}", more="", others="")
    loaded = load_text(text.encode(), "test", Registry.installed())
    rules, reviewed = RunRules(loaded, Registry.installed(), Scope()), Reviewed(moves)
    plan = make_plan(rules, snapshot_of(objects), Timings(SystemClock()), reviewed=reviewed).plan
    assert [move.uid for move in plan.moves] == [move.uid for move in moves]
    assert plan.emptied == ("n1",)
    assert plan.empty_for == 86400.0


def test_between_waves_the_marks_of_the_plan_count_whether_the_nodes_show_them_yet_or_not():
    snapshot = snapshot_of([*PAIR, *BUSY, *FEW])
    made = make_plan(rules_of(), snapshot, Timings(SystemClock()))
    assert [why for _, why in made.revalidate(snapshot, made.plan.moves)] == [None, None]


def test_a_node_with_a_slot_that_is_asked_for_is_not_emptied_nor_filled():
    def slots(cpu):
        return f"  slots: {{free: {{cpu: {cpu}}}}}"

    # n1 has 3.5 CPUs of 4 free, n0 2.5: of the slots of 3 there is one.
    plan = planned([*PAIR, *BUSY, *FEW], others=slots(3))
    assert not plan.moves
    assert "kept free for pods to come" in plan.nodes["n1"].message
    # Of slots of 2 each node has one: the other one will do, once it has taken in the pods of this one.
    plan = planned([*PAIR, *BUSY, *FEW], others=slots(2))
    assert plan.emptied in (("n1",), ("n0",))
