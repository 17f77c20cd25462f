"""``run --snapshot``: the whole product without a cluster, as a process."""

import io
import json

import pytest
import yaml

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.cli import command as main
from rebalancer.commands.run import run_once
from rebalancer.run.options import RunOptions
from rebalancer.testing.snapshots import apart, node, spread, workload
from tests.support.cli import call
from tests.unit.commands.called import called


def run(*args, stdin=""):
    return call(args, stdin=stdin)


@pytest.fixture
def drifted(tmp_path):
    """A snapshot file of the article's state and a little more."""
    nodes = [node(f"n-{zone}", zone) for zone in "abc"]
    objects = [
        {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "other"}},
        *nodes,
        *workload("web", ["n-a", "n-b", "n-a"], spec=apart("web", weight=100)),
        *workload("db", ["n-a", "n-a"], kind="StatefulSet", spec=spread("db", hard=True)),
        *workload("one", ["n-b"]),
    ]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return path


class StandingClock(SystemClock):
    """No time passes: a deadline of a second bounds the plan, and ends nothing on a busy machine."""

    def now(self) -> float:
        return 0.0


def report_of(done):
    assert done.returncode in (0, 10), done.stderr
    return json.loads(done.stdout)


def test_two_runs_on_one_file_print_the_same_bytes_but_for_the_timings(drifted):
    first, second = (run("run", f"--snapshot={drifted}", "-o", "json") for _ in range(2))
    one, two = report_of(first), report_of(second)
    assert one.pop("timings").keys() == two.pop("timings").keys()
    assert json.dumps(one) == json.dumps(two)
    assert len(one["moves"]) == 2


@pytest.mark.parametrize("form", ["table", "wide", "yaml", "html", "markdown", "csv"])
def test_every_form_names_the_moves(drifted, form):
    done = called("run", f"--snapshot={drifted}", "-o", form)
    assert done.returncode == 0, done.stderr
    assert "web-0" in done.stdout
    assert "n-c" in done.stdout


def test_a_pipe_may_hold_the_snapshot(drifted):
    done = run("run", "--snapshot=-", "-o", "json", stdin=drifted.read_text())
    assert len(report_of(done)["moves"]) == 2


def test_detailed_exitcode_says_that_there_are_moves(drifted):
    assert called("run", f"--snapshot={drifted}", "--detailed-exitcode").returncode == 10


def test_namespace_and_selector_narrow_what_may_move(drifted):
    assert (
        report_of(called("run", f"--snapshot={drifted}", "-o", "json", "-n", "other"))["moves"]
        == []
    )
    moves = report_of(called("run", f"--snapshot={drifted}", "-o", "json", "-l", "app in (db)"))[
        "moves"
    ]
    assert {move["owner"] for move in moves} == {"StatefulSet/default/db"}


def test_a_plan_holds_what_one_run_can_carry_out_and_a_whole_one_holds_all(drifted, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nbudgets: {inFlight: 1}\n"
        "strategies: {anti-affinity: {}, topology-spread: {}}\n"
    )

    def planned(*, whole):
        out = io.StringIO()
        options = RunOptions.of(
            snapshot_path=str(drifted),
            policy_path=str(policy),
            output="json",
            dry_run=True,
            deadline=1,
            whole=whole,
        )
        assert run_once(options, Environment(StandingClock(), {}, out, io.StringIO())) == 0
        return json.loads(out.getvalue())

    part, whole = planned(whole=False), planned(whole=True)
    assert (len(part["moves"]), part["rest"]) == (1, {"moves": 1, "runs": 1, "more": True})
    assert (len(whole["moves"]), whole["rest"]["moves"]) == (2, 0)
    assert part["moves"][0] == whole["moves"][0]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--whole"], "--whole needs --dry-run"),
        (["--snapshot=/nowhere.json"], "/nowhere.json"),
        (["--policy=/nowhere.yaml"], "/nowhere.yaml"),
        (["--kubeconfig=/nowhere.conf"], "/nowhere.conf"),
        (["-l", "a=(", "--snapshot=-"], "-l a=("),
        (["--lease", "nameless"], "NAMESPACE/NAME"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(args, says):
    done = called("run", "--yes", *args)
    assert done.returncode in (2, 3)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_command_is_a_usage_error():
    done = called("walk")
    assert done.returncode == 2
    assert "walk" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("simulate",),
        ("explain", "workload", "web"),
        ("explain", "node", "n-a"),
        ("explain", "pod", "default/web-0"),
    ],
)
def test_whatever_is_written_as_json_is_written_as_yaml(drifted, command, capsys):
    texts = []
    for form in ("json", "yaml"):
        assert main([*command, f"--snapshot={drifted}", "-o", form]) == 0
        texts.append(capsys.readouterr().out)
    assert yaml.safe_load(texts[1]) == json.loads(texts[0])


def test_a_yes_to_a_file_is_said_to_have_no_effect(drifted):
    done = run("run", "--yes", "--snapshot", str(drifted))
    assert done.returncode == 0
    assert "--yes has no effect: nothing is evicted from a file" in " ".join(done.stdout.split())
