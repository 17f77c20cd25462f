"""What the policy of a namespace takes away from the cluster's: of its own pods some moves, of others none."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.planner.planning import make_plan
from rebalancer.policy.namespace import read_namespace_policy
from rebalancer.registry import Registry
from rebalancer.snapshot.protect import names_of
from rebalancer.testing.snapshots import ZONE, node, snapshot_of, spread, workload
from tests.unit.planner.test_planning import rules_of

# Counts, since a share is of all movable pods.
CLUSTER = """\
namespacePolicies: [shop]
budgets: {inFlight: 50, perNode: 50, perOwner: 3, perRun: 50, perHour: 50}
protect: {minPodAge: 0s}
strategies:
  topology-spread: {}
  duplicates: {}
"""
HEAD = {"apiVersion": "rebalancer/v1", "kind": "Policy"}
# Snapshots are of 2027-01-15, 08:00 UTC.
OPEN, SHUT = {"allow": "0 7 * * *", "for": "2h"}, {"allow": "0 20 * * *", "for": "2h"}


def of_namespace(namespace, app, more=None):
    """A workload of six pods, crowded on one of four nodes that are for its namespace."""
    nodes = [node(f"{namespace}-{n}", f"z{n % 2}", labels={"pool": namespace}) for n in range(4)]
    spec = {"nodeSelector": {"pool": namespace}, **spread(app, ZONE), **(more or {})}
    names = [nodes[0]["metadata"]["name"]] * 6
    return [*nodes, *workload(app, names, namespace=namespace, spec=spec, labels={"app": app})]


SNAPSHOT = snapshot_of([*of_namespace("shop", "cart"), *of_namespace("bank", "till")])
SHOP = np.array([SNAPSHOT.classes[cls].namespace == "shop" for cls in SNAPSHOT.pods.cls])


def rules_with(team):
    rules = rules_of(CLUSTER)
    if team is None:
        return rules
    text = yaml.safe_dump(HEAD | team)
    read = read_namespace_policy(text, "shop", rules.policy, Registry.installed())
    assert not read.problems
    return replace(rules, narrowed={"shop": read.policy})


def plan(rules):
    return make_plan(rules, SNAPSHOT, Timings(SystemClock())).plan


def may_move(rules):
    """Per strategy which pods (P,) it may move."""
    problem = rules.problem(SNAPSHOT)
    every = np.ones(len(SNAPSHOT.pods), bool)
    return {
        of.strategy: problem.movable
        & (every if of.selected is None else of.selected.pods(SNAPSHOT))
        for of in problem.contributions
    }


ALONE = plan(rules_with(None))


def test_rules_count_pods_that_wait_for_a_window_as_pods_that_will_move():
    assert not ALONE.before["topology-spread"].unsatisfiable
    shut = plan(rules_with({"windows": [SHUT]}))
    assert shut.before == ALONE.before
    assert {move.namespace for move in shut.moves} == {"bank"}


@pytest.mark.parametrize(
    ("team", "moves"),
    [
        ({}, True),
        ({"mode": "enforce"}, True),
        ({"mode": "observe"}, False),
        ({"mode": "off"}, False),
        ({"windows": [OPEN]}, True),
        ({"windows": [SHUT]}, False),
        ({"budgets": {"perRun": 0}}, False),
        ({"budgets": {"perRun": 50, "perOwner": "100%"}}, True),
        ({"budgets": {"perOwner": 0}}, False),
        ({"protect": {"minPodAge": "1h"}}, True),
        ({"protect": {"minPodAge": "3000d"}}, False),
        # What is wider than the cluster's policy has no effect.
        ({"protect": {"minPodAge": "0s", "volumes": False, "singleReplicas": False}}, True),
        ({"protect": {"pods": [{"labels": {"app": "cart"}}]}}, False),
        ({"protect": {"pods": [{"labels": {"app": "till"}}]}}, True),
        ({"strategies": {"duplicates": {"mode": "off"}, "topology-spread": {}}}, True),
        (
            {
                "strategies": {
                    "duplicates": {"mode": "observe"},
                    "topology-spread": {"windows": [SHUT]},
                }
            },
            False,
        ),
        # It is none of those that the cluster's policy has.
        ({"strategies": {"low-utilisation": {"mode": "off"}}}, True),
    ],
)
def test_what_a_team_writes_holds_for_its_pods_and_no_others(team, moves):
    made = plan(rules_with(team))
    assert bool([move for move in made.moves if move.namespace == "shop"]) is moves
    theirs = [move for move in made.moves if move.namespace == "bank"]
    assert theirs == [move for move in ALONE.moves if move.namespace == "bank"]
    assert theirs


@pytest.mark.parametrize("most", [1, 2])
def test_a_run_moves_no_more_of_its_pods_than_it_lets(most):
    made = plan(rules_with({"budgets": {"perRun": most}}))
    assert sum(move.namespace == "shop" for move in made.moves) == most
    assert any("perNamespace" in skip.message for skip in made.skips)


def test_one_at_a_time():
    made = plan(rules_with({"budgets": {"perOwner": 1}}))
    waves = [move.wave for move in made.moves if move.namespace == "shop"]
    assert len(waves) == len(set(waves)) > 1


def test_pods_that_a_policy_holds_say_so():
    made = plan(rules_with({"mode": "observe"}))
    messages = {skip.message for skip in made.skips if skip.namespace == "shop"}
    assert messages
    assert all("the policy in its namespace lets no pod move now" in text for text in messages)


MODES = st.sampled_from(["enforce", "observe", "off"])
WINDOWS = st.lists(st.sampled_from([OPEN, SHUT, {"deny": "0 7 * * *", "for": "3h"}]), max_size=2)
LIMITS = st.one_of(st.integers(0, 60), st.sampled_from(["0%", "1%", "50%", "100%"]))
SWITCHES = st.sampled_from([True, False, {"except": {"labels": {"app": "cart"}}}])
ANY_OF_BOTH = st.sampled_from([{"labels": {"app": app}} for app in ("cart", "till")])
TEAMS = st.fixed_dictionaries(
    {},
    optional={
        "mode": MODES,
        "windows": WINDOWS,
        "budgets": st.fixed_dictionaries({}, optional={"perRun": LIMITS, "perOwner": LIMITS}),
        "protect": st.fixed_dictionaries(
            {},
            optional={
                "minPodAge": st.sampled_from(["0s", "5m", "3000d"]),
                "volumes": SWITCHES,
                "localStorage": SWITCHES,
                "singleReplicas": SWITCHES,
                "systemCritical": SWITCHES,
                "jobs": SWITCHES,
                "gangs": SWITCHES,
                "pods": st.lists(ANY_OF_BOTH, max_size=2),
            },
        ),
        "strategies": st.dictionaries(
            st.sampled_from(["topology-spread", "duplicates", "taints"]),
            st.fixed_dictionaries({}, optional={"mode": MODES, "windows": WINDOWS}),
        ),
    },
)


@given(TEAMS)
@settings(max_examples=60, deadline=None)
def test_what_a_team_writes_takes_moves_away_and_adds_none(team):
    before, after = may_move(rules_with(None)), may_move(rules_with(team))
    for strategy, pods in after.items():
        assert not (pods & ~before[strategy]).any()
        assert (pods[~SHOP] == before[strategy][~SHOP]).all()
    made = plan(rules_with(team))
    theirs, others = [
        [repr(one) for one in of if one.namespace == "bank"] for of in (made.moves, ALONE.moves)
    ]
    assert theirs == others


@given(TEAMS)
@settings(max_examples=60, deadline=None)
def test_protections_of_the_cluster_stay(team):
    before, after = (rules_with(of).problem(SNAPSHOT).protected.tolist() for of in (None, team))
    for one, other in zip(before, after, strict=True):
        assert set(names_of(one)) <= set(names_of(other))
