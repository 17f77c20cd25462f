"""``--select`` and ``policy check --snapshot``, as processes."""

import json

import pytest

from rebalancer.testing.snapshots import node, workload
from tests.unit.commands.test_run_on_file import report_of, run

HEAD = "apiVersion: rebalancer/v1\nkind: Policy\n"


@pytest.fixture
def crowded(tmp_path):
    """Two workloads in two namespaces, each with both replicas on one node."""
    objects = [node("n0"), node("n1"), node("n2")]
    objects += workload("web", ["n0", "n0"])
    objects += workload("api", ["n0", "n0", "n0"], namespace="shop")
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return path


@pytest.mark.parametrize(
    ("flags", "namespaces"),
    [
        ([], {"default", "shop"}),
        (["--select", "{namespaces: [sh*]}"], {"shop"}),
        (["--select", "{minReplicas: 3}"], {"shop"}),
        (["--select", "{labels: {app: web}}", "-n", "default"], {"default"}),
        (["--select", "{labels: {app: web}}", "-n", "shop"], set()),
    ],
)
def test_a_run_moves_what_the_command_line_selects(crowded, tmp_path, flags, namespaces):
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"{HEAD}strategies: {{duplicates: {{}}}}\n")
    done = run("run", f"--snapshot={crowded}", f"--policy={policy}", "-o", "json", *flags)
    assert {move["namespace"] for move in report_of(done)["moves"]} == namespaces


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{namespace: [a]}", "--select:1: namespace: unknown key; did you mean namespaces?"),
        ("{minReplicas: many}", '--select:1: minReplicas: "many" should be a whole number'),
        ("web", '--select:1: "web" should be a mapping of keys to values'),
        ("{a: [", "--select:1: "),
        (" ", "--select: is empty; write for example {namespaces: [shop-*]}"),
    ],
)
def test_a_wrong_select_is_named_with_its_key(crowded, text, problem):
    done = run("run", f"--snapshot={crowded}", "--select", text)
    assert done.returncode == 2
    assert problem in done.stderr


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("{namespaces: [shop]}", []),
        ("{namespaces: [gone-*]}", ["--select matches no pod"]),
        (
            "{priority: {below: batch}}",
            [
                "--select matches no pod",
                (
                    "--select: no pod has the PriorityClass batch, so its value is not known; "
                    "write the value instead"
                ),
            ],
        ),
    ],
)
def test_a_select_without_effect_is_said(crowded, text, notes):
    done = run("run", f"--snapshot={crowded}", "-o", "json", "--select", text)
    said = [note for note in report_of(done)["warnings"] if "--select" in note]
    assert said == notes


def test_a_policy_is_checked_on_a_snapshot(crowded, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        HEAD
        + "strategies:\n"
        + "  shop: {strategy: duplicates, select: {namespaces: [shop]}}\n"
        + "  typo: {strategy: duplicates, select: {namespaces: [shpo]}, weight: 2}\n"
    )
    done = run("policy", "check", f"--policy={policy}", f"--snapshot={crowded}")
    assert done.returncode == 0, done.stderr
    assert "3 nodes, 5 pods; the policy lets 5 move" in done.stdout
    assert "strategies.shop.select matches 3 of 5 pods" in done.stdout
    assert "warning: strategies.typo.select matches no pod" in done.stderr
    both = run(
        "policy", "check", f"--policy={policy}", f"--snapshot={crowded}", "--against-cluster"
    )
    assert both.returncode == 2
    assert "name one of them" in both.stderr


@pytest.mark.parametrize(
    ("select", "code", "lines"),
    [
        ("{namespaces: [nowhere]}", 11, ["Nothing could be judged: select matches no pod."]),
        ("{minReplicas: 9}", 11, ["Nothing could be judged: select matches no pod."]),
        (
            "{labels: {app: one}}",
            0,
            [
                "Nothing to do: every rule of the pods that its strategy selects holds.",
                "Every rule of the pods that are selected holds: duplicates.",
            ],
        ),
    ],
)
def test_a_rule_that_no_select_lets_be_judged_is_not_said_to_hold(tmp_path, select, code, lines):
    objects = [node("n0"), node("n1"), *workload("web", ["n0", "n0"]), *workload("one", ["n1"])]
    cluster, policy = tmp_path / "cluster.json", tmp_path / "policy.yaml"
    cluster.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    policy.write_text(f"{HEAD}strategies: {{duplicates: {{select: {select}}}}}\n")
    done = run("plan", f"--snapshot={cluster}", f"--policy={policy}", "--fail-on=unmet")
    assert done.returncode == code
    assert all(line in done.stdout for line in lines), done.stdout
