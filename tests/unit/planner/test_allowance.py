"""What earlier runs have in flight counts against the budgets of the next."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from rebalancer.plan.plan import Code
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.testing.snapshots import node, workload
from tests.unit.planner.conftest import draft_of, plan_of, rechecked

NODES = ("n0", "n1", "n2", "n3")
NOW = 1_800_000_000
TWO = Settings(budgets=Budgets(in_flight=Limit.parse(2)))
CREATED = {60: "2027-01-15T07:59:00Z", 599: "2027-01-15T07:50:01Z", 601: "2027-01-15T07:49:59Z"}
"""Seconds before the snapshot -> time."""


def starting(name, count, age, **more):
    """A workload of four, of which ``count`` are not Ready and so many seconds old."""
    objects = workload(name, NODES, **more)
    pods = [item for item in objects if item["kind"] == "Pod"]
    for pod in pods[:count]:
        pod["metadata"]["creationTimestamp"] = CREATED[age]
        pod["status"]["conditions"][0]["status"] = "False"
    return objects


def ending(objects, count, *, replaced):
    """The workload with terminating pods beside it, whose replacements are there already if ``replaced``."""
    pods = [item for item in objects if item["kind"] == "Pod"]
    for index, pod in enumerate(pods[-count:]):
        meta = {**pod["metadata"], "deletionTimestamp": "2027-01-15T08:00:20Z"}
        gone = {**pod, "metadata": {**meta, "name": f"gone-{index}", "uid": f"gone-{index}"}}
        objects = (
            [*objects, gone] if replaced else [gone if item is pod else item for item in objects]
        )
    return objects


def moved(plan, *objects):
    """How many of the duplicates on one node go, and in how many waves."""
    nodes = [node(name) for name in NODES]
    crowded = [each for i in range(4) for each in workload(f"web-{i}", ["n0", "n0"])]
    result = plan([*nodes, *crowded, *objects], strategies=["duplicates"], settings=TWO)
    waves = max((move.wave for move in result.moves), default=0)
    return len(result.moves), waves, {skip.code for skip in result.skips}


def test_nothing_in_flight_leaves_the_budget_whole(plan):
    assert moved(plan) == (4, 2, set())


@pytest.mark.parametrize(
    ("count", "age", "waves"), [(1, 60, 4), (1, 599, 4), (1, 601, 2), (4, 601, 2)]
)
def test_a_replacement_not_ready_takes_its_part_of_every_wave_until_it_is_stuck(
    plan, count, age, waves
):
    assert moved(plan, *starting("slow", count, age))[:2] == (4, waves)


def test_with_the_budget_used_up_by_replacements_nothing_moves(plan):
    assert moved(plan, *starting("slow", 2, 60)) == (0, 0, {Code.BUDGET})


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("Job", {"restartPolicy": "Never"}), ("StatefulSet", {"restartPolicy": "OnFailure"})],
)
def test_batch_pods_are_not_in_flight(plan, kind, spec):
    assert moved(plan, *starting("batch", 4, 60, kind=kind, spec=spec))[:2] == (4, 2)


def test_a_victim_and_its_replacement_are_one_move(plan):
    slow = ending(starting("slow", 1, 60), 1, replaced=True)
    assert moved(plan, *slow)[:2] == (4, 4)


def test_the_victim_of_an_owner_that_waits_is_a_move_of_its_own(plan):
    slow = ending(starting("slow", 1, 60, kind="StatefulSet"), 1, replaced=False)
    # Two in flight: none in the first wave, and nothing is planned behind an empty one.
    assert moved(plan, *slow) == (0, 0, {Code.BUDGET})


def rolled_out(objects, count):
    """The workload with so many pods of a ReplicaSet of a newer template."""
    [old] = [item for item in objects if item["kind"] == "ReplicaSet"]
    name = {"name": f"{old['metadata']['name']}-new", "uid": f"{old['metadata']['uid']}-new"}
    newer = {**old, "metadata": {**old["metadata"], **name}}
    pods = [item for item in objects if item["kind"] == "Pod"]
    for pod in pods[:count]:
        (reference,) = pod["metadata"]["ownerReferences"]
        pod["metadata"]["ownerReferences"] = [{**reference, **name}]
    return [*objects, newer]


def test_pods_that_start_for_a_rollout_are_not_in_flight(plan):
    assert moved(plan, *starting("slow", 2, 60))[:2] == (0, 0)
    assert moved(plan, *rolled_out(starting("slow", 2, 60), 2))[:2] == (4, 2)


def crowded(plan, *objects, **budgets):
    settings = Settings(budgets=Budgets(**{k: Limit.parse(v) for k, v in budgets.items()}))
    nodes = [node(name) for name in NODES]
    twins = workload("web", ["n0", "n0"])
    return plan([*nodes, *twins, *objects], strategies=["duplicates"], settings=settings)


@pytest.mark.parametrize(
    ("budgets", "limit"),
    [
        ({"in_flight": 1}, "inFlight 1: 1 in flight already"),
        # The victim leaves n0, from which the duplicate would go, too.
        ({"in_flight": 5, "per_node": 1}, "perNode 1"),
    ],
)
def test_where_moves_in_flight_use_up_a_budget_the_plan_says_so(plan, budgets, limit):
    going = ending(workload("slow", ["n1", "n2", "n3", "n0"]), 1, replaced=False)
    result = crowded(plan, *going, **budgets)
    assert result.stopped == (
        f"Moves in flight, or pods that are not Ready yet, use up a budget ({limit}): 1 rule is unmet. "
        "What waits takes at least 1 move in 1 further run, if all of it can be fixed."
    )
    assert (result.moves, result.backlog.moves) == ((), 1)


def test_a_budget_of_nothing_is_not_used_up_by_moves_in_flight(plan):
    result = crowded(plan, per_node=0)
    assert (
        result.stopped == "Nothing can be moved within the budgets: 1 rule stays unmet (1 Budget)."
    )


# -- between waves -----------------------------------------------------------------------------

CROWDED = [
    *(node(name) for name in NODES),
    *(each for i in range(4) for each in workload(f"web-{i}", ["n0", "n0"])),
]


def kept_between_waves(*objects, settings=TWO):
    """How many moves of the second of two waves may go once there are these ``objects``, too."""
    first = plan_of(CROWDED, strategies=["duplicates"], settings=TWO)
    second = [move for move in first.moves if move.wave == 2]
    now = [*CROWDED, *objects]
    judged = rechecked(now, second, strategies=["duplicates"], settings=settings)
    whys = [why for _, why in judged]
    assert all("left to the next run: inFlight" in why for why in whys if why)
    return whys.count(None)


@pytest.mark.parametrize(
    ("count", "age", "kept"), [(0, 60, 2), (1, 60, 1), (2, 60, 0), (2, 601, 2)]
)
def test_what_came_into_flight_since_the_plan_takes_its_part_of_the_next_wave(count, age, kept):
    assert kept_between_waves(*starting("slow", count, age)) == kept


def test_victims_that_still_terminate_are_not_in_flight_once_their_replacements_are_ready():
    others = ending(workload("done", NODES), 2, replaced=True)
    assert kept_between_waves(*others) == 0
    ours = replace(TWO, planned=frozenset({"gone-0", "gone-1"}))
    assert kept_between_waves(*others, settings=ours) == 2


@pytest.mark.parametrize(("movable", "kept"), [(100, 2), (None, 0)])
def test_shares_of_the_movable_pods_are_those_of_the_plan(movable, kept):
    """A tenth of 100 pods is 10. What was replaced is too young to be movable, and would make it 5 here."""
    tenth = Settings(budgets=Budgets(in_flight=Limit.parse("10%")), movable=movable)
    slow = [each for name in ("a", "b") for each in starting(name, 4, 60)]
    assert kept_between_waves(*slow, settings=tenth) == kept


def test_pods_that_leave_a_zone_use_up_its_budget_between_waves_too():
    zoned = [node("n0", "a"), node("n1", "b"), node("n2", "b"), node("n3", "b")]
    webs = [each for i in range(2) for each in workload(f"web-{i}", ["n0", "n0"])]
    slow = workload("slow", ["n0", "n1", "n2", "n3"])
    settings = Settings(budgets=Budgets(per_zone=Limit.parse(1)))
    first = plan_of([*zoned, *webs, *slow], strategies=["duplicates"], settings=settings)
    assert [move.wave for move in first.moves] == [1, 2]
    leaving = ending(slow, 4, replaced=False)  # one of them from n0
    judged = rechecked(
        [*zoned, *webs, *leaving], first.moves[1:], strategies=["duplicates"], settings=settings
    )
    [(_, why)] = judged
    assert why == "left to the next run: perZone 1 from a, with what else is in flight now"


def of_tenant(number, *, ago, namespace="tenant"):
    """So many pods of another namespace that should have been gone so many seconds ago, without replacements."""
    gone_by = datetime.fromtimestamp(NOW - ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    objects = workload("held", list(NODES)[:number], namespace=namespace)
    for item in objects:
        if item["kind"] == "Pod":
            item["metadata"] = {**item["metadata"], "deletionTimestamp": gone_by}
    return objects


@pytest.mark.parametrize(
    ("number", "ago", "moves"),
    [
        # A finalizer holds them for ever: they are in flight no longer.
        (4, 601, 4),
        (4, 3600, 4),
        # They hold up no more than half of what may be in flight (2), unless they are of the same namespace.
        (4, 599, 4),
        (4, -20, 4),
        (1, -20, 4),
    ],
)
def test_what_one_tenant_ends_does_not_hold_up_the_others(plan, number, ago, moves):
    assert moved(plan, *of_tenant(number, ago=ago))[0] == moves


@pytest.mark.parametrize(("ago", "moves"), [(601, 4), (-20, 0)])
def test_what_a_namespace_ends_holds_up_its_own_moves(plan, ago, moves):
    assert moved(plan, *of_tenant(4, ago=ago, namespace="default"))[0] == moves


def test_young_pods_of_one_tenant_do_not_hold_up_the_others(plan):
    loop = starting("loop", 4, 60, namespace="tenant")
    assert moved(plan, *loop)[:2] == (4, 4)
    own = starting("loop", 4, 60)
    assert moved(plan, *own)[0] == 0


def waiting(number, namespace):
    """So many young pods of another namespace that no node takes."""
    objects = workload("waits", [""] * number, namespace=namespace)
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    for pod in (item for item in objects if item["kind"] == "Pod"):
        pod["metadata"]["creationTimestamp"] = CREATED[60]
        del pod["spec"]["nodeName"]
        since = {"lastTransitionTime": CREATED[60]}
        pod["status"] = {"phase": "Pending", "conditions": [{**refused, **since}]}
    return objects


@pytest.mark.parametrize("number", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("namespace", ["other", "default"])
def test_moves_that_make_room_in_one_wave_are_as_many_as_may_be_in_flight(number, namespace):
    """Pods that wait do not count for them, whoever they belong to, and are not left out twice."""
    most = Limit.parse(4)
    many = Limit.parse(50)
    budgets = Budgets(in_flight=most, per_node=many, per_owner=many, per_run=many, per_hour=many)
    objects = [*map(node, NODES), *workload("web", [*NODES] * 3), *waiting(number, namespace)]
    draft = draft_of(objects, settings=Settings(budgets=budgets), strategies=["make-room"])
    pods, moves = draft.snapshot.pods, 0
    for pod in np.flatnonzero(pods.node >= 0).tolist():
        of_pod = int(pods.cls[pod]), int(pods.node[pod]), "make-room"
        if draft.allowance.waits(*of_pod) is None:
            draft.allowance.spend(*of_pod)
            moves += 1
    assert moves == 4


def test_what_is_taken_back_does_not_count():
    draft = draft_of([*map(node, NODES), *workload("web", NODES)], settings=TWO)
    allowance, pods = draft.allowance, draft.snapshot.pods
    for pod in range(2):
        allowance.spend(int(pods.cls[pod]), int(pods.node[pod]), "duplicates")
    assert allowance.full()
    draft.begin_again()
    assert not draft.allowance.full()
    assert draft.allowance.left("duplicates") == allowance.per_run


def test_a_draft_that_begins_again_has_neither_stopped_nor_moved():
    """Earlier runs use up the wave, which is said only before the first move."""
    slow = starting("slow", 2, 60)
    draft = draft_of([*map(node, NODES), *workload("web", NODES), *slow], settings=TWO)
    allowance, pods = draft.allowance, draft.snapshot.pods
    filled = allowance.filled_before()
    assert filled is not None
    allowance.spend(int(pods.cls[0]), int(pods.node[0]), "duplicates")
    allowance.stop("enough")
    assert (allowance.stopped, allowance.filled_before()) == ("enough", None)
    draft.begin_again()
    assert (allowance.stopped, allowance.filled_before()) == (None, filled)
    assert allowance.left("duplicates") == allowance.per_run


def test_pods_that_were_to_end_start_again_once_their_moves_are_taken_back():
    """What one namespace starts leaves half of the limit to others, as many moves as before."""
    slow = starting("slow", 4, 60, namespace="tenant")
    draft = draft_of([*map(node, NODES), *workload("web", [*NODES] * 2), *slow], settings=TWO)
    allowance, pods, classes = draft.allowance, draft.snapshot.pods, draft.snapshot.classes
    of_tenant = np.array([classes[cls].namespace == "tenant" for cls in pods.cls.tolist()])

    def spend(rows, *, ready):
        """Spend moves of pods until one waits; how many that are."""
        for count, pod in enumerate(rows.tolist()):
            of_pod = int(pods.cls[pod]), int(pods.node[pod]), "duplicates"
            if ready and allowance.waits(*of_pod) is not None:
                return count
            allowance.spend(*of_pod, ready=ready)
        return len(rows)

    others = np.flatnonzero(~of_tenant)
    before = spend(others, ready=True)
    draft.begin_again()
    spend(np.flatnonzero(of_tenant), ready=False)
    draft.begin_again()
    assert 0 < before == spend(others, ready=True) < len(others)
