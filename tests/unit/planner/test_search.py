"""The search: what it moves in which wave, what it refuses, and what waits for a further run."""

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from benchmarks.phases.drift import planned
from benchmarks.phases.families import cluster_of
from rebalancer.plan.plan import Code
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.search import Left, search
from rebalancer.planner.settings import THRESHOLDS, Settings
from rebalancer.policy.model import Budgets, Eagerness
from rebalancer.snapshot.load import load_snapshot
from rebalancer.testing.snapshots import node, workload
from tests.unit.planner.conftest import problem_of

NODES = [node(f"n{i}") for i in range(4)]
WIDE = {"inFlight": 50, "perNode": 50, "perOwner": 50, "perRun": 50, "perHour": 50}


def crowded(pairs=1, **more):
    """So many workloads with two pods on n0, one of which has to go."""
    return [each for i in range(pairs) for each in workload(f"w{i}", ["n0", "n0"], **more)]


class Seen(NamedTuple):
    """What a search has come to, all of it asked for."""

    chosen: Sequence[Chosen]
    rests: bool
    left: Left


def searched(objects, *, observed=(), stop=lambda: None, most=None, **budgets):
    problem = problem_of([*NODES, *objects], strategies=["duplicates"])
    contributions = [replace(of, observed=of.strategy in observed) for of in problem.contributions]
    settings = Settings(budgets=Budgets.model_validate(WIDE | budgets))
    draft = Draft(replace(problem, contributions=contributions), settings)
    result = search(draft, Effort(), stop, most)
    return Seen(result.chosen, result.rests, result.left()), draft


def refusals(left):
    return [one for pair in sorted(left.pairs) if (one := left.refused(pair)) is not None]


def test_each_crowded_workload_loses_a_pod():
    result, draft = searched(crowded(3))
    assert [chosen.wave for chosen in result.chosen] == [1, 1, 1]
    assert len({chosen.cls for chosen in result.chosen}) == 3
    assert all(draft.state.node_of[chosen.pod] != 0 for chosen in result.chosen)
    assert not refusals(result.left)
    assert len(result.left.pairs) == 3


@pytest.mark.parametrize(
    ("budgets", "waves"), [({"inFlight": 2}, [1, 1, 2]), ({"perNode": 1}, [1, 2, 3])]
)
def test_what_is_in_flight_makes_the_others_wait_for_the_next_wave(budgets, waves):
    result, _ = searched(crowded(3), **budgets)
    assert [chosen.wave for chosen in result.chosen] == waves
    assert not result.left.waiting_classes


def test_a_wave_that_brings_little_is_the_last_one(monkeypatch):
    settled, _ = searched(crowded(3), inFlight=1)
    assert [chosen.wave for chosen in settled.chosen] == [1, 2, 3]
    assert not settled.rests
    careful = THRESHOLDS[Eagerness.CAREFUL]
    monkeypatch.setitem(THRESHOLDS, Eagerness.CAREFUL, replace(careful, rest=0.6))
    result, _ = searched(crowded(3), inFlight=1)
    # The second wave has brought half of what the plan has gained by then.
    assert [chosen.wave for chosen in result.chosen] == [1, 2]
    assert result.rests


def test_what_the_run_has_no_budget_for_waits_for_a_further_run():
    result, _ = searched(crowded(3), perRun=1)
    assert len(result.chosen) == 1
    assert len(result.left.waiting_classes) == 2
    assert {one.refusal.code for one in refusals(result.left)} == {Code.BUDGET}


def test_what_waits_is_noted_once_it_is_asked_for():
    problem = problem_of([*NODES, *crowded(3)], strategies=["duplicates"])
    draft = Draft(problem, Settings(budgets=Budgets.model_validate(WIDE | {"perRun": 1})))
    late: list[str | None] = [None]
    result = search(draft, Effort(), lambda: late[0], None)
    assert len(result.chosen) == 1
    changes = draft.state.version
    # The time that evictions take in between does not cut the plan.
    late[0] = "no time is left"
    left = result.left()
    assert len(left.waiting_classes) == len(refusals(left)) == 2
    assert draft.allowance.stopped is None
    assert draft.state.version == changes


def test_what_would_land_where_it_is_once_the_others_are_full_is_refused():
    room_for_one = [
        *crowded(2, cpu="1"),
        *workload("f1", ["n1"], cpu="3"),
        *workload("f2", ["n2"], cpu="4"),
        *workload("f3", ["n3"], cpu="4"),
    ]
    result, _ = searched(room_for_one)
    (chosen,) = result.chosen
    (refused,) = refusals(result.left)
    assert chosen.landings.nodes.tolist() == [1]
    assert (refused.strategy, refused.refusal.code) == ("duplicates", Code.COMES_BACK)


@pytest.mark.parametrize(("in_vain", "for_balance"), [(100, True), (0, False)])
def test_vain_judgements_end_moves_for_balance_alone(in_vain, for_balance):
    full = [each for i in range(6) for each in workload(f"f{i}", ["n0", "n1"], cpu="500m")]
    objects = [*NODES, *crowded(cpu="100m"), *full]
    problem = problem_of(objects, strategies=["duplicates", "low-utilisation"])
    draft = Draft(problem, Settings(budgets=Budgets.model_validate(WIDE)))
    first, *others = search(draft, Effort(in_vain=in_vain), lambda: None, None).chosen
    assert draft.snapshot.pod_ref(first.pod).startswith("default/w0")
    assert bool(others) == for_balance


def test_moves_for_balance_of_one_large_owner_share_waves():
    """All rows are of one class: each move opens again the rows of it that promise a rule, and whose landing is too unsure."""
    drawn = load_snapshot("-", stdin=io.BytesIO(cluster_of(702, nodes=300, pods=4500)))
    moves = planned(drawn, lifted=True)[0].moves
    assert len(moves) > 200
    assert max(move.wave for move in moves) < 10


def test_a_strategy_that_observes_plans_behind_the_others_and_is_marked():
    result, _ = searched(crowded(2), observed=("duplicates",))
    assert [chosen.observed for chosen in result.chosen] == [True, True]


def test_it_ends_when_it_must():
    result, _ = searched(crowded(3), stop=lambda: "the time is over")
    assert not result.chosen


@pytest.mark.parametrize(("most", "landings"), [(None, 3), (2, 2)])
def test_so_many_landings_are_kept(most, landings):
    result, _ = searched(crowded(1), most=most)
    (chosen,) = result.chosen
    assert len(chosen.landings.nodes) == landings
