"""With -n, -l or --select a plan speaks of the rules and pods of these alone, and says how many others it leaves out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Plan
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import load_text, parse_select
from rebalancer.policy.select import parse_selector
from rebalancer.registry import Registry
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import ZONE, node, snapshot_of, spread, workload

POLICY = b"""apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
strategies: {topology-spread: {}, duplicates: {}, anti-affinity: {}}
"""
NODES = [node(f"m{i}", zone) for i, zone in enumerate("xxyyzz")]
NAMES = ("blue", "green", "red")


def plan(objects: Sequence[Any], scope: Scope) -> Plan:
    registry = Registry.installed()
    rules = RunRules(load_text(POLICY, "policy", registry), registry, scope)
    return make_plan(rules, snapshot_of(objects), Timings(SystemClock())).plan


def skewed(namespace: str, name: str = "shop", on: Sequence[str] = ("m0", "m0", "m2")) -> list[Any]:
    return workload(name, list(on), namespace=namespace, spec=spread(name, ZONE))


def unmet(plan: Plan) -> int:
    return sum(score.violated for score in plan.before.values())


SCOPES: list[tuple[str, Callable[[], Scope]]] = [
    ("-n green", lambda: Scope(namespace="green")),
    ("-l", lambda: Scope(selector=parse_selector("app=till").wire())),
    ("--select", lambda: Scope(select=parse_select("{namespaces: [green]}", "--select"))),
]


@pytest.mark.parametrize(("flags", "scope"), SCOPES)
def test_only_what_the_flags_select_is_counted_and_named(flags, scope):
    objects = [*NODES, *skewed("blue"), *skewed("green", "till"), *skewed("red", "shed")]
    every, ours = plan(objects, Scope()), plan(objects, scope())
    assert unmet(ours) == unmet(every) / 3 > 0
    assert {move.namespace for move in ours.moves} == {"green"}
    assert {skip.namespace for skip in ours.skips} <= {"green"}
    assert {rule.workload for rule in ours.unmet} <= {"Deployment/green/till"}
    left_out = unmet(every) - unmet(ours)
    other = "namespaces" if flags.startswith("-n") else "pods"
    assert ours.elsewhere == f"{left_out} unmet rules of other {other} are not shown ({flags})."
    assert every.elsewhere == ""
    assert ours.funnel["pods"] == 3


def test_a_rule_that_stays_is_never_kept_by_the_flag():
    opted_out = workload(
        "till", ["m0", "m0"], namespace="green", spec=spread("till", ZONE),
        annotations={"rebalancer/evict": "false"},
    )  # fmt: skip
    made = plan([*NODES, *skewed("blue"), *opted_out], Scope(namespace="green"))
    assert made.skips
    assert all(skip.message.startswith("optedOut") for skip in made.skips)


@pytest.mark.parametrize(("namespace", "is_there"), [("green", True), ("gren", False)])
def test_where_no_pod_matches_the_plan_says_so(namespace, is_there):
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "green"}}
    made = plan([*NODES, *skewed("blue"), space], Scope(namespace=namespace))
    assert made.stopped == f"Nothing to do: no pod matches -n {namespace}."
    assert (unmet(made), made.unmet, made.skips, made.moves) == (0, (), (), ())
    assert made.elsewhere == f"2 unmet rules of other namespaces are not shown (-n {namespace})."
    assert any("no such namespace" in text for text in made.warnings) is not is_there


PLACES = st.lists(st.sampled_from([f"m{i}" for i in range(6)]), min_size=1, max_size=4)


@settings(max_examples=25)
@given(places=st.fixed_dictionaries(dict.fromkeys(NAMES, PLACES)))
def test_the_parts_that_namespaces_have_of_the_rules_add_up(places):
    objects = [*NODES, *(pod for name in NAMES for pod in skewed(name, on=places[name]))]
    whole = plan(objects, Scope())
    parts = [plan(objects, Scope(namespace=name)) for name in NAMES]
    assert sum(map(unmet, parts)) == unmet(whole)
    costs = [sum(s.cost.soft + s.cost.hard for s in one.before.values()) for one in (whole, *parts)]
    assert costs[0] == pytest.approx(sum(costs[1:]))
    assert sum(one.funnel["candidates"] for one in parts) == whole.funnel["candidates"]


@pytest.mark.parametrize(
    "text", ["protect: {minPodAge: 0s}", "protect: {minPodAge: 1000h}", "mode: observe"]
)
def test_how_many_pods_have_an_unmet_rule_is_of_the_cluster_and_not_of_the_plan(text):
    registry = Registry.installed()
    body = (
        f"apiVersion: rebalancer/v1\nkind: Policy\n{text}\nstrategies: {{topology-spread: {{}}}}\n"
    )
    rules = RunRules(load_text(body.encode(), "policy", registry), registry, Scope())
    snapshot = snapshot_of([*NODES, *skewed("blue"), *skewed("green", on=["m0", "m2", "m4"])])
    made = make_plan(rules, snapshot, Timings(SystemClock())).plan
    assert made.funnel["candidates"] == 2


@pytest.mark.parametrize(
    ("scope", "hidden"), [(Scope(), ""), (Scope(namespace="green"), "2 unmet ")]
)
def test_a_plan_of_one_strategy_says_which_others_are_not_judged(scope, hidden):
    registry = Registry.installed()
    loaded = replace(load_text(POLICY, "policy", registry), left_out=("taints",))
    snapshot = snapshot_of([*NODES, *skewed("blue"), *skewed("green")])
    made = make_plan(RunRules(loaded, registry, scope), snapshot, Timings(SystemClock())).plan
    assert (
        made.stopped
        == "After these moves every rule of anti-affinity, duplicates, topology-spread holds."
    )
    assert made.elsewhere.startswith(hidden)
    assert made.elsewhere.endswith("Not judged, because of flags: taints.")
