"""All pods count, only selected ones move: several instances of a strategy, each with a select of its own."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Code
from rebalancer.planner.planning import make_plan
from rebalancer.planner.recheck import recheck
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import disruption_budget, node, snapshot_of, spread, workload

REGISTRY = Registry.installed()
NODES = [
    node("a1", "a"),
    node("a2", "a", labels={"pool": "spot"}),
    node("b1", "b"),
    node("b2", "b"),
]


def planned(objects, text, *, scope=None):
    head = "apiVersion: rebalancer/v1\nkind: Policy\n"
    loaded = load_text((head + text).encode(), "policy", REGISTRY)
    rules = RunRules(loaded, REGISTRY, scope or Scope(), lifted=True)
    return make_plan(rules, snapshot_of(objects), Timings(SystemClock())).plan


def crowded(name, namespace="default", **more):
    """Three replicas in zone a, none in zone b, as its hard constraint forbids."""
    return workload(
        name, ["a1", "a1", "a2"], namespace=namespace, spec=spread(name, hard=True), **more
    )


def moved(plan):
    return {(move.namespace, move.owner.rpartition("/")[2]) for move in plan.moves}


@pytest.mark.parametrize(
    ("select", "names"),
    [
        ("{}", {"one", "two"}),
        ("{namespaces: [shop]}", {"two"}),
        ("{namespaces: [s*]}", {"two"}),
        ("{namespaces: {exclude: [shop]}}", {"one"}),
        ("{namespaces: {labels: {team: red}}}", {"two"}),
        (
            "{namespaces: {labels: {matchExpressions: [{key: team, operator: DoesNotExist}]}}}",
            {"one"},
        ),
        ("{labels: {app: one}}", {"one"}),
        ("{labels: {matchExpressions: [{key: app, operator: NotIn, values: [one]}]}}", {"two"}),
        ("{priority: {below: 100}}", {"one"}),
        ("{priority: {below: high}}", {"one"}),
        ("{priority: {below: unheard-of}}", set()),
        ("{minReplicas: 3}", {"one", "two"}),
        ("{minReplicas: 4}", set()),
        ("{ownerKinds: [Deployment]}", {"one"}),
        ("{ownerKinds: {exclude: [ReplicaSet]}}", {"two"}),
        ("{podDisruptionBudget: true}", {"two"}),
        ("{podDisruptionBudget: false}", {"one"}),
    ],
)
def test_only_selected_pods_are_moved(select, names):
    budget = {
        "kind": "PodDisruptionBudget",
        "apiVersion": "policy/v1",
        "metadata": {"name": "two", "namespace": "shop", "generation": 1},
        "spec": {"maxUnavailable": 3, "selector": {"matchLabels": {"app": "two"}}},
        "status": {
            "disruptionsAllowed": 3,
            "currentHealthy": 3,
            "desiredHealthy": 0,
            "expectedPods": 3,
            "observedGeneration": 1,
        },
    }
    namespaces = [
        {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in [
            ("default", {"kubernetes.io/metadata.name": "default"}),
            ("shop", {"kubernetes.io/metadata.name": "shop", "team": "red"}),
        ]
    ]
    two = crowded("two", "shop", kind="StatefulSet", priority=100)
    for pod in two:
        if pod["kind"] == "Pod":
            pod["spec"]["priorityClassName"] = "high"
    objects = [*NODES, *crowded("one"), *two, budget, *namespaces]
    plan = planned(objects, f"strategies: {{topology-spread: {{select: {select}}}}}")
    assert {name for _, name in moved(plan)} == names
    whole = planned(objects, f"select: {select}\nstrategies: {{topology-spread: {{}}}}")
    assert {name for _, name in moved(whole)} == names


def test_nodes_are_where_the_pod_stands():
    objects = [*NODES, *crowded("one")]
    plan = planned(objects, "strategies: {topology-spread: {select: {nodes: {pool: spot}}}}")
    assert [move.node for move in plan.moves] == ["a2"]


def test_unselected_pods_count_and_the_reason_is_named():
    # Two pods of each track are in zone a, none in zone b: two have to go.
    objects = [*NODES]
    for track, places in (("old", ["a1", "a2"]), ("new", ["a1", "a2"])):
        objects += workload(
            f"web-{track}",
            places,
            labels={"app": "web", "track": track},
            spec=spread("web", hard=True),
        )
    text = "strategies: {topology-spread: {select: {labels: {track: new}}}}"
    plan = planned(objects, text)
    assert moved(plan) == {("default", "web-new")}
    assert len(plan.moves) == 2


def test_an_unselected_pod_that_a_rule_names_has_a_reason():
    # One selected replica is in zone a beside three that are not: they stay, and say why.
    objects = [*NODES, *workload("one", ["a1", "a1", "a2", "a2"], spec=spread("one", hard=True))]
    text = "strategies: {topology-spread: {select: {nodes: {pool: spot}}}}"
    plan = planned(objects, f"budgets: {{perOwner: 1}}\n{text}")
    assert {move.node for move in plan.moves} == {"a2"}
    text = "mode: observe\nstrategies: {duplicates: {select: {nodes: {pool: none}, labels: {app: one}}}}"
    skips = planned(objects, text).skips
    assert {skip.code for skip in skips} == {Code.NOT_SELECTED}
    assert {skip.message for skip in skips} == {"the select of duplicates does not match it"}


def test_unselected_pods_are_named_where_they_keep_a_rule_from_holding():
    objects = [*NODES, node("c1", "c"), *workload("one", ["a1", "a1", "b1"], spec=spread("one"))]
    objects += workload("pinned", ["a1", "a2"], labels={"app": "one"}, spec=spread("one"))
    text = "strategies: {topology-spread: {select: {nodes: {pool: spot}}}}"
    (why,) = planned(objects, text).after["topology-spread"].unsatisfiable
    assert "4 of 5 pods cannot be moved (the select of topology-spread does not match it)" in why


def test_the_instances_of_a_strategy_report_under_their_names():
    objects = [*NODES, *crowded("one"), *crowded("two", "shop")]
    text = """
