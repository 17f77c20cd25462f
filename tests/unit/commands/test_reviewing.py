"""What is left of a reviewed plan: nothing that a run would not move, nothing that is not in the plan."""

import json
import random
from collections import Counter
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.decisions.world import draw
from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Cost, Status
from rebalancer.planner.planning import Reviewed, make_plan
from rebalancer.planner.review import review
from rebalancer.planner.rules import RunRules
from rebalancer.planner.settings import Settings
from rebalancer.policy.load import load_policy
from rebalancer.policy.model import Budgets, Eagerness
from rebalancer.policy.protect import Protect
from rebalancer.policy.values import Limit
from rebalancer.registry import Registry
from rebalancer.report.as_json import as_json
from rebalancer.report.model import RunReport
from rebalancer.report.plan_file import read_plan
from rebalancer.run.ending import outcomes_of
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import ZONE, apart, disruption_budget, node, spread, workload
from tests.unit.planner.conftest import plan_of, problem_of

SNAPSHOTS = Path("benchmarks/decisions/snapshots")
REGISTRY = Registry.installed()
ONLY = {"strategies": ["duplicates"]}


def moves_of(objects, **options):
    return plan_of(objects, **options).moves


def reviewed(moves, objects, **options):
    settings = options.pop("settings", None) or Settings()
    return review(moves, problem_of(objects, **options), settings)


def left_of(result):
    return [
        move for move in result.plan.moves if move.uid not in result.ended and not move.observed
    ]


def fates(result):
    """The outcome of each move that ends here: its status and why."""
    return {out.move.pod: (out.status, out.message) for out in result.ended.values()}


# -- a plan that was not edited --------------------------------------------------------------------------


def through_a_file(snapshot, loaded, planned):
    """Write the report of a dry run, and read the plan back."""
    outcomes = outcomes_of(planned, None)
    report = RunReport(
        dry_run=True,
        source="here",
        snapshot=snapshot,
        loaded=loaded,
        plan=planned.plan,
        outcomes=outcomes,
    )
    return read_plan("-", BytesIO("".join(as_json(report)).encode())).moves


@pytest.mark.parametrize(
    ("drift", "lifted"),
    [("mutual", False), ("nearly-full-18-2", True), ("scale-down", False), ("zonal-volumes", True)],
)
def test_all_of_it_is_left_where_nothing_has_changed(drift, lifted):
    # Kept clusters with chains and many waves.
    loaded = load_policy(None, REGISTRY)
    snapshot = load_snapshot(str(SNAPSHOTS / f"{drift}.json.gz"))

    def planned(moves=None):
        rules = RunRules(loaded, REGISTRY, Scope(), lifted=lifted)
        reviewed = None if moves is None else Reviewed(moves)
        return make_plan(rules, snapshot, Timings(SystemClock()), reviewed=reviewed)

    made = planned()
    result = planned(through_a_file(snapshot, loaded, made))
    assert made.plan.moves
    assert result.left == made.plan.moves
    assert (result.plan.before, result.plan.after) == (made.plan.before, made.plan.after)
    assert (
        result.plan.stopped
        == f"Judged again: all {len(made.plan.moves)} moves of the plan could go."
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 255))
@example(1056, 0)  # a pod goes first for another, whose move falls short of what its class promises
def test_an_edited_plan_moves_no_other_pods_and_a_whole_one_all(seed, kept):
    objects = draw(random.Random(seed)).objects()
    moves = moves_of(objects)
    assert left_of(reviewed(moves, objects)) == list(moves)
    some = [move for index, move in enumerate(moves) if kept >> index % 8 & 1]
    result = reviewed(some, objects)
    assert [move.uid for move in result.plan.moves] == [move.uid for move in some]
    assert {move.uid for move in left_of(result)} | result.ended.keys() == {m.uid for m in some}


# -- pods that are not what they were ----------------------------------------------------------------------


def lopsided(**more):
    """Two web pods on n0 and none on n1, in two zones: one has to go."""
    return [
        node("n0", "a"),
        node("n1", "b"),
        *workload("web", ["n0", "n0"], spec=spread("web", hard=True), **more),
    ]


@pytest.mark.parametrize(
    ("change", "status", "why"),
    [
        ({"uid": "another"}, Status.CHANGED, "another pod has its name now"),
        ({"uid": "another", "pod": "web-9"}, Status.GONE, "the pod is gone"),
        ({"pod": "web-1"}, Status.CHANGED, "the uid is that of default/web-0"),
        ({"namespace": "other"}, Status.CHANGED, "the uid is that of default/web-0"),
        ({"node": "n1"}, Status.CHANGED, "the pod is on n0 now"),
    ],
)
def test_a_pod_that_is_not_the_planned_one_is_left_alone(change, status, why):
    [move] = moves_of(lopsided())
    result = reviewed([replace(move, **change)], lopsided())
    [outcome] = result.ended.values()
    assert (outcome.status, outcome.message) == (status, why)
    assert result.plan.stopped == f"Nothing to do: nothing is left of the plan (1 {status})."


