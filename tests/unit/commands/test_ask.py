"""Nothing is evicted unasked: the question on the terminal, wherever the streams lead, and --yes without one."""

import json
import os
import pty
from contextlib import ExitStack, suppress

import pytest

from rebalancer.cli import command
from rebalancer.commands.run import asks
from rebalancer.run.options import RunOptions
from rebalancer.testing.objects import EmbeddedCluster, deployment
from rebalancer.testing.objects import node as cluster_node
from tests.support.cli import begin
from tests.support.worlds import FAST
from tests.unit.commands.embedded import NOW_POLICY, third_zone_joined

UNASKED = "add --yes"


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, True),
        ({"output": "json"}, True),
        ({"yes": True}, False),
        ({"dry_run": True}, False),
        ({"snapshot_path": "x"}, False),
    ],
)
def test_only_a_run_that_acts_asks(options, asked):
    assert asks(RunOptions.of(**options)) is asked


class Typed:
    """A command that is typed on a terminal, which is its controlling one; its streams lead where ``streams`` says."""

    def __init__(self, *words, **streams):
        ours, theirs = pty.openpty()
        env = {**os.environ, "TERM": "dumb", "COLUMNS": "120"}
        ends = [streams.get(name, theirs) for name in ("stdin", "stdout", "stderr")]
        self._wait = begin(words, [*ends, theirs], env=env)
        os.close(theirs)
        self.shown, self._ours = b"", ours

    def answer(self, *answers):
        """Give the answers, one at each question; return the exit code and what the terminal has shown."""
        left = list(answers)
        # Linux says so when the other end is closed.
        with suppress(OSError):
            while read := os.read(self._ours, 65536):
                self.shown += read
                if left and self.shown.count(b"[y/N]") > len(answers) - len(left):
                    os.write(self._ours, left.pop(0))
        os.close(self._ours)
        return self._wait(), self.shown.decode()


def of_cluster(cluster, folder, policy_text=NOW_POLICY):
    policy = folder / "policy.yaml"
    policy.write_text(policy_text)
    return [f"--policy={policy}", f"--kubeconfig={cluster.kubeconfig}", "-q"]


def nodes_of(cluster):
    return sorted(pod["spec"]["nodeName"] for pod in cluster.objects("Pod", "default"))


@pytest.fixture
def drifted():
    with third_zone_joined("web") as cluster:
        yield cluster


def test_on_a_terminal_the_plan_is_shown_and_nothing_moves_without_a_yes(drifted, tmp_path):
    before = nodes_of(drifted)
    words = ["run", *of_cluster(drifted, tmp_path)]
    for no in (b"n\n", b"\n", b"\x04"):
        code, shown = Typed(*words).answer(no)
        assert (code, nodes_of(drifted)) == (0, before)
        assert "Evict this pod?" in shown
        assert shown.count("Dry run") == 1
        assert "carries the plan out" not in shown
        assert shown.endswith("Declined: no pod was moved, and no node was marked.\r\n")
    code, shown = Typed(*words).answer(b"what?\n", b"YES\n")
    drifted.settle()
    assert code == 0, shown
    assert "Answer y or n." in shown
    assert nodes_of(drifted) == ["n-a", "n-b", "n-c"]
    assert "Declined" not in shown
    # Nothing is left: nothing is asked.
    code, shown = Typed(*words).answer()
    assert code == 0
    assert "Evict" not in shown.replace("Evictions", "")


@pytest.mark.parametrize("stream", ["stdout", "stdin", "stderr"])
def test_a_stream_that_leads_elsewhere_does_not_take_the_question_away(drifted, tmp_path, stream):
    before = nodes_of(drifted)
    end = tmp_path / "end"
    end.write_bytes(b"y\n" * 9)
    words = ["run", "-o", "html", *of_cluster(drifted, tmp_path)]
    for answer, headline in ((b"n\n", "Dry run"), (b"y\n", "evicted")):
        assert nodes_of(drifted) == before
        with end.open("rb" if stream == "stdin" else "wb") as file:
            code, shown = Typed(*words, **{stream: file.fileno()}).answer(answer)
        drifted.settle()
        assert code == 0
        assert "Evict this pod?" in shown
        if stream == "stdout":
            page = end.read_text()
            assert page.startswith("<!DOCTYPE html>")
            assert headline in page
            assert "<html" not in shown
    assert nodes_of(drifted) == ["n-a", "n-b", "n-c"]


def test_what_was_typed_before_the_question_is_no_answer(drifted, tmp_path):
    before = nodes_of(drifted)
    typed = Typed("run", *of_cluster(drifted, tmp_path))
    os.write(typed._ours, b"y\n")
    code, shown = typed.answer(b"n\n")
    assert (code, nodes_of(drifted)) == (0, before), shown