strategies:
  spread-shop: {strategy: topology-spread, select: {namespaces: [shop]}}
  spread-rest: {strategy: topology-spread, select: {namespaces: {exclude: [shop]}}, mode: observe}
"""
    plan = planned(objects, text)
    assert {(m.namespace, m.strategy, m.observed) for m in plan.moves} == {
        ("shop", "spread-shop", False),
        ("default", "spread-rest", True),
    }
    assert {name: score.violated for name, score in plan.before.items()} == {
        "spread-shop": 1,
        "spread-rest": 1,
    }


def test_what_gains_only_in_a_strategy_that_may_not_move_it_stays():
    # Both replicas on one node: the strategy that minds may not touch the pods; the other does not mind.
    objects = [*NODES, *workload("one", ["a1", "a1"])]
    text = """
strategies:
  duplicates: {select: {namespaces: [other]}}
  low-utilisation: {}
"""
    assert planned(objects, text).moves == ()
    assert planned(objects, "strategies: {duplicates: {}}").moves != ()


def test_a_select_that_matches_nothing_is_a_warning():
    text = "strategies: {topology-spread: {select: {namespaces: [shpo]}}}"
    warnings = planned([*NODES, *crowded("one")], text).warnings
    assert "strategies.topology-spread.select matches no pod" in warnings


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "strategies: {topology-spread: {select: {namespaces: [nowhere]}}}\n",
            "Nothing could be judged: select matches no pod.",
        ),
        (
            "strategies: {duplicates: {}, topology-spread: {select: {namespaces: [nowhere]}}}\n",
            (
                "After these moves every rule that could be judged holds. "
                "Not judged: topology-spread (select matches no pod)."
            ),
        ),
        (
            "strategies: {topology-spread: {select: {labels: {app: two}}}}\n",
            "Nothing to do: every rule of the pods that its strategy selects holds.",
        ),
    ],
)
def test_no_rule_is_said_to_hold_that_select_leaves_out(text, line):
    spread_out = workload("two", ["a1", "b1"], spec=spread("two", hard=True))
    plan = planned([*NODES, *crowded("one"), *spread_out], text)
    assert plan.stopped == line


def test_protected_pods_are_named_by_the_same_words():
    objects = [*NODES, *crowded("one"), *crowded("two", "shop")]
    text = "protect: {pods: [{namespaces: [shop]}]}\nstrategies: {topology-spread: {}}"
    assert moved(planned(objects, text)) == {("default", "one")}


def test_budgets_per_namespace_and_node_are_of_the_run_and_one_per_zone_is_of_a_wave():
    objects = [*NODES]
    for index in range(3):
        objects += crowded(f"shop{index}", "shop")
    objects += crowded("other")
    strategies = "strategies: {topology-spread: {}}"
    plan = planned(objects, strategies)
    assert len(plan.moves) == 4
    planning = f"budgets: {{perNamespace: 2}}\n{strategies}"
    head = "apiVersion: rebalancer/v1\nkind: Policy\n"
    loaded = load_text((head + planning).encode(), "policy", REGISTRY)
    rules = RunRules(loaded, REGISTRY, Scope())
    limited = make_plan(rules, snapshot_of(objects), Timings(SystemClock())).plan
    assert sorted(move.namespace for move in limited.moves) == ["default", "shop", "shop"]
    assert {s.message for s in limited.skips if s.code is Code.BUDGET} == {"perNamespace 2 in shop"}
    by_zone = planned(objects, f"budgets: {{perZone: 1}}\n{strategies}")
    assert sorted(move.wave for move in by_zone.moves) == [1, 2, 3, 4]
    by_node = planned(objects, f"budgets: {{perNodeInRun: 1}}\n{strategies}")
    assert sorted(move.node for move in by_node.moves) == ["a1", "a2"]
    kept = {skip.message for skip in by_node.skips if skip.code is Code.BUDGET}
    assert kept == {f"perNodeInRun 1 from {name}" for name in ("a1", "a2")}


def test_a_closed_window_says_when_the_next_one_opens():
    # snapshot_of takes 2027-01-15T08:00:00Z by default.
    text = """
