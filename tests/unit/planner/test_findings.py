"""What ``policy check`` finds on a cluster."""

import io

import pytest

from rebalancer.planner.findings import findings
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.testing.snapshots import node, snapshot_of, workload

REGISTRY = Registry.installed()
PODS = [*workload("web", ["n0", "n1", "n1"]), *workload("shop", ["n0", "n1"], namespace="shop")]
NODES = [node("n0"), node("n1")]


def findings_on(text, objects=None):
    head = "apiVersion: rebalancer/v1\nkind: Policy\n"
    of = load_policy(
        "-",
        REGISTRY,
        stdin=io.BytesIO((head + text).encode()),
        signals=REGISTRY.signals,
        steps=REGISTRY.steps,
    )
    return findings(
        of.policy, snapshot_of([*NODES, *PODS] if objects is None else objects), REGISTRY
    )


def budget(desired, app="web"):
    return {
        "kind": "PodDisruptionBudget",
        "apiVersion": "policy/v1",
        "metadata": {"name": "b", "namespace": "default", "generation": 1},
        "spec": {"minAvailable": desired, "selector": {"matchLabels": {"app": app}}},
        "status": {
            "disruptionsAllowed": max(0, 3 - desired),
            "currentHealthy": 3,
            "desiredHealthy": desired,
            "expectedPods": 3,
            "observedGeneration": 1,
        },
    }


def test_it_counts_what_each_select_matches_and_what_may_move():
    result = findings_on(
        "select: {namespaces: [default]}\n"
        "protect: {volumes: {except: {labels: {app: shop}}}, pods: [{labels: {app: none}}]}\n"
        "strategies: {duplicates: {select: {nodes: {kubernetes.io/hostname: n1}}}}\n"
    )
    assert result.selects == {
        "select": 3,
        "protect.pods[0]": 0,
        "protect.volumes.except": 2,
        "strategies.duplicates.select": 3,
    }
    assert result.movable == 3
    assert result.warnings == ("protect.pods[0] matches no pod",)


def test_nothing_is_said_of_the_built_in_policy_on_a_quiet_cluster():
    assert findings_on("strategies: {duplicates: {}, low-utilisation: {}}").warnings == ()


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("budgets: {perRun: 0}", "budgets.perRun is 0: nothing is ever moved"),
        ("budgets: {perNamespace: 0%}", "budgets.perNamespace is 0%: nothing is ever moved"),
        ("budgets: {perOwner: 50}", "budgets.perOwner 50 is never used up: inFlight allows 5"),
        (
            "budgets: {perNamespace: 40}",
            "budgets.perNamespace 40 is never used up: perRun allows 10",
        ),
        (
            "windows: [{allow: '0 8 * * *', for: 1h}, {deny: '0 7 * * *', for: 3h}]",
            "all strategies: outside every window, none ever opens",
        ),
        (
            "select: {priority: {below: gold}}",
            "select: no pod has the PriorityClass gold, so its value is not known; write the value instead",
        ),
    ],
)
def test_what_can_never_have_an_effect_is_named(text, warning):
    assert warning in findings_on(f"{text}\nstrategies: {{duplicates: {{}}}}").warnings


def test_a_budget_of_a_strategy_behind_the_policys_is_never_used_up():
    text = "budgets: {perRun: 5}\nstrategies: {duplicates: {budgets: {perRun: 7}}}"
    assert findings_on(text).warnings == (
        "strategies.duplicates.budgets.perRun 7 is never used up: budgets.perRun 5 is before it",
    )


@pytest.mark.parametrize(
    ("one", "warning"),
    [
        (budget(3), "can never allow an eviction: of 3 pods 3 have to be healthy"),
        (budget(2), None),
        (budget(1, app="none"), "selects no pod"),
    ],
)
def test_a_disruption_budget_that_never_allows_anything_is_named(one, warning):
    warnings = findings_on("strategies: {duplicates: {}}", [*NODES, *PODS, one]).warnings
    assert warnings == (() if warning is None else (f"PodDisruptionBudget default/b {warning}",))


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (
            [node("n2", labels={"karpenter.sh/nodepool": "x"})],
            "Karpenter packs and takes away (label karpenter.sh/nodepool on n2)",
        ),
        (
            [node("n2", taints=[{"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}])],
            "Cluster Autoscaler packs and takes away (taint DeletionCandidateOfClusterAutoscaler on n2)",
        ),
        (
            workload("cluster-autoscaler", ["n0"], namespace="kube-system"),
            "Cluster Autoscaler packs and takes away (pod kube-system/cluster-autoscaler-0)",
        ),
    ],
)  # fmt: skip
def test_an_autoscaler_that_packs_what_a_strategy_spreads_is_named(shown, why):
    objects = [*NODES, *PODS, *shown]
    (warning,) = findings_on("strategies: {low-utilisation: {}, duplicates: {}}", objects).warnings
    assert why in warning
    assert findings_on("strategies: {duplicates: {}}", objects).warnings == ()


def test_placements_that_pull_the_same_pods_apart_are_named():
    text = """strategies:
  onto: {strategy: placement, prefer: {kubernetes.io/hostname: n0}}
  off: {strategy: placement, avoid: {kubernetes.io/hostname: n0}, select: {namespaces: [%s]}}
"""
    (warning,) = findings_on(text % "shop").warnings
    assert warning == (
        "off and onto pull against each other: one prefers what the other avoids (1 nodes), and both select 2 pods"
    )
    assert findings_on((text % "shop").replace("n0}, select", "n1}, select")).warnings == ()


def test_a_strategy_that_is_tried_out_beside_itself_is_no_mistake():
    text = (
        "strategies: {duplicates: {select: {namespaces: [shop]}}, "
        "trial: {strategy: duplicates, mode: observe}}"
    )
    assert findings_on(text).warnings == ()


def test_a_strategy_that_stands_twice_for_the_same_pods_is_named():
    text = (
        "strategies: {duplicates: {}, again: {strategy: duplicates, select: {namespaces: [shop]}}}"
    )
    assert findings_on(text).warnings == (
        "again and duplicates are the same duplicates, and both select 2 pods: these count twice",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "strategies: {consolidation: {}}",
            "consolidation: no node is emptied without steer: marks, for the scheduler would fill it again",
        ),
        (
            "strategies: {make-room: {}}",
            "make-room only observes without steer: marks, for others would take the room",
        ),
        ("steer: marks\nstrategies: {consolidation: {}}", None),
        ("strategies: {make-room: {mode: observe}}", None),
    ],
)
def test_a_strategy_that_needs_marks_is_named_without_them(text, says):
    warnings = [line for line in findings_on(text).warnings if "without steer" in line]
    assert warnings == ([says] if says else [])


@pytest.mark.parametrize(
    ("budgets", "says"),
    [
        (
            "perRun: 2, perHour: 9",
            [
                "budgets.perRun allows 2 evictions, and n1 has 3 pods: if it is announced to go, some end with it"
            ],
        ),
        ("perRun: 3, perHour: 9", []),
    ],
)
def test_budgets_that_keep_pods_on_a_node_that_goes_are_named(budgets, says):
    text = f"budgets: {{{budgets}}}\nsignals: {{kubernetes: {{}}}}\nstrategies: {{leaving: {{}}}}"
    assert [line for line in findings_on(text).warnings if "announced" in line] == says
    without = text.replace("signals: {kubernetes: {}}\n", "")
    assert not any("announced" in line for line in findings_on(without).warnings)
