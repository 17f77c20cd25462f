"""Moves by measured use that only carry the overload along: as predicted each time, and yet without effect."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.commands.history import document_of
from rebalancer.cost.streaks import Streaks
from rebalancer.plan.plan import Cost
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import History, RunRules
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.load import load_policy
from rebalancer.run.memory.document import Document
from rebalancer.run.memory.remember import (
    FIRST_COOL_DOWN,
    FULFILLED_AFTER,
    STRIKES,
    after_run,
    describe_cooling,
    forget_stale,
    recall_streaks,
)
from rebalancer.snapshot.model import Usage
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import node, snapshot_of, spread, workload
from rebalancer.whatif.cycles import carry_out
from rebalancer.whatif.world import SimulatedCluster
from tests.unit.run.memory.outcomes import NOW, WEB, cluster, outcome
from tests.unit.whatif.play import REGISTRY

LOW = "low-utilisation"
TERM = f"{LOW}/imbalance"
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
strategies: {low-utilisation: {signal: usage, runs: 3}}
"""


def moved(landed="n1"):
    of = outcome(landed=landed, gain=Cost(0.0, 0.0, 1.0))
    return replace(of, move=replace(of.move, strategy=LOW))


def later(document, hot, *outcomes, at):
    return after_run(document, cluster(), {LOW: Streaks(at, dict.fromkeys(hot, 1))}, outcomes, at)


def term(document):
    return document.owners[WEB].terms[TERM]


def test_where_the_overload_went_along_the_owner_rests():
    document = later(Document(), ["n0"], moved(), at=NOW)
    assert term(document).hopes == ("n1",)
    document = later(document, ["n1"], at=NOW + 120)
    assert (term(document).hopes, term(document).vain) == ((), 1)
    why = describe_cooling(document, NOW + 120)[WEB]
    assert "n1, where it went, is over-used now" in why
    assert "1 move (1 as predicted, 1 without effect)" in document_of(document, NOW + 120).show(
        "table"
    )
    assert describe_cooling(document, NOW + 121 + FIRST_COOL_DOWN) == {}


def test_each_time_it_rests_for_longer_although_it_lands_as_predicted_until_it_is_given_up():
    document, now, pauses = Document(), NOW, []
    for _ in range(STRIKES):
        document = later(document, ["n0"], moved(), at=now)
        document = later(document, ["n1"], at=now + 120)
        pauses.append(term(document).until - now - 120)
        now += 86_400
    assert pauses[:-1] == [FIRST_COOL_DOWN * 2**k for k in range(STRIKES - 1)]
    assert term(document).as_predicted == STRIKES
    assert "runs in a row did not do what was predicted" in term(document).given_up


def test_where_the_node_stays_well_it_is_as_if_nothing_had_been():
    document = later(Document(), ["n0"], moved(), at=NOW)
    document = later(document, ["n1"], at=NOW + 120)
    document = later(document, ["n0"], moved(), at=NOW + 1000)
    document = later(document, ["n0"], at=NOW + 1120)
    assert term(document).hopes == ("n1",)
    document = later(document, ["n0"], at=NOW + 1001 + FULFILLED_AFTER)
    assert (term(document).hopes, term(document).vain) == ((), 0)
    # What happens to the node later is not its doing.
    assert later(document, ["n1"], at=NOW + 5000).owners == document.owners


def test_of_a_node_that_was_over_used_before_nothing_was_hoped():
    assert term(later(Document(), ["n0", "n1"], moved(), at=NOW)).hopes == ()


@pytest.mark.parametrize("streaks", [{}, {"other": Streaks(NOW, {"n1": 3})}])
def test_what_others_see_judges_nothing(streaks):
    document = later(Document(), ["n0"], moved(), at=NOW)
    after = after_run(document, cluster(), streaks, (), NOW + 120)
    assert after.owners == document.owners


def measured(world, leader):
    """Every node is used by a tenth; the leader uses six tenths of one, its followers a twentieth."""
    snapshot = world.snapshot
    use = np.full(len(world.node), 200)
    use[leader] = 2400
    nodes = np.full((2, len(snapshot.nodes)), 400, np.int64)
    np.add.at(nodes[0], world.node, use)
    mean = [
        int(use[snapshot.pods.cls[: len(use)] == cls].mean())
        for cls in range(len(snapshot.classes))
    ]
    classes = np.array([mean, np.ones(len(mean))], np.int64)
    known = np.ones(len(snapshot.nodes), bool)
    return replace(snapshot, usage=Usage(nodes, known, classes, world.now))


def test_a_leader_that_takes_its_work_along_is_given_up_not_chased_for_ever(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    loaded = load_policy(str(path), REGISTRY)
    nodes = [node(f"n{i}", "a") for i in range(4)]
    # Its own constraint switches the default spreading over hosts off: the scheduler goes by requests alone.
    web = workload("web", ["n0", "n1"], cpu="400m", spec=spread("web"))
    objects = [*nodes, *web]
    world = SimulatedCluster(
        snapshot_of(objects), lambda of: scheduler_profile(loaded.policy, of), None
    )
    rules = RunRules(loaded, REGISTRY, Scope())
    document, evictions = Document(), []
    for _ in range(24 * 6):
        snapshot = measured(world, leader=0)
        document = forget_stale(document, snapshot)
        cooling = describe_cooling(document, world.now)
        history = History(cooling, streaks=recall_streaks(document))
        planned = make_plan(rules, snapshot, Timings(SystemClock()), history=history)
        done, _ = carry_out(world, planned.plan.moves, lambda left: [(m, None) for m in left])
        outcomes = done.outcomes
        document = after_run(document, snapshot, planned.streaks, outcomes, world.now)
        evictions.append(len(outcomes))
        world.wait(600)
    assert 1 < sum(evictions) <= STRIKES
    assert sum(evictions[len(evictions) // 2 :]) == 0
    assert msgspec.structs.asdict(next(iter(document.owners.values())).terms[TERM])["given_up"]
