"""plan, completion, durations, and the name as kubectl's plug-in."""

import json

import pytest

from rebalancer.cli import command, main
from rebalancer.commands import flags
from rebalancer.commands.completion import complete_for_kubectl
from rebalancer.testing.snapshots import node, workload
from tests.unit.commands.embedded import NOW_POLICY, third_zone_joined


def test_a_plan_is_written_for_apply(tmp_path, capsys):
    policy = tmp_path / "policy.yaml"
    policy.write_text(NOW_POLICY)
    plan = tmp_path / "plan.json"
    with third_zone_joined("web") as cluster:
        flags = [f"--policy={policy}", f"--kubeconfig={cluster.kubeconfig}"]
        before = nodes_of(cluster)
        assert command(["plan", *flags, f"--out={plan}", "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(plan.read_text())
        assert nodes_of(cluster) == before
        assert command(["apply", str(plan), *flags, "--yes", "-o", "json", "-q"]) == 0
        assert [one["outcome"] for one in json.loads(capsys.readouterr().out)["moves"]] == [
            "evicted"
        ]
        assert command(["plan", *flags, f"--out={tmp_path}/no/plan.json"]) == 2
    assert "--out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("90s", 0),
        ("1m30s", 0),
        ("75", 0),
        ("soon", 2),
        ("0", 2),
        ("\uff16\uff10", 2),  # full-width digits
        ("-5", 2),
        ("1e3", 2),
    ],
)
def test_a_deadline_is_a_duration(tmp_path, capsys, text, code):
    snapshot = tmp_path / "cluster.json"
    snapshot.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": _objects()}))
    assert command(["plan", f"--snapshot={snapshot}", f"--deadline={text}"]) == code
    capsys.readouterr()


def nodes_of(cluster):
    return sorted(pod["spec"]["nodeName"] for pod in cluster.objects("Pod", "default"))


def _objects():
    return [node("n-a", "a"), *workload("web", ["n-a"])]


def test_settings_of_flags_reach_the_plan(tmp_path, capsys):
    with third_zone_joined("web") as cluster:
        flags = [f"--kubeconfig={cluster.kubeconfig}", "-o", "json"]
        assert command(["plan", *flags]) == 0
        assert json.loads(capsys.readouterr().out)["moves"] == []
        changes = ["--set", "protect.minPodAge=0s", "--strategy", "anti-affinity", "--mode=enforce"]
        assert command(["plan", *flags, *changes]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["moves"]) == 1
    assert set(report["before"]) == {"anti-affinity"}
    assert any("--set protect.minPodAge=0s" in text for text in report["warnings"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(capsys, shell):
    assert command(["completion", shell]) == 0
    assert "_REBALANCER_COMPLETE" in capsys.readouterr().out


@pytest.fixture
def completed(monkeypatch, capsys):
    """Return what bash is offered for the last of these words, on a machine that is as busy as it likes."""
    monkeypatch.setattr(flags, "_SECONDS", 300)
    monkeypatch.setenv("_REBALANCER_COMPLETE", "bash_complete")

    def complete(words, **more):
        environ = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1), **more}
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit, match="0"):
            command([], "rebalancer")
        return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines() if line]

    return complete


