"""Pods on nodes that scale-in takes out, on clusters of three nodes."""

import json

import pytest

from rebalancer.registry import Registry
from rebalancer.testing.contract import check_strategy, sample_snapshots
from rebalancer.testing.snapshots import NOW, node, snapshot_of, workload
from strategies.leaving import LeavingParams
from strategies.scale_in import ScaleInParams
from tests.unit.planner.conftest import plan_of

NAME = "scale-in"
WEB = workload("web", ["n0", "n1"])
TAINT = {"key": "rebalancer/scale-in", "effect": "NoSchedule"}


def at(phase, name="n0"):
    """A node at a phase, closed where the phase is one of closed nodes."""
    closed = phase in ("leaving", "ending")
    made = node(name, unschedulable=closed, taints=[TAINT] if closed else ())
    state = {"phase": phase, "since": NOW, "at": NOW, "cordoned": closed}
    made["metadata"]["annotations"] = {"rebalancer/scale-in": json.dumps(state)}
    return made


def plan(objects, *names):
    params = {"leaving": LeavingParams(), NAME: ScaleInParams()}
    return plan_of(objects, strategies=list(names), params={name: params[name] for name in names})


@pytest.mark.parametrize("phase", ["leaving", "ending"])
def test_pods_leave_a_node_that_is_taken_out(phase):
    result = plan([at(phase), node("n1"), node("n2"), *WEB], NAME)
    assert [(one.node, one.landings[0].node) for one in result.moves] == [("n0", "n2")]
    assert "n0 is removed from its group" in result.moves[0].reason
    assert result.after[NAME].cost.hard == 0


def test_leaving_leaves_it_to_scale_in():
    """Each pod pays once, and by the budgets of one strategy."""
    assert plan([at("leaving"), node("n1"), node("n2"), *WEB], "leaving").moves == ()


def test_no_pod_is_sent_to_a_node_that_is_taken_out():
    objects = [at("leaving", "n2"), at("leaving"), node("n1"), *WEB]
    landings = {to.node for one in plan(objects, NAME).moves for to in one.landings}
    assert landings == {"n1"}


@pytest.mark.parametrize("value", ["", "now", "{}", '{"phase": "gone"}', "[" * 200_000])
def test_what_cannot_be_read_is_no_state(value):
    made = node("n0")
    made["metadata"]["annotations"] = {"rebalancer/scale-in": value}
    assert snapshot_of([made]).nodes.notices == {}


def test_keeps_the_contract_where_nodes_are_taken_out():
    strategy = Registry.installed().strategy(NAME)
    of_nodes = [at("leaving"), at("ending", "n1"), node("n2"), *WEB]
    check_strategy(strategy, snapshots=[*sample_snapshots(), snapshot_of(of_nodes)])