windows: [{allow: "0 22 * * *", for: 8h}]
strategies: {topology-spread: {windows: [{deny: "0 0 * * 5", for: 24h}]}}
"""
    plan = planned([*NODES, *crowded("one")], text)
    assert all(move.observed for move in plan.moves)
    assert plan.warnings[-1] == (
        "all strategies: outside every window, the next one opens at 2027-01-16T00:00:00Z"
    )


def rechecked(objects, text, moves):
    head = "apiVersion: rebalancer/v1\nkind: Policy\n"
    loaded = load_text((head + text).encode(), "policy", REGISTRY)
    rules, snapshot = RunRules(loaded, REGISTRY, Scope(), lifted=True), snapshot_of(objects)
    return recheck(rules.problem(snapshot), rules.settings(), moves)


def test_a_pod_that_no_strategy_selects_any_more_is_dropped_between_waves():
    objects = [*NODES, *crowded("one")]
    select = "strategies: {topology-spread: {select: {nodes: {pool: spot}}}}"
    (move,) = planned(objects, select).moves
    assert [why for _, why in rechecked(objects, select, [move])] == [None]
    label = node("a2", "a", labels={"pool": "other"})
    changed = [label if item["metadata"]["name"] == "a2" else item for item in objects]
    assert [why for _, why in rechecked(changed, select, [move])] == ["no strategy selects it now"]


def test_no_pod_is_moved_out_of_the_way_unless_a_strategy_selects_it_and_the_other():
    objects = [*NODES, *crowded("one")]
    (move,) = planned(objects, "strategies: {topology-spread: {}}").moves
    pods = [item for item in objects if item["kind"] == "Pod"]
    other = next(pod for pod in pods if pod["spec"]["nodeName"] != move.node)
    first = replace(move, makes_way_for=other["metadata"]["uid"])
    # One strategy for the node of each.
    places = {f"on-{n}": {"kubernetes.io/hostname": n} for n in ("a1", "a2")}
    strategies = {
        name: {"strategy": "topology-spread", "select": {"nodes": labels}}
        for name, labels in places.items()
    }
    text = f"strategies: {strategies!r}".replace("'", '"')
    [(_, why)] = rechecked(objects, text, [first])
    assert why == "no strategy selects it and the pod that it goes first for"
    [(_, why)] = rechecked(objects, "strategies: {topology-spread: {}}", [first])
    assert why != "no strategy selects it and the pod that it goes first for"


def test_no_pod_is_moved_out_of_the_way_by_the_select_of_a_strategy_that_only_observes():
    objects = [*NODES, *crowded("one")]
    (move,) = planned(objects, "strategies: {topology-spread: {}}").moves
    pods = [item for item in objects if item["kind"] == "Pod"]
    other = next(pod for pod in pods if pod["spec"]["nodeName"] != move.node)
    first = replace(move, makes_way_for=other["metadata"]["uid"])
    place = other["spec"]["nodeName"]
    text = f"""
strategies:
  enforced: {{strategy: topology-spread, select: {{nodes: {{kubernetes.io/hostname: {place}}}}}}}
  watched: {{strategy: topology-spread, mode: observe}}
"""
    [(_, why)] = rechecked(objects, text, [first])
    assert why == "no strategy selects it and the pod that it goes first for"


def test_no_pod_is_moved_by_the_select_of_a_strategy_that_only_observes():
    objects = [*NODES, *crowded("one")]
    (move,) = planned(objects, "strategies: {topology-spread: {}}").moves
    text = """