def test_commands_flags_and_names_are_completed(completed):
    assert completed(["rebalancer", "pl"]) == ["plan"]
    assert completed(["rebalancer", "plan", "--set", "protect.minPod"]) == ["protect.minPodAge="]
    words = ["rebalancer", "plan", "--set", "strategies.duplicates.mo"]
    assert completed(words) == ["strategies.duplicates.mode="]
    assert completed(["rebalancer", "plan", "--policy", "none", "--set", "b"]) == []
    assert "--set" in completed(["rebalancer", "plan", "--se"])
    assert completed(["rebalancer", "plan", "--strategy", "dup"]) == ["duplicates"]
    red = ["rebalancer", "plan", "--fail-on", "standstill,"]
    assert completed(red) == ["standstill,unmet", "standstill,held"]
    with third_zone_joined("web") as cluster:
        config = {"KUBECONFIG": str(cluster.kubeconfig)}
        assert completed(["rebalancer", "explain", "node", "n-"], **config) == ["n-a", "n-b", "n-c"]
        assert completed(["rebalancer", "explain", "pod", "def"], **config) == ["default/"]
        pods = completed(["rebalancer", "explain", "pod", "default/web"], **config)
        assert len(pods) == 3
        assert all(name.startswith("default/web-") for name in pods)
        workloads = ["rebalancer", "explain", "workload"]
        assert completed([*workloads, "def"], **config) == ["default/"]
        assert completed([*workloads, "default/"], **config) == ["default/web"]
        (context,) = completed(["rebalancer", "plan", "--context", ""], **config)
        assert context in cluster.kubeconfig.read_text()
        assert completed(["rebalancer", "drain", "n-a", "n-"], **config) == ["n-a", "n-b", "n-c"]
    # The cluster is gone: no names, and no message either.
    assert completed(["rebalancer", "explain", "node", "n-"], **config) == []


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/usr/bin/kubectl-rebalancer", "kubectl rebalancer"),
        ("/usr/bin/rebalancer", "rebalancer"),
        ("-m", "rebalancer"),
    ],
)
def test_the_usage_names_what_the_user_typed(capsys, program, name):
    assert command(["plan", "--help"], program) == 0
    assert capsys.readouterr().out.startswith(f"Usage: {name} plan ")


def test_policy_check_takes_the_file_as_an_argument(tmp_path, capsys):
    policy = tmp_path / "policy.yaml"
    policy.write_text(NOW_POLICY)
    assert command(["policy", "check", str(policy)]) == 0
    assert ": valid (" in capsys.readouterr().out
    assert command(["policy", "check", str(policy), "--policy=other.yaml"]) == 2


def test_a_policy_that_is_shown_is_one_that_an_editor_can_check(tmp_path, capsys):
    assert command(["policy", "show"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# yaml-language-server: $schema=")
    policy = tmp_path / "policy.yaml"
    policy.write_text(shown)
    assert command(["policy", "check", str(policy)]) == 0
    capsys.readouterr()
    assert command(["schema", "policy"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"].endswith("/policy-v1.json")


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ["explain", "work"],
            ["workload\tSay what is asked of a workload, and what the plan does.", ":4"],
        ),
        (["run", "--fail-on", "un"], ["unmet", ":4"]),
        (["plan", "--set", "protect.minPod"], ["protect.minPodAge=", ":6"]),
        (["plan", "--policy", ""], [":0"]),
        ([], None),
    ],
)
def test_kubectl_is_answered_for_its_own_completion(words, lines, capsys):
    complete_for_kubectl(main, words)
    said = capsys.readouterr().out.splitlines()
    if lines is None:
        assert said[0] == "plan\tPlan moves and carry none out."
        assert len(said) > 20
        assert said[-1] == ":4"
    else:
        assert said[-1] == lines[-1]
        assert [line.partition("\t")[0] for line in said] == [
            line.partition("\t")[0] for line in lines
        ]


def test_names_in_a_file_are_completed_from_it(completed, tmp_path):
    pods = [*workload("web", ["n-a"]), *workload("db", ["n-b"], namespace="shop")]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": [node("n-a"), node("n-b"), *pods]}))
    simulate = ["rebalancer", "simulate", "--snapshot", str(path)]
    for flag in ("--remove-node", "--cordon"):
        assert completed([*simulate, flag, "n-"]) == ["n-a", "n-b"]
    explain = ["rebalancer", "explain", "pod", "--snapshot", str(path)]
    assert completed([*explain, "shop/"]) == ["shop/db-0"]
    assert completed(["rebalancer", "simulate", "--snapshot", "/nowhere", "--cordon", "n"]) == []
