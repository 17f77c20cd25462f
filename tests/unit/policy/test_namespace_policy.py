"""The text of a namespace's policy: what it may say, and what holds in the end with where that comes from."""

import json

import pytest

from rebalancer.policy.forms import effective
from rebalancer.policy.load import load_text
from rebalancer.policy.model import Mode
from rebalancer.policy.namespace import (
    NamespacePolicy,
    describe_sum,
    may_narrow,
    read_namespace_policy,
)
from rebalancer.registry import Registry

HEAD = "apiVersion: rebalancer/v1\nkind: Policy\n"
REGISTRY = Registry.installed()
CLUSTER = """\
namespacePolicies: [shop, team-*]
budgets: {perRun: 20%, perOwner: 2}
windows: [{allow: "0 22 * * *", for: 8h}]
protect: {minPodAge: 10m, volumes: {except: {namespaces: [shop]}}, recreatedBy: [CloneSet.apps.kruise.io]}
strategies: {duplicates: {}, spread-more: {strategy: topology-spread}}
"""


def cluster(text=CLUSTER):
    return load_text((HEAD + text).encode(), "cluster.yaml", REGISTRY)


def read(text, policy=None):
    return read_namespace_policy(text, "shop", policy or cluster().policy, REGISTRY)


def shown(text):
    """Value and origin of each line that does not come from a default."""
    lines = describe_sum(cluster(), read(HEAD + text).document).splitlines()
    return {line.strip() for line in lines if "#" in line and not line.endswith("# default")}


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (None, ["has no key policy.yaml"]),
        ("", ["is empty"]),
        ("mode: [", ["1: is not YAML"]),
        ("[1]", ["should be a mapping"]),
        ("mode: off", ["apiVersion: is missing", "kind: is missing"]),
        (f"{HEAD}mode: of", [':3: mode: "of" is none of']),
        (f"{HEAD}modus: off", [":3: modus: unknown key; did you mean mode?"]),
        (f"{HEAD}eagerness: eager", [":3: eagerness: only the cluster's policy may say this"]),
        (f"{HEAD}namespacePolicies: ['*']", ["only the cluster's policy may say this"]),
        (f"{HEAD}landings: {{}}", ["only the cluster's policy may say this"]),
        (f"{HEAD}budgets: {{perHour: 1}}", ["budgets.perHour: unknown key"]),
        (f"{HEAD}protect: {{recreatedBy: []}}", ["protect.recreatedBy: only the cluster's"]),
        (f"{HEAD}protect: {{afterScaling: 5m}}", ["protect.afterScaling: only the cluster's"]),
        (
            f"{HEAD}protect: {{pods: [{{namespaces: [bank]}}]}}",
            ["protect.pods[0].namespaces: it is about pods of its own namespace"],
        ),
        (
            f"{HEAD}protect: {{pods: [{', '.join(['{minReplicas: 2}'] * 21)}]}}",
            ["protect.pods[20]: a namespace may have 20 entries at most"],
        ),
        (f'{HEAD}mode: "\\U00110000"', ["is no character; write the character itself"]),
        (f'{HEAD}strategies: {{"\\ud800": {{}}}}', ["half of a character"]),
        (f'{HEAD}mode: "\\udfff"', ["half of a character"]),
        (f"{HEAD}windows: [{', '.join(['{allow: 0 * * * *, for: 1m}'] * 21)}]", ["at most 20"]),
        (f"{HEAD}# {'x' * 33_000}", ["is larger than 32 KiB"]),
        (f"{HEAD}strategies: {{duplicates: {{weight: 2}}}}", ["duplicates.weight: unknown key"]),
    ],
)
def test_each_problem_says_what_to_do(text, problems):
    result = read(text)
    assert result.policy is None
    assert len(result.problems) == len(problems)
    for problem, part in zip(result.problems, problems, strict=True):
        assert str(problem).startswith("ConfigMap shop/rebalancer-policy")
        assert part in str(problem)


def test_an_unknown_strategy_leaves_the_rest_in_force():
    """The cluster may give a strategy up: that unprotects no pod of a team that names it."""
    result = read(f"{HEAD}mode: off\nstrategies: {{duplicate: {{}}}}")
    assert result.policy is not None
    assert result.policy.mode is Mode.OFF
    assert "unknown strategy duplicate; did you mean" in result.describe()