def test_a_pod_that_is_going_already_counts_as_gone():
    [move] = moves_of(lopsided())
    now = lopsided()
    [pod] = [o for o in now if o["metadata"].get("uid") == move.uid]
    pod["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:30Z"
    assert fates(reviewed([move], now)) == {
        "web-0": (Status.GONE, "the pod is terminating already")
    }


def test_what_has_been_fixed_meanwhile_is_dropped():
    [move] = moves_of(lopsided())
    now = [*lopsided()[:2], *workload("web", ["n0", "n1"], spec=spread("web", hard=True))]
    [(status, why)] = fates(reviewed([move], now)).values()
    assert status is Status.DROPPED
    assert why.startswith(("NoGain", "ComesBack", "Unsure"))


# -- what the file says beyond which pods are to go ----------------------------------------------------------


def boastful(move):
    """The move as written by one who wants the pod gone at any cost."""
    return replace(move, gain=Cost(9.0, 9.0, 9.0), cost=1e-9, reason="because")


def with_one_unready():
    now = lopsided()
    [deployment] = [item for item in now if item["kind"] == "Deployment"]
    deployment["status"]["readyReplicas"] = 1
    now[-1]["status"]["conditions"][0]["status"] = "False"
    return now


def of_daemon_set():
    """DaemonSets are not part of a snapshot; their pods are."""
    return [item for item in lopsided(kind="DaemonSet") if item["kind"] != "DaemonSet"]


@pytest.mark.parametrize(
    ("now", "protection"),
    [
        (lopsided(annotations={"rebalancer/evict": "false"}), "optedOut"),
        (lopsided(priority=2_000_000_000), "systemCritical"),
        (with_one_unready(), "ownerUnsettled"),
        ([*lopsided()[:2], *workload("web", ["n0"], replicas=1)], "singleReplica"),
        (of_daemon_set(), "daemonSet"),
        (lopsided(kind="Job"), "job"),
    ],
)
def test_a_protected_pod_stays_whatever_the_file_says(now, protection):
    [move] = moves_of(lopsided())
    [(status, why)] = fates(reviewed([boastful(move)], now)).values()
    assert (status, why.split(":")[0]) == (Status.DROPPED, "protected now")
    assert protection in why


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_a_file_that_names_every_pod_moves_none_that_a_run_would_not(seed, waves):
    objects = draw(random.Random(seed)).objects()
    for item in objects[::7]:
        item["metadata"].setdefault("annotations", {})["rebalancer/evict"] = "false"
    problem = problem_of(objects)
    snapshot = problem.snapshot
    model = moves_of(lopsided())[0]
    every = [
        boastful(
            replace(
                model,
                namespace="default",
                pod=snapshot.pods.name[row],
                uid=snapshot.pods.uid[row],
                node=snapshot.nodes.names[snapshot.pods.node[row]],
                wave=1 + row * waves // len(snapshot.pods),
            )
        )
        for row in np.flatnonzero(snapshot.pods.node >= 0).tolist()
    ]
    result = reviewed(every, objects)
    left = left_of(result)
    rows = problem.rows_by_uid([move.uid for move in left])
    assert all(problem.protected[row] == 0 for row in rows.values())
    assert all(move.gain.as_tuple() > (0.0, 0.0, 0.0) for move in left)
    for move in left:
        assert move.cost == round(float(problem.costs[rows[move.uid]]), 6)
    budgets = Settings().budgets
    movable = int(np.count_nonzero(problem.protected == 0))
    in_wave = Counter(move.wave for move in left)
    assert max(in_wave.values(), default=0) <= budgets.in_flight_of(movable)
    assert len(left) <= budgets.per_run_of(movable)
    was, now = result.plan.before, result.plan.after
    entries = [
        tuple(round(sum(s.cost.as_tuple()[e] for s in of.values()), 6) for e in range(3))
        for of in (now, was)
    ]
    assert entries[0] <= entries[1]


def test_the_cost_is_the_clusters_and_not_the_files():
    # A preferred rule of weight 10 fixes 0.1 at cost 1; at cost 10, that is too little.
    def two(**more):
        web = workload("web", ["n0", "n0"], spec=apart("web", weight=10), **more)
        return [node("n0", "a"), node("n1", "b"), *web]

    strict = {"strategies": ["anti-affinity"], "settings": Settings(eagerness=Eagerness.CAREFUL)}
    [move] = moves_of(two(), **strict)
    [(status, why)] = fates(
        reviewed([replace(move, cost=1e-9)], two(priority=1_000_000_000), **strict)
    ).values()
    assert status is Status.DROPPED
    assert why.startswith("LowGain: gain 0.1 at cost 10")


def test_the_owner_the_budgets_and_a_strategy_without_share_are_the_clusters():
    [move] = moves_of(lopsided())
    now = [*lopsided(), disruption_budget("web", "web", allowed=1)]
    lie = replace(move, owner="Deployment/a/b", budgets=("a/b",), strategy="taints")
    [move] = left_of(reviewed([lie], now))
    assert (move.owner, move.budgets) == ("Deployment/default/web", ("default/web",))
    assert move.strategy == move.strategy == "topology-spread"


def test_a_budget_that_allows_nothing_blocks_and_two_are_misconfigured():
    [move] = moves_of(lopsided())
    none = disruption_budget("web", "web", allowed=0)
    [(status, why)] = fates(reviewed([move], [*lopsided(), none])).values()
    assert status is Status.BLOCKED
    assert why.startswith("PodDisruptionBudget: default/web allows no disruption")
    two = [disruption_budget(name, "web", allowed=1) for name in ("one", "two")]
    [(status, why)] = fates(reviewed([move], [*lopsided(), *two])).values()
    assert status is Status.DROPPED
    assert why.startswith("TwoPodDisruptionBudgets")


# -- budgets -----------------------------------------------------------------------------------------------


def many(apps=6):
    """Apps that each have to give a pod to the other zone."""
    nodes = [node(f"n-{zone}", zone, cpu="64") for zone in "ab"]
    return [
        *nodes,
        *(
            item
            for app in range(apps)
            for item in workload(f"app{app}", ["n-a", "n-a"], spec=spread(f"app{app}", hard=True))
        ),
    ]


def budgets(**limits):
    return {"settings": Settings(budgets=Budgets(**{k: Limit.parse(v) for k, v in limits.items()}))}


def test_waves_are_what_budgets_ask_for_and_not_what_the_file_says():
    moves = moves_of(many(), **budgets(in_flight=2, per_node=5))
    assert [move.wave for move in moves] == [1, 1, 2, 2, 3, 3]
    at_once = [replace(move, wave=1) for move in moves]
    result = reviewed(at_once, many(), **budgets(in_flight=2, per_node=5))
    assert left_of(result) == list(moves)


def test_what_the_run_or_the_hour_has_no_budget_for_waits_and_the_report_says_so():
    moves = moves_of(many())
    result = reviewed(moves, many(), **budgets(per_run=2))
    assert left_of(result) == list(moves[:2])
    assert set(fates(result).values()) == {(Status.NOT_ATTEMPTED, "Budget: perRun 2")}
    assert (result.plan.backlog.moves, result.plan.backlog.runs) == (4, 2)
    assert result.plan.stopped == (
        "Judged again: 2 of 6 moves of the plan could go (4 held back by budgets). Apply it again later for the remaining moves."
    )
    hour = {"settings": Settings(moved_last_hour=19)}
    assert len(left_of(reviewed(moves, many(), **hour))) == 1


@pytest.mark.parametrize(
    ("free", "waves"), [(2, [1, 1, 2, 2, 3, 3]), (1, [1, 2, 3, 4, 5, 6]), (0, [])]
)
def test_a_resource_quota_has_to_have_room_for_each_replacement_beside_its_victim(free, waves):
    moves = [replace(move, wave=1) for move in moves_of(many())]
    amounts = {"hard": {"pods": "20"}, "used": {"pods": str(20 - free)}}
    quota = {
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": "default"},
        "spec": {"hard": amounts["hard"]},
        "status": amounts,
    }
    result = reviewed(moves, [*many(), quota], **budgets(in_flight=6, per_node=6))
    assert [move.wave for move in left_of(result)] == waves
    for status, why in fates(result).values():
        assert status is Status.DROPPED
        assert why.startswith("Quota: ResourceQuota default/few has 0 of pods left")


def test_what_is_in_flight_already_counts():
    moves = moves_of(many())
    now = many()
    for item in now:
        if item["kind"] == "Pod" and item["metadata"]["name"] in ("app4-1", "app5-1"):
            item["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:30Z"
    result = reviewed(
        moves[:2], now, **budgets(in_flight=2), protections=Protect(single_replicas=False)
    )
    assert left_of(result) == []
    assert {why for _, why in fates(result).values()} == {"Budget: inFlight 2"}


# -- chains ------------------------------------------------------------------------------------------------


def crowded():
    """Two web pods on n0; n1 draws any replacement, and has one of web: a pod of fill is in the way, and goes first."""
    nodes = [node(f"n{i}", "a") for i in range(3)]
    web = workload("web", ["n0", "n0", "n1"], cpu="500m", spec=spread("web", ZONE))
    return [*nodes, *web, *workload("fill", ["n0", "n2"], cpu="800m")]


@pytest.fixture
def chain():
    first, second = moves_of(crowded(), **ONLY)
    assert first.makes_way_for == second.uid
    return first, second


def test_a_chain_goes_as_one(chain):
    assert left_of(reviewed(chain, crowded(), **ONLY)) == list(chain)


def test_the_pod_in_the_way_of_a_move_that_was_taken_out_stays(chain):
    first, _ = chain
    assert fates(reviewed([first], crowded(), **ONLY)) == {
        "fill-0": (Status.DROPPED, "the move that it goes first for is not in the plan")
    }


def test_the_other_stays_where_the_pod_in_the_way_was_taken_out(chain):
    _, second = chain
    [(status, why)] = fates(reviewed([second], crowded(), **ONLY)).values()
    assert status is Status.DROPPED
    assert why.startswith("NoGain")


def test_no_pod_is_moved_out_of_the_way_for_a_pod_that_has_gone(chain):
    now = [o for o in crowded() if o["metadata"].get("uid") != chain[1].uid]
    assert fates(reviewed(chain, now, **ONLY)) == {
        "fill-0": (Status.DROPPED, "the pod that it goes first for stays: the pod is gone"),
        "web-0": (Status.GONE, "the pod is gone"),
    }


def test_no_pod_is_moved_out_of_the_way_where_the_budget_is_not_enough_for_both(chain):
    result = reviewed(chain, crowded(), **ONLY, **budgets(per_run=1))
    assert fates(result) == {
        "fill-0": (Status.DROPPED, "the pod that it goes first for stays: Budget: perRun 1"),
        "web-0": (Status.NOT_ATTEMPTED, "Budget: perRun 1"),
    }


def test_what_was_judged_behind_a_move_that_is_held_back_is_judged_again():
    # Without the way that fill makes, web may not go either, though both were fine before the budget's word.
    moves = moves_of(crowded(), **ONLY)
    now = [*crowded(), disruption_budget("fill", "fill", allowed=0)]
    result = reviewed(moves, now, **ONLY)
    assert {pod: status for pod, (status, _) in fates(result).items()} == {
        "fill-0": Status.BLOCKED,
        "web-0": Status.DROPPED,
    }
    assert result.plan.after == result.plan.before


# -- modes and windows ---------------------------------------------------------------------------------------

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
strategies: {{topology-spread: {options}}}
"""


@pytest.mark.parametrize(
    ("options", "goes"),
    [
        ("{}", True),
        ("{mode: observe}", False),
        ('{windows: [{allow: "0 8 * * *", for: 1h}]}', True),
        ('{windows: [{allow: "0 9 * * *", for: 1h}]}', False),
    ],
)
def test_what_counts_is_the_mode_and_the_window_of_now(tmp_path, options, goes):
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(options=options))
    objects = tmp_path / "cluster.json"
    objects.write_text(json.dumps({"kind": "List", "items": lopsided()}))
    snapshot = load_snapshot(str(objects))
    moves = moves_of(lopsided(), strategies=["topology-spread"])
    rules = RunRules(load_policy(path, REGISTRY), REGISTRY, Scope())
    planned = make_plan(rules, snapshot, Timings(SystemClock()), reviewed=Reviewed(moves))
    [outcome] = outcomes_of(planned, None)
    assert outcome.status is (Status.PLANNED if goes else Status.OBSERVED)
    assert [move.observed for move in planned.left] == [not goes]


def test_what_is_left_is_a_plan_again_also_of_chains_that_only_observe(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(options="{}").replace("topology-spread", "duplicates"))
    enforcing = load_policy(path, REGISTRY)
    path.write_text(path.read_text().replace("{}", "{mode: observe}"))
    objects = tmp_path / "cluster.json"
    objects.write_text(json.dumps({"kind": "List", "items": crowded()}))
    snapshot = load_snapshot(str(objects))
    moves = moves_of(crowded(), **ONLY)
    for loaded in (enforcing, load_policy(path, REGISTRY)):
        for _ in range(2):
            rules = RunRules(loaded, REGISTRY, Scope())
            planned = make_plan(rules, snapshot, Timings(SystemClock()), reviewed=Reviewed(moves))
            assert [(m.pod, m.wave) for m in planned.left] == [("fill-0", 1), ("web-0", 2)]
            assert all(move.observed is (loaded is not enforcing) for move in planned.left)
            moves = through_a_file(snapshot, loaded, planned)
