"""plan, the question before a run on a terminal, completion, durations, and the name as kubectl's plug-in."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from rebalancer.cli import command
from rebalancer.commands.ask import asks
from rebalancer.commands.options import RunOptions
from rebalancer.embedded.engine import Durations
from rebalancer.testing.objects import EmbeddedCluster, deployment
from rebalancer.testing.objects import node as cluster_node
from rebalancer.testing.workloads import node, workload
from tests.unit.commands.embedded import NOW_POLICY, third_zone_joined


class Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


PIPE = io.StringIO()


@pytest.mark.parametrize(
    ("options", "stdin", "stdout", "asked"),
    [
        ({}, Screen(), Screen(), True),
        ({"output": "json"}, Screen(), Screen(), True),
        ({"yes": True}, Screen(), Screen(), False),
        ({"dry_run": True}, Screen(), Screen(), False),
        ({"snapshot_path": "x"}, Screen(), Screen(), False),
        ({}, PIPE, Screen(), False),
        ({}, Screen(), PIPE, False),
    ],
)
def test_only_a_run_that_acts_asks_and_only_on_a_terminal(options, stdin, stdout, asked):
    assert asks(RunOptions(**options), stdin, stdout) is asked


def on_terminal(cluster, folder, answer, *flags, policy_text=NOW_POLICY):
    """Run ``rebalancer run`` on a terminal of its own, with an answer; return the exit code and what was shown."""
    policy = folder / "policy.yaml"
    policy.write_text(policy_text)
    ours, theirs = pty.openpty()
    given = [f"--policy={policy}", f"--kubeconfig={cluster.kubeconfig}", "-q", *flags]
    process = subprocess.Popen(
        [sys.executable, "-m", "rebalancer", "run", *given],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "dumb", "COLUMNS": "120"},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            read = os.read(ours, 65536)
        except OSError:  # Linux says so when the other end is closed.
            break
        if not read:
            break
        shown += read
        if b"[y/N]" in shown and answer:
            os.write(ours, answer)
            answer = b""
    os.close(ours)
    return process.wait(600), shown.decode()


def nodes_of(cluster):
    return sorted(pod["spec"]["nodeName"] for pod in cluster.objects("Pod", "default"))


def test_on_a_terminal_the_plan_is_shown_and_nothing_moves_without_a_yes(tmp_path):
    with third_zone_joined("web") as cluster:
        before = nodes_of(cluster)
        code, shown = on_terminal(cluster, tmp_path, b"n\n")
        assert (code, nodes_of(cluster)) == (0, before)
        assert "Evict this pod?" in shown
        assert "Dry run" in shown
        assert shown.endswith("Declined: no pod was moved, and no node was marked.\r\n")
        code, shown = on_terminal(cluster, tmp_path, b"y\n")
        cluster.settle()
        assert code == 0, shown
        assert nodes_of(cluster) == ["n-a", "n-b", "n-c"]
        assert "Declined" not in shown
        # Nothing is left: nothing is asked.
        code, shown = on_terminal(cluster, tmp_path, b"")
        assert code == 0
        assert "Evict" not in shown.replace("Evictions", "")


EMPTIES = """
apiVersion: rebalancer/v1
kind: Policy
steer: marks
protect: {minPodAge: 0s}
strategies: {consolidation: {minNodeAge: 0s}}
"""


def test_on_a_terminal_nodes_are_marked_after_a_yes_where_no_pod_moves(tmp_path):
    timings = Durations(start_up=0.05, shutdown=0.05, node_start_up=0.05)
    with EmbeddedCluster(timings=timings) as cluster:
        cluster.apply(cluster_node("n0"))
        cluster.settle()
        cluster.apply(deployment("web", 2, cpu="200m"))
        cluster.settle()
        cluster.apply(cluster_node("n1"), cluster_node("n2"))
        cluster.settle()

        def marked():
            nodes = cluster.objects("Node", "")
            return [one["metadata"]["name"] for one in nodes if one["spec"].get("taints")]

        code, shown = on_terminal(cluster, tmp_path, b"n\n", policy_text=EMPTIES)
        assert "Mark 2 nodes as to be empty, or renew these marks?" in shown
        assert (code, marked()) == (0, [])
        code, shown = on_terminal(cluster, tmp_path, b"y\n", policy_text=EMPTIES)
        assert (code, sorted(marked())) == (0, ["n1", "n2"]), shown


def test_yes_asks_nothing(tmp_path):
    with third_zone_joined("web") as cluster:
        code, shown = on_terminal(cluster, tmp_path, b"", "--yes")
        cluster.settle()
        assert (code, nodes_of(cluster)) == (0, ["n-a", "n-b", "n-c"])
    assert "[y/N]" not in shown


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
        assert command(["apply", str(plan), *flags, "-o", "json", "-q"]) == 0
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


PATIENTLY = """
import sys
from rebalancer.__main__ import main
from rebalancer.commands import names
names._SECONDS = 300
sys.argv[0] = "rebalancer"
main()
"""
"""The command, on a machine that may be too busy for the time of a person at a prompt."""


def completed(words, **more):
    """Return what bash is offered for the last of these words."""
    done = subprocess.run(
        [sys.executable, "-c", PATIENTLY],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        env={
            **os.environ,
            "_REBALANCER_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
            **more,
        },
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands_flags_and_names_are_completed():
    assert completed(["rebalancer", "pl"]) == ["plan"]
    assert "--set" in completed(["rebalancer", "plan", "--se"])
    with third_zone_joined("web") as cluster:
        config = {"KUBECONFIG": str(cluster.kubeconfig)}
        assert completed(["rebalancer", "explain", "node", "n-"], **config) == ["n-a", "n-b", "n-c"]
        assert completed(["rebalancer", "explain", "pod", "def"], **config) == ["default/"]
        pods = completed(["rebalancer", "explain", "pod", "default/web"], **config)
        assert len(pods) == 3
        assert all(name.startswith("default/web-") for name in pods)
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
    assert "fine" in capsys.readouterr().out
    assert command(["policy", "check", str(policy), f"--policy={policy}"]) == 2


def test_a_policy_that_is_shown_is_one_that_an_editor_can_check(tmp_path, capsys):
    assert command(["policy", "show"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# yaml-language-server: $schema=")
    policy = tmp_path / "policy.yaml"
    policy.write_text(shown)
    assert command(["policy", "check", str(policy)]) == 0
    capsys.readouterr()
    assert command(["policy", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"].endswith("/policy-v1.json")


@pytest.mark.parametrize("after", [0.02, 0.05, 0.1])
def test_ctrl_c_while_the_command_starts_leaves_no_traceback(after):
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED, "plan", "--snapshot=-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=600)
    assert b"Traceback" not in shown
    assert process.returncode in (-signal.SIGINT, 4)


# Says when main() has said what a signal does, which it does first of all: what comes before that is not ours.
STARTED = """
import gc
from rebalancer.__main__ import main
gc.set_threshold = lambda *_: print("started", flush=True)
main()
"""