strategies:
  enforced: {strategy: topology-spread, select: {namespaces: [other]}}
  watched: {strategy: topology-spread, mode: observe}
"""
    [(_, why)] = rechecked(objects, text, [move])
    assert why is not None


# -- whatever the policy ------------------------------------------------------------------------------------

selects = st.fixed_dictionaries(
    {},
    optional={
        "namespaces": st.sampled_from([["n0"], ["n1"], {"exclude": ["n0"]}]),
        "labels": st.sampled_from([{"app": "w0"}, {"app": "w1"}]),
        "nodes": st.sampled_from([{"pool": "spot"}, {"topology.kubernetes.io/zone": "a"}]),
        "priority": st.just({"below": 5}),
        "minReplicas": st.integers(2, 4),
        "ownerKinds": st.sampled_from([["Deployment"], ["StatefulSet"]]),
        "podDisruptionBudget": st.booleans(),
    },
)
OPTIONS: dict[str, dict[str, Any]] = {
    "topology-spread": {},
    "duplicates": {},
    "anti-affinity": {},
    "low-utilisation": {},
    "node-affinity": {},
    "taints": {},
    "placement": {"avoid": {"pool": "spot"}},
    "lifetime": {"maxPodLifeTime": "1m"},
}
"""Strategies, with options under which they find something in these clusters."""
instances = st.lists(
    st.tuples(st.sampled_from(sorted(OPTIONS)), selects, st.booleans()), min_size=1, max_size=5
)
workloads = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), min_size=2, max_size=5),
        st.booleans(),
        st.sampled_from([0, 10]),
        st.sampled_from(["Deployment", "StatefulSet"]),
    ),
    min_size=1,
    max_size=4,
)


def is_selected(select, pod):
    """Whether a select matches a pod, in plain words."""
    zone = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}[pod["node"]]
    labels = {"pool": "spot" if pod["node"] == "a2" else "", "topology.kubernetes.io/zone": zone}
    namespaces = select.get("namespaces")
    if isinstance(namespaces, list) and pod["namespace"] not in namespaces:
        return False
    if isinstance(namespaces, dict) and pod["namespace"] in namespaces["exclude"]:
        return False
    if any(labels[key] != value for key, value in select.get("nodes", {}).items()):
        return False
    return (
        select.get("labels", {}).get("app", pod["name"]) == pod["name"]
        and pod["priority"] < select.get("priority", {}).get("below", 100)
        and pod["replicas"] >= select.get("minReplicas", 0)
        and pod["kind"] in select.get("ownerKinds", [pod["kind"]])
        and (pod["name"] == "w0") == select.get("podDisruptionBudget", pod["name"] == "w0")
    )


@settings(max_examples=30)
@given(instances, selects, workloads, st.sampled_from(["off", "marks"]))
def test_no_pod_is_moved_outside_every_select(instances, of_all, workloads, steer):
    budget = disruption_budget("w0", "w0", allowed=9, namespace="n0", healthy=9)
    objects, pods = [*NODES, budget], {}
    for index, (places, ruled, priority, kind) in enumerate(workloads):
        name, namespace = f"w{index}", f"n{index % 2}"
        nodes = [("a1", "a2", "b1", "b2")[place] for place in places]
        objects += workload(
            name,
            nodes,
            namespace=namespace,
            kind=kind,
            priority=priority,
            cpu="900m",
            spec=spread(name, hard=True) if ruled else {},
        )
        pods[name] = {
            "name": name,
            "namespace": namespace,
            "priority": priority,
            "replicas": len(places),
            "kind": kind,
        }
    policy = {
        f"s{i}": {
            "strategy": s,
            "select": select,
            **({"mode": "observe"} if o else {}),
            **OPTIONS[s],
        }
        for i, (s, select, o) in enumerate(instances)
    }
    whole = {"select": of_all, "steer": steer, "eagerness": "relentless", "strategies": policy}
    plan = planned(
        objects, "\n".join(f"{key}: {json.dumps(value)}" for key, value in whole.items())
    )
    # The bound is over all rules, also those that are only observed.
    assert plan.lower_bound <= len(plan.moves) + plan.backlog.moves
    for move in plan.moves:
        pod = pods[move.owner.rpartition("/")[2]] | {"node": move.node}
        assert is_selected(of_all, pod), (move, of_all)
        mine = policy[move.strategy]
        assert is_selected(mine["select"], pod), (move, policy)
        assert move.observed == ("mode" in mine)
