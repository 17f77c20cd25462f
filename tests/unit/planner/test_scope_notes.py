"""What is said of a run's scope: selects that match nothing, windows that are closed, a namespace that is not there."""

import pytest

from rebalancer.planner.notices import (
    closed_windows,
    list_flag_notes,
    pods_selected,
    scope_notes,
    selects_of,
)
from rebalancer.policy.load import load_text
from rebalancer.policy.select import Select
from rebalancer.registry import Registry
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import node, snapshot_of, workload
from rebalancer.wire.objects import LabelSelector

REGISTRY = Registry.installed()
NAMESPACE = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}}
SNAPSHOT = snapshot_of([NAMESPACE, node("n0"), *workload("web", ["n0", "n0"])])
FRIDAY = 1_800_000_000.0
"""2027-01-15T08:00:00Z."""


def policy(text):
    head = "apiVersion: rebalancer/v1\nkind: Policy\n"
    return load_text((head + text).encode(), "policy", REGISTRY).policy


@pytest.mark.parametrize(
    ("text", "scope", "notes"),
    [
        ("strategies: {duplicates: {}}", Scope(), []),
        ("select: {namespaces: [shop]}", Scope(), ["select matches no pod"]),
        (
            "strategies: {duplicates: {select: {labels: {app: db}}}}",
            Scope(),
            ["strategies.duplicates.select matches no pod"],
        ),
        ("strategies: {duplicates: {mode: off, select: {labels: {app: db}}}}", Scope(), []),
        ("protect: {pods: [{labels: {app: db}}]}", Scope(), ["protect.pods[0] matches no pod"]),
        (
            "strategies: {}",
            Scope(select=Select.model_validate({"labels": {"app": "db"}})),
            ["--select matches no pod"],
        ),
        ("strategies: {}", Scope(namespace="default"), []),
        (
            "strategies: {}",
            Scope(namespace="shop"),
            ["-n shop: there is no such namespace; known here: default"],
        ),
        (
            "strategies: {}",
            Scope(namespace="defualt"),
            ["-n defualt: there is no such namespace; did you mean default?"],
        ),
        ("strategies: {}", Scope(selector=LabelSelector(match_labels={"app": "web"})), []),
        (
            "strategies: {}",
            Scope("default", LabelSelector(match_labels={"app": "db"})),
            ["-l matches no pod of default, so that nothing may move"],
        ),
        (
            "select: {priority: {below: gold}}",
            Scope(),
            [
                "select matches no pod",
                "select: no pod has the PriorityClass gold, so its value is not known; write the value instead",
            ],
        ),
    ],
)
def test_what_has_no_effect_is_named(text, scope, notes):
    said = [*list_flag_notes(SNAPSHOT, scope), *scope_notes(policy(text), SNAPSHOT, scope)]
    assert said == notes


@pytest.mark.parametrize(("value", "matched"), [(10, 2), (0, 0), (-5, 0)])
def test_a_file_that_has_the_priority_class_says_its_value(value, matched):
    gold = {
        "kind": "PriorityClass",
        "apiVersion": "scheduling.k8s.io/v1",
        "metadata": {"name": "gold"},
        "value": value,
    }
    snapshot = snapshot_of([NAMESPACE, gold, node("n0"), *workload("web", ["n0", "n0"])])
    select = Select.model_validate({"priority": {"below": "gold"}})
    assert pods_selected(snapshot, select).sum() == matched
    notes = scope_notes(policy("select: {priority: {below: gold}}"), snapshot)
    assert notes == ([] if matched else ["select matches no pod"])


def test_every_select_of_a_policy_has_its_key():
    text = (
        "select: {namespaces: [default]}\nprotect: {pods: [{labels: {app: db}}]}\n"
        "strategies: {duplicates: {select: {labels: {app: web}}}}"
    )
    assert [key for key, _ in selects_of(policy(text))] == [
        "select",
        "protect.pods[0]",
        "strategies.duplicates.select",
    ]


def test_an_empty_select_matches_all():
    assert pods_selected(SNAPSHOT, Select()).all()
    assert not pods_selected(SNAPSHOT, Select.model_validate({"labels": {"app": "db"}})).any()


WINDOW = "windows: [{allow: '0 2 * * 6', for: 2h}]"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("strategies: {duplicates: {}}", []),
        (
            f"{WINDOW}\nstrategies: {{duplicates: {{}}, taints: {{}}}}",
            ["all strategies: outside every window, the next one opens at 2027-01-16T02:00:00Z"],
        ),
        (
            f"strategies: {{duplicates: {{{WINDOW}}}, taints: {{}}}}",
            ["duplicates: outside every window, the next one opens at 2027-01-16T02:00:00Z"],
        ),
    ],
)
def test_a_closed_window_says_when_the_next_one_opens(text, lines):
    assert list(closed_windows(policy(text), FRIDAY)) == lines


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("landings: {exclude: {poool: spot}}", "landings.exclude: no node has the label poool"),
        ("landings: {exclude: {gpu: 'yes'}}", None),  # absent, and like no other
        ("landings: {exclude: {pool: other}}", None),
        (
            "strategies: {duplicates: {select: {nodes: {Pool: spot}}}}",
            "strategies.duplicates.select.nodes: no node has the label Pool",
        ),
        (
            "scheduler: {defaultConstraints: [{topologyKey: poll, maxSkew: 1}]}",
            "scheduler.defaultConstraints[0]: no node has the label poll",
        ),
    ],
)
def test_a_label_that_is_almost_that_of_nodes_is_taken_for_a_slip(text, note):
    snapshot = snapshot_of([node("n0", labels={"pool": "spot"}), *workload("web", ["n0", "n0"])])
    notes = [one for one in scope_notes(policy(text), snapshot) if "no node has" in one]
    assert notes == ([] if note is None else [f"{note}; did you mean pool?"])
