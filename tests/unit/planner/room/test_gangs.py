"""Gangs that leave for what waits: all of their pods at once, counted as so many evictions, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rebalancer.plan.plan import Code, Move, Plan
from rebalancer.planner.review import review
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.testing.snapshots import Manifest, disruption_budget, node, workload
from strategies.leaving import LeavingParams
from tests.unit.planner.conftest import plan_of, problem_of, rechecked
from tests.unit.planner.room.test_plan import MARKS, room, skip_of, waiting

KOORDINATOR = "gang.scheduling.koordinator.sh"


STAYS = {"rebalancer/evict": "false"}


def gang(
    nodes: list[str], name: str = "train", *, needs: str = "", **options: Any
) -> list[Manifest]:
    """A workload whose pods are one gang; ``needs``: so many of its pods have to run, all if empty."""
    told = {f"{KOORDINATOR}/name": name}
    if needs:
        told[f"{KOORDINATOR}/min-available"] = needs
    return workload(name, nodes, annotations=told, **options)


def crowded(needs: str = "", on: tuple[str, ...] = ("n0", "n1"), **options: Any) -> list[Manifest]:
    """Two nodes of 8 CPUs have a pod of 4 of a gang and one of 2 that stays, a third one has 4 free. A pod of 6 waits for the two.

    There is room if one of the gang leaves for the third node; the other one may come back to where it is.
    """
    return [
        *(node(name, cpu="8", labels={"pool": "two"}) for name in ("n0", "n1")),
        node("n2", cpu="8"),
        *gang(list(on), needs=needs, cpu="4", **options),
        *workload("stays", ["n0", "n1", "n2", "n2"], cpu="2", annotations=STAYS),
        *waiting("big", cpu="6", spec={"nodeSelector": {"pool": "two"}}),
    ]


def kept(on: str) -> list[Manifest]:
    """One more pod of the gang, which has opted out."""
    told = {f"{KOORDINATOR}/name": "train", **STAYS}
    return workload("kept", [on], cpu="10m", annotations=told)


def gone(plan: Plan) -> list[tuple[str, int]]:
    return [(move.pod, move.wave) for move in plan.moves]


def test_all_pods_of_a_gang_leave_at_once_for_a_pod_that_waits():
    made = room(crowded())
    assert gone(made) == [("train-0", 1), ("train-1", 1)]
    assert {move.gang for move in made.moves} == {"default: PodGroup train"}
    assert {move.makes_way_for for move in made.moves} == {"default/big-0"}
    assert made.lower_bound == 2
    assert made.after["make-room"].violated == 0
    # Only one node is made free, and the pod of the other one may come back to it.
    (opened,) = {move.room for move in made.moves}
    assert opened is not None
    assert len(opened) == 1
    landed = {move.node: move.landings[0].node for move in made.moves}
    assert landed[opened[0]] not in opened
    assert "; 2 pods of PodGroup train leave together" in made.moves[0].reason


def test_a_gang_of_which_one_pod_is_enough_is_none():
    (move,) = room(crowded(needs="1")).moves
    assert move.gang == ""


def test_where_enough_of_a_gang_stay_only_those_leave_that_have_to():
    objects = [*crowded(needs="2", on=("n0", "n1", "n3")), node("n3", cpu="4")]
    (move,) = room(objects).moves
    assert move.gang == "default: PodGroup train"
    assert move.landings[0].node == "n2"


def test_a_single_pod_leaves_rather_than_a_gang():
    objects = [
        *crowded(),
        node("n3", cpu="8", labels={"pool": "two"}),
        node("n4", cpu="4"),
        *workload("single", ["n3", "n4"], cpu="4"),
        *workload("held", ["n3"], cpu="2", annotations=STAYS),
    ]
    (move,) = room(objects).moves
    assert (move.pod, move.gang) == ("single-0", "")


@pytest.mark.parametrize(
    ("more", "options", "settings", "code", "text"),
    [
        # A budget that lets only one of them go keeps both.
        ([disruption_budget("train", "train", allowed=1, healthy=2)], {}, MARKS, Code.GANG, "allows 1 disruption now; 2 pods would go at once"),
        ([], {"priority": 1000}, MARKS, Code.PROTECTED, "of a higher priority than the pod that waits"),
        ([], {"spec": {"schedulerName": "volcano"}}, MARKS, Code.UNPREDICTED, "not predictable: scheduled by volcano"),
        ([], {}, Settings(steer=True, budgets=Budgets.model_validate({"perRun": 1})), Code.BUDGET, "2 moves at once are more than the budgets of this run leave"),
        # One of its pods has opted out.
        (kept("n1"), {}, MARKS, Code.GANG, "is protected: optedOut"),
    ],
)  # fmt: skip
def test_a_gang_that_cannot_leave_as_a_whole_stays_and_is_named(
    more, options, settings, code, text
):
    made = room([*crowded(**options), *more], settings)
    assert made.moves == ()
    assert skip_of(made)[0] is code
    assert text in skip_of(made)[1]


def test_none_leaves_where_one_of_them_has_no_room():
    """The one that has to leave would fit; what another one of its gang asks for no node has any more."""
    objects = [*crowded(), *gang(["n1"], "more", cpu="10m", spec={"nodeSelector": {"gone": "yes"}})]
    for one in objects:
        if one["kind"] == "Pod" and one["metadata"]["name"] == "more-0":
            one["metadata"]["annotations"] = {f"{KOORDINATOR}/name": "train"}
    assert room(objects).moves == ()


def test_a_gang_has_a_wave_of_its_own():
    """Two pods wait for 6 CPUs; for one a single pod leaves, for the other a gang."""
    objects = [
        *crowded(),
        node("n3", cpu="8", labels={"pool": "three"}),
        node("n4", cpu="4"),
        *workload("single", ["n3", "n4"], cpu="2", priority=0),
        *workload("held", ["n3"], cpu="2", annotations=STAYS),
        *waiting("more", cpu="5", spec={"nodeSelector": {"pool": "three"}}),
    ]
    made = room(objects)
    assert {move.pod for move in made.moves} == {"train-0", "train-1", "single-0"}
    gangs: dict[int, set[str]] = {}
    for move in made.moves:
        gangs.setdefault(move.wave, set()).add(move.gang)
    assert sorted(map(sorted, gangs.values())) == [[""], ["default: PodGroup train"]]
    assert made.after["make-room"].violated == 0


def test_between_waves_a_gang_is_judged_as_a_whole():
    objects = crowded()
    moves = room(objects).moves
    left = rechecked(objects, moves, settings=MARKS, strategies=["make-room"])
    assert [why for _, why in left] == [None, None]
    assert [move.gang for move, _ in left] == ["default: PodGroup train"] * 2
    # One of its pods opts out: none leaves.
    for one in objects:
        if one["metadata"]["name"] == "train-1":
            one["metadata"]["annotations"]["rebalancer/evict"] = "false"
    left = rechecked(objects, moves, settings=MARKS, strategies=["make-room"])
    assert all(why is not None and "default/train-1 is protected" in why for _, why in left)


def test_a_plan_moves_no_gang_for_another_strategy_that_makes_no_room():
    made = plan_of(crowded(), settings=MARKS, strategies=["duplicates"])
    assert made.moves == ()


def reviewed(objects: list[Manifest], moves: Sequence[Move]) -> tuple[list[str], set[str]]:
    """The pods that ``apply`` would move, and why others are not moved."""
    decision = review(moves, problem_of(objects, strategies=["make-room"]), MARKS)
    left = [move.pod for move in decision.plan.moves if move.uid not in decision.ended]
    return left, {one.message for one in decision.ended.values()}


def test_apply_moves_a_gang_as_a_run_would_or_not_at_all():
    objects = crowded()
    first, second = room(objects).moves
    assert reviewed(objects, [first, second]) == (["train-0", "train-1"], set())
    for wrong, text in (
        # Who has removed a move from the plan, has it moved in two waves, or by itself, does not break the gang.
        ([first], "other pods of it would go than planned"),
        ([first, replace(second, wave=2)], "one right after the other in one wave"),
        ([replace(first, gang=""), replace(second, gang="")], "protected now: gang"),
    ):
        left, why = reviewed(objects, wrong)
        assert left == []
        assert any(text in one for one in why)


@pytest.mark.parametrize(
    ("needs", "moved"),
    [
        # The other one that has to leave goes in the next wave, once the first has its replacement.
        ("2", [("train-0", 1), ("train-2", 2)]),
        # All leave for the pod that waits; none of them moves a second time.
        ("3", [("train-0", 1), ("train-1", 1), ("train-2", 1)]),
    ],
)
def test_no_pod_of_a_gang_moves_twice_in_a_plan(needs, moved):
    """One pod is in the way of the pod that waits, and another one on a node that must be empty."""
    objects = [
        *crowded(needs=needs, on=("n0", "n1", "going")),
        node("going", cpu="8", unschedulable=True),
        node("n3", cpu="8"),
    ]
    params = {"leaving": LeavingParams(nodes=("going",))}
    made = plan_of(objects, settings=MARKS, strategies=["leaving", "make-room"], params=params)
    assert sorted((move.pod, move.wave) for move in made.moves) == moved
    assert "going" not in {move.landings[0].node for move in made.moves}