def test_few_problems_of_a_namespace_are_shown_and_each_is_cut():
    result = read(HEAD + "".join(f"{'x' * 500}{n}: 1\n" for n in range(30)))
    assert result.policy is None
    assert len(result.describe()) < 1200
    assert result.describe().endswith("; and 25 more")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mode:\nwindows:\nbudgets:\nprotect:\nstrategies:\n",
        "strategies: {spread-more: {mode: off}, low-utilisation: {mode: observe}}",
        "protect: {volumes: {except: {labels: {app: a}}}, localStorage: true}",
    ],
)
def test_these_are_right(text):
    result = read(HEAD + text)
    assert result.policy is not None
    assert result.policy.protect.recreated_by == cluster().policy.protect.recreated_by


def test_what_a_team_does_not_write_protects_nothing():
    protect = read(HEAD).policy.protect
    given = protect.model_dump(mode="json", exclude={"recreated_by"})
    assert not [name for name, value in given.items() if value not in (False, None, [], "0s")]


def test_all_keys_are_keys_of_the_policy():
    data = {"apiVersion": "rebalancer/v1", "kind": "Policy"}
    theirs = set(NamespacePolicy.model_validate(data).model_dump(by_alias=True))
    assert theirs <= set(cluster().policy.model_dump(by_alias=True))


@pytest.mark.parametrize(
    ("namespace", "may"), [("shop", True), ("team-a", True), ("bank", False), ("shop2", False)]
)
def test_the_cluster_says_which_namespaces(namespace, may):
    assert may_narrow(cluster().policy, namespace) is may
    assert not may_narrow(cluster("strategies: {duplicates: {}}").policy, namespace)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "perRun: 20%  # cluster.yaml:4"),
        ("", "minPodAge: 10m  # cluster.yaml:6"),
        ("mode: observe", "mode: observe  # ConfigMap shop/rebalancer-policy:3"),
        ("mode: false", "mode: 'off'  # ConfigMap shop/rebalancer-policy:3"),
        (
            "strategies: {duplicates: {mode: off}}",
            "mode: 'off'  # ConfigMap shop/rebalancer-policy:3",
        ),
        ("protect: {minPodAge: 1h}", "minPodAge: 1h  # ConfigMap shop/rebalancer-policy:3"),
        ("protect: {minPodAge: 5m}", "minPodAge: 10m  # cluster.yaml:6"),
        ("protect: {volumes: true}", "volumes: true  # ConfigMap shop/rebalancer-policy:3"),
        ("protect: {jobs: false}", "minPodAge: 10m  # cluster.yaml:6"),
        ("budgets: {perOwner: 1}", "perOwner: 1  # ConfigMap shop/rebalancer-policy:3"),
        ("budgets: {perOwner: 9}", "perOwner: 2  # cluster.yaml:4"),
        (
            "budgets: {perRun: 3}",
            'perRun: 3  # ConfigMap shop/rebalancer-policy:3, beside the cluster\'s "20%"',
        ),
        ("", "for: 8h  # cluster.yaml:5"),
    ],
)
def test_each_value_is_shown_with_where_it_comes_from(text, line):
    assert line in shown(text)


@pytest.mark.parametrize("text", ["", "protect: {minPodAge: 1h}"])
def test_what_is_shown_is_a_policy_again(text):
    query = "sum(rate(node_cpu_seconds_total[5m])) by (node) / " * 4 + "1"
    usage = {"prometheus": {"url": "http://p:9090", "nodes": {"cpu": query, "memory": "a\n# b"}}}
    loaded = cluster(f"{CLUSTER}usage: {json.dumps(usage)}\n")
    shown = describe_sum(loaded, read(HEAD + text, loaded.policy).document)
    again = load_text(shown.encode(), "shown.yaml", REGISTRY).policy
    assert again.usage == loaded.policy.usage
    assert (effective(again) == effective(loaded.policy)) is not bool(text)


def test_windows_of_both_are_shown():
    text = 'windows: [{deny: "0 0 * * *", for: 1h}]'
    of_team = [line for line in shown(text) if "beside the cluster's" in line]
    assert {line.partition("  # ")[0].lstrip("- ") for line in of_team} == {
        "deny: 0 0 * * *",
        "for: 1h",
    }
    assert all('"0 22 * * *"' in line for line in of_team)
