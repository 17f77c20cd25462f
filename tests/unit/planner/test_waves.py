"""Waves of moves that are chosen already: what budgets and quotas let go together."""

import pytest

from rebalancer.plan.plan import Code, Cost, Move
from rebalancer.planner.review import Waves
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.testing.snapshots import disruption_budget, node, workload
from tests.unit.planner.conftest import draft_of, said

NODES = [node(f"n{i}") for i in range(4)]
PODS = [*workload("web", ["n0", "n1", "n2"]), *workload("db", ["n0", "n1"])]
WIDE = {"inFlight": 50, "perNode": 50, "perOwner": 50, "perRun": 50, "perHour": 50}


def chosen(pod, wave=1):
    return Move(
        namespace="default",
        pod=pod,
        uid=f"default/{pod}",
        owner="",
        node="",
        landings=(),
        strategy="duplicates",
        reason="",
        gain=Cost(),
        cost=1.0,
        wave=wave,
    )


def placed(moves, *more, **budgets):
    settings = Settings(budgets=Budgets.model_validate(WIDE | budgets))
    draft = draft_of([*NODES, *PODS, *more], strategies=["duplicates"], settings=settings)
    waves = Waves(draft, moves)
    placed = [waves.place(move) for move in moves]
    return [one if isinstance(one, int) else said(one, draft.snapshot) for one in placed]


WEB = [chosen("web-0"), chosen("web-1"), chosen("web-2")]


@pytest.mark.parametrize(
    ("budgets", "waves"),
    [
        ({}, [1, 1, 1]),
        ({"inFlight": 2}, [1, 1, 2]),
        ({"perOwner": 1}, [1, 2, 3]),
        ({"perNode": 1}, [1, 1, 1]),
        ({"perRun": 2}, [1, 1, (Code.BUDGET, "perRun 2")]),
        ({"perHour": 1}, [1, *[(Code.BUDGET, "perHour: 1 were left of it")] * 2]),
        ({"inFlight": 0}, [(Code.BUDGET, "inFlight 0")] * 3),
    ],
)
def test_a_move_goes_in_the_first_wave_that_has_room(budgets, waves):
    assert placed(WEB, **budgets) == waves


def test_pods_of_one_node_count_together():
    assert placed([chosen("web-0"), chosen("db-0"), chosen("db-1")], perNode=1) == [1, 2, 2]


def test_a_move_that_was_planned_for_later_does_not_go_earlier():
    assert placed([chosen("web-0", 1), chosen("web-1", 2), chosen("db-0", 2)]) == [1, 2, 2]


def test_a_move_of_two_disruption_budgets_is_refused_and_uses_nothing_up():
    both = [disruption_budget(name, "web", allowed=3) for name in ("one", "two")]
    first, second = placed([chosen("web-0"), chosen("db-0")], *both, perRun=1)
    assert isinstance(first, tuple)
    assert first[0] is Code.PDB_CONFLICT
    assert second == 1


@pytest.mark.parametrize(("used", "waves"), [("4", [1, 1, 2]), ("6", [Code.QUOTA] * 3)])
def test_a_quota_must_have_room_for_all_replacements_of_a_wave(used, waves):
    quota = {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"pods": "6"}},
        "status": {"hard": {"pods": "6"}, "used": {"pods": used}},
    }
    assert [one if isinstance(one, int) else one[0] for one in placed(WEB, quota)] == waves


def test_what_is_judged_for_the_next_planned_wave_has_its_budgets_to_itself():
    settings = Settings(budgets=Budgets.model_validate(WIDE | {"inFlight": 1}))
    draft = draft_of([*NODES, *PODS], strategies=["duplicates"], settings=settings)
    waves, first = Waves(draft, WEB), WEB[0]
    pods = draft.snapshot.pods
    place = int(pods.cls[0]), int(pods.node[0]), first.strategy
    assert waves.place(first) == 1
    assert draft.allowance.waits(*place) is not None
    waves.next_wave()
    assert draft.allowance.waits(*place) is None