def test_a_policy_from_standard_input_holds_for_the_plan_and_the_run(drifted, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(NOW_POLICY)
    with policy.open("rb") as file:
        words = ("run", "--policy=-", f"--kubeconfig={drifted.kubeconfig}", "-q")
        code, shown = Typed(*words, stdin=file.fileno()).answer(b"y\n")
    drifted.settle()
    assert (code, nodes_of(drifted)) == (0, ["n-a", "n-b", "n-c"]), shown


def test_apply_asks_too(drifted, tmp_path):
    before = nodes_of(drifted)
    flags = of_cluster(drifted, tmp_path)
    plan = tmp_path / "plan.json"
    assert command(["plan", *flags, f"--out={plan}", "-ojson"]) == 0
    code, shown = Typed("apply", str(plan), *flags).answer(b"n\n")
    assert (code, nodes_of(drifted)) == (0, before), shown
    with plan.open("rb") as file:
        code, shown = Typed("apply", "-", *flags, stdin=file.fileno()).answer(b"y\n")
    drifted.settle()
    assert (code, nodes_of(drifted)) == (0, ["n-a", "n-b", "n-c"]), shown


@pytest.mark.parametrize("terminal", [False, True], ids=["no terminal", "all streams elsewhere"])
@pytest.mark.parametrize("verb", ["run", "apply", "serve"])
def test_without_a_terminal_a_yes_is_needed(drifted, tmp_path, verb, terminal):
    before = nodes_of(drifted)
    flags = of_cluster(drifted, tmp_path)
    words = [verb]
    if verb == "apply":
        words.append(str(tmp_path / "plan.json"))
        assert command(["plan", *flags, f"--out={words[1]}", "-ojson"]) == 0
    files = [tmp_path / name for name in ("in", "out", "err")]
    ends = pty.openpty()
    with ExitStack() as stack:
        streams = [stack.enter_context(path.open("wb+")).fileno() for path in files]
        code = begin([*words, *flags], [*streams, *(ends[1:] if terminal else ())])()
    for each in ends:
        os.close(each)
    out, err = (path.read_text() for path in files[1:])
    assert (code, out) == (2, "")
    assert UNASKED in err
    assert len(err.splitlines()) == 1
    assert nodes_of(drifted) == before


def test_a_run_that_only_observes_needs_no_yes(drifted, tmp_path, capsys):
    before = nodes_of(drifted)
    flags = of_cluster(drifted, tmp_path)
    capsys.readouterr()
    assert command(["run", *flags, "--mode=observe", "-ojson"]) == 0
    assert json.loads(capsys.readouterr().out)["dryRun"]
    assert nodes_of(drifted) == before


EMPTIES = """
apiVersion: rebalancer/v1
kind: Policy
steer: marks
protect: {minPodAge: 0s}
strategies: {consolidation: {minNodeAge: 0s}}
"""


def test_on_a_terminal_nodes_are_marked_after_a_yes_where_no_pod_moves(tmp_path):
    with EmbeddedCluster(timings=FAST) as cluster:
        cluster.apply(cluster_node("n0"))
        cluster.settle()
        cluster.apply(deployment("web", 2, cpu="200m"))
        cluster.settle()
        cluster.apply(cluster_node("n1"), cluster_node("n2"))
        cluster.settle()

        def marked():
            nodes = cluster.objects("Node", "")
            return [one["metadata"]["name"] for one in nodes if one["spec"].get("taints")]

        words = ["run", *of_cluster(cluster, tmp_path, EMPTIES)]
        code, shown = Typed(*words).answer(b"n\n")
        assert "Mark 2 nodes as to be empty, or renew these marks?" in shown
        assert (code, marked()) == (0, [])
        code, shown = Typed(*words).answer(b"y\n")
        assert (code, sorted(marked())) == (0, ["n1", "n2"]), shown


def test_yes_asks_nothing(drifted, tmp_path):
    code, shown = Typed("run", "--yes", *of_cluster(drifted, tmp_path)).answer()
    drifted.settle()
    assert (code, nodes_of(drifted)) == (0, ["n-a", "n-b", "n-c"])
    assert "[y/N]" not in shown


def test_ctrl_c_at_the_question_is_one_line_and_moves_nothing(drifted, tmp_path):
    before = nodes_of(drifted)
    code, shown = Typed("run", *of_cluster(drifted, tmp_path)).answer(b"\x03")
    assert (code, nodes_of(drifted)) == (130, before)
    assert shown.endswith("rebalancer: stopped by a signal; nothing was moved\r\n")
    assert "Traceback" not in shown


def test_no_archive_is_written_to_a_terminal(drifted):
    typed = Typed("snapshot", "-o", "-", f"--kubeconfig={drifted.kubeconfig}")
    code, shown = typed.answer()
    assert code == 2
    assert "a snapshot is a zip archive, and no text for a terminal" in shown
    assert "PK" not in shown
