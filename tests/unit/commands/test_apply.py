"""``apply``: what a dry run planned and people have seen, carried out on the embedded cluster, and nothing else."""

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from rebalancer.base.errors import ExitCode, PolicyError, StoppedError
from rebalancer.cli import command
from rebalancer.embedded import demo
from rebalancer.embedded.apiserver.store import EmbeddedClock
from rebalancer.embedded.engine import Durations
from rebalancer.run.execution.act import Acting
from rebalancer.run.memory.document import decode
from rebalancer.testing.objects import EmbeddedCluster
from rebalancer.wire.times import rfc3339
from tests.docs.pages import ROOT
from tests.support.cli import call
from tests.unit.commands.embedded import (
    MEMORY,
    NOW_POLICY,
    ClusterClock,
    Runner,
    SignalAfterEviction,
    third_zone_joined,
)


@pytest.fixture
def drifted():
    with third_zone_joined("web", "api") as cluster:
        yield cluster


@pytest.fixture
def run(drifted, tmp_path):
    return Runner(drifted, tmp_path)


def uids(cluster):
    cluster.settle()
    return {pod["metadata"]["uid"] for pod in cluster.objects("Pod", "default")}


def places(cluster, app):
    """How many pods of an app stand on each node."""
    cluster.settle()
    pods = cluster.objects("Pod", "default")
    return Counter(
        pod["spec"]["nodeName"] for pod in pods if pod["metadata"]["labels"]["app"] == app
    )


def outcomes(report):
    return [move["outcome"] for move in report["moves"]]


def test_a_plan_is_carried_out_and_a_second_time_there_is_nothing_left_of_it(drifted, run):
    path, planned = run.planned()
    before = uids(drifted)
    code, report = run(plan_path=path)
    assert (code, outcomes(report)) == (0, ["evicted", "evicted"])
    gone = before - uids(drifted)
    assert gone == {move["uid"] for move in planned["moves"]}
    for app in ("web", "api"):
        assert places(drifted, app) == {"n-a": 1, "n-b": 1, "n-c": 1}
    assert [m["landed"] for m in report["moves"]] == ["n-c", "n-c"]
    assert report["reviewedPlan"] == {
        "file": path,
        "capturedAt": planned["capturedAt"],
        "source": drifted.url,
    }

    before = uids(drifted)
    code, report = run(plan_path=path)
    assert (code, outcomes(report)) == (0, ["gone", "gone"])
    assert report["stopped"] == "Nothing to do: nothing is left of the plan (2 gone)."
    assert uids(drifted) == before


def test_an_edited_plan_moves_the_pods_that_it_names_and_no_others(drifted, run):
    _, planned = run.planned()
    kept = planned["moves"].pop()
    planned["moves"] = [kept]
    before = uids(drifted)
    code, report = run(plan_path=run.written(planned))
    assert (code, outcomes(report)) == (0, ["evicted"])
    assert before - uids(drifted) == {kept["uid"]}


DEMO = Durations(start_up=0.05, shutdown=0.02, node_start_up=0.02)


@contextmanager
def returned_zone():
    """A cluster of nine workloads to which a zone has come back."""
    with EmbeddedCluster(
        EmbeddedClock(1_790_000_000.0, time.monotonic), seed=7, timings=DEMO
    ) as cluster:
        demo.many_workloads(cluster)
        demo.zone_lost(cluster)
        demo.zone_back(cluster)
        cluster.advance(7200)
        yield cluster


@pytest.mark.parametrize("applied", [False, True], ids=["run", "apply"])
def test_right_after_a_dry_run_a_run_and_apply_do_what_it_shows(tmp_path, applied):
    with returned_zone() as cluster:
        run = Runner(cluster, tmp_path, clock=ClusterClock(cluster))
        path, planned = run.planned(policy_path=None)
        code, report = run(policy_path=None, plan_path=path if applied else None)
        assert code == 0
        evicted = [m for m in report["moves"] if m["outcome"] == "evicted"]
        assert len(evicted) == len(report["moves"]) > 5
        done, shown = (
            [(m["wave"], m["owner"], m["from"], m["strategy"]) for m in moves]
            for moves in (evicted, planned["moves"])
        )
        assert done == shown


def test_its_dry_run_shows_what_is_left_and_evicts_nothing(drifted, run):
    path, planned = run.planned()
    drifted.delete("Pod", planned["moves"][0]["pod"])
    before = uids(drifted)
    code, report = run(plan_path=path, dry_run=True, detailed_exitcode=True)
    assert code == ExitCode.MOVES_PLANNED
    assert outcomes(report) == ["gone", "planned"]
    assert report["stopped"] == "Judged again: 1 of 2 moves of the plan could go (1 gone)."
    assert uids(drifted) == before
    # What it printed is a plan again, of what was left.
    code, report = run(plan_path=run.written(report))
    assert (code, outcomes(report)) == (0, ["evicted"])
    code, _ = run(plan_path=path, dry_run=True, detailed_exitcode=True)
    assert code == ExitCode.DONE


def test_what_is_shown_is_what_is_left_of_the_plan(tmp_path, capsys):
    cluster = ["--snapshot", str(ROOT / "docs" / "examples" / "zone-back.zip")]
    assert command(["plan", *cluster, "-o", "json"]) == 0
    (tmp_path / "plan.json").write_text(capsys.readouterr().out)
    plan = ["apply", str(tmp_path / "plan.json"), *cluster]
    assert command([*plan, "--select", "{labels: {app: api}}"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("2 evictions in 2 waves to fix ")
    # Neither the moves that the flag leaves out, nor their workloads.
    rows = [line.split() for line in shown.splitlines() if "/default/" in line and " -> " in line]
    assert rows == [["Deployment/default/api", "2", "3/3/0", "->", "2/2/2"]]
    assert shown.count("left out by -n, -l or --select") == 5
    assert "protected now" not in shown


def test_workloads_of_pods_that_are_gone_are_not_counted(drifted, run, capsys):
    path, planned = run.planned()
    gone, left = planned["moves"]
    drifted.delete("Pod", gone["pod"])
    drifted.settle()
    cluster = ["--kubeconfig", str(drifted.kubeconfig), "--policy", str(run.policy)]
    assert command(["apply", path, "--dry-run", *cluster]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1 eviction")
    rows = [line.split()[:2] for line in shown.splitlines() if "/default/" in line and "->" in line]
    assert rows == [[left["owner"], "1"]]


def test_a_pod_that_opted_out_since_is_left_alone(drifted, run):
    path, planned = run.planned()
    kept, moved = planned["moves"]
    pod = drifted.get("Pod", kept["pod"])
    pod["metadata"]["annotations"] = {"rebalancer/evict": "false"}
    drifted.apply({"apiVersion": "v1", "kind": "Pod", **pod})
    before = uids(drifted)
    code, report = run(plan_path=path)
    assert (code, outcomes(report)) == (0, ["dropped", "evicted"])
    assert report["moves"][0]["message"] == "protected now: optedOut"
    assert before - uids(drifted) == {moved["uid"]}


def test_a_plan_without_moves_is_nothing_to_do(run):
    _, planned = run.planned()
    code, report = run(plan_path=run.written({**planned, "moves": []}))
    assert (code, report["moves"]) == (0, [])
    assert report["stopped"] == "Nothing to do: the plan has no moves."


def refused(drifted, run, path, **options):
    """Return why a plan is refused; nothing is evicted then."""
    before = uids(drifted)
    with pytest.raises(PolicyError) as caught:
        run(plan_path=path, **options)
    assert caught.value.exit_code == ExitCode.USAGE
    assert uids(drifted) == before
    return str(caught.value)


def test_the_report_of_a_real_run_is_no_plan(drifted, run):
    _, report = run()
    assert "dryRun: is False" in refused(drifted, run, run.written(report))


def test_another_policy_or_an_observing_one_is_refused(drifted, run):
    path, _ = run.planned()
    assert "under another policy" in refused(drifted, run, path, policy_path=None)
    run.policy.write_text(NOW_POLICY + "mode: observe\n")
    path, planned = run.planned()
    assert [move["observed"] for move in planned["moves"]] == [True, True]
    assert "is in mode observe" in refused(drifted, run, path)


def test_a_plan_that_is_too_old_is_refused_unless_its_user_allows_it(drifted, run):
    path, planned = run.planned()
    hours_ago = rfc3339(drifted.clock.now() - 7210)
    path = run.written({**planned, "capturedAt": hours_ago})
    assert "is 2h old, older than --max-age 1h" in refused(drifted, run, path)
    assert run(plan_path=path, max_age=3 * 3600, dry_run=True)[1]["moves"]


def test_an_age_that_is_no_duration_is_refused(capsys):
    assert command(["apply", "plan.json", "--max-age=soon"]) == int(ExitCode.USAGE)
    assert "--max-age" in capsys.readouterr().err


def test_a_plan_of_another_cluster_is_reported_and_moves_nothing(drifted, run):
    _, planned = run.planned()
    planned["source"] = "https://elsewhere:6443"
    for move in planned["moves"]:
        move["uid"] = f"other-{move['uid']}"
    code, report = run(plan_path=run.written(planned))
    assert (code, outcomes(report)) == (0, ["changed", "changed"])
    assert "the plan was made on https://elsewhere:6443" in report["warnings"]


# -- as in run ---------------------------------------------------------------------------------------------


def test_what_it_did_is_remembered_and_the_hour_holds_it_back(drifted, run):
    run.policy.write_text(NOW_POLICY + "budgets: {perHour: 1}\n")
    _, planned = run.planned(lift_budgets=True)
    assert len(planned["moves"]) == 2
    code, report = run(plan_path=run.written(planned), memory=MEMORY)
    assert (code, outcomes(report)) == (0, ["evicted", "not-attempted"])
    document, _ = decode(drifted.get("ConfigMap", "memory")["data"])
    assert sum(count for _, count in document.evictions) == 1
    code, report = run(plan_path=run.written(planned), memory=MEMORY)
    assert (code, outcomes(report)) == (0, ["gone", "not-attempted"])
    assert report["moves"][1]["message"] == "Budget: perHour: 0 were left of it"


def test_a_signal_ends_it_with_exit_code_4(drifted, run):
    run.policy.write_text(NOW_POLICY + "budgets: {inFlight: 1}\n")
    path, planned = run.planned()
    assert [move["wave"] for move in planned["moves"]] == [1, 2]
    code, report = run(SignalAfterEviction(drifted), plan_path=path)
    assert (code, outcomes(report)) == (ExitCode.PARTIAL, ["evicted", "not-attempted"])
    assert report["cut"] == "stopped by a signal"
    drifted.settle()  # what is in flight would count against the budget
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(StoppedError, match="nothing was moved") as caught:
        run(stopped, plan_path=path)
    assert caught.value.exit_code == ExitCode.STOPPED


def test_a_signal_just_before_the_first_eviction_is_no_partial_failure(drifted, run, monkeypatch):
    stop = threading.Event()
    execute = Acting.execute

    def after_the_signal(*of_acting):
        stop.set()
        return execute(*of_acting)

    monkeypatch.setattr(Acting, "execute", after_the_signal)
    code, report = run(stop)
    assert (code, report["exitCode"]) == (ExitCode.STOPPED, ExitCode.STOPPED)
    assert set(outcomes(report)) == {"not-attempted"}


def test_while_another_run_holds_the_lease_nothing_is_done(drifted, run):
    path, _ = run.planned()
    now = drifted.clock.now()
    drifted.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "lease"},
            "spec": {
                "holderIdentity": "another",
                "leaseDurationSeconds": 60,
                "renewTime": f"{rfc3339(now)[:-1]}.000000Z",
            },
        }
    )
    before = uids(drifted)
    code, report = run(plan_path=path, lease="default/lease")
    assert (code, report["heldBy"]["holder"], report["moves"]) == (0, "another", [])
    assert report["reviewedPlan"]["file"] == path
    assert uids(drifted) == before


def test_on_a_wrong_picture_nothing_is_moved(drifted, run):
    path, _ = run.planned()
    drifted.break_nodes(["n-b", "n-c"])
    drifted.settle()
    code, report = run(plan_path=path)
    assert code == 0
    assert report["standstill"]
    assert "evicted" not in outcomes(report)


# -- the command -------------------------------------------------------------------------------------------


def test_the_command_says_in_words_what_is_left(drifted, run, capsys, tmp_path):
    _, planned = run.planned()
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(planned))
    flags = [f"--policy={run.policy}", f"--kubeconfig={drifted.kubeconfig}", "--quiet", "--yes"]
    assert command(["apply", str(path), *flags]) == 0
    report = " ".join(capsys.readouterr().out.split())
    assert f"Run of plan {path} of {planned['capturedAt']} with policy" in report
    assert "2 evicted, 2 of 2 landed on the predicted node. Every rule holds now." in report
    assert "6 pods > 2 moves planned > 2 left when judged again" in report
    assert report.endswith("Done: 2 of 2 moves; unmet rules 2 -> 0; 0 pods left that should move.")
    assert command(["apply", str(path), *flags]) == 0
    report = " ".join(capsys.readouterr().out.split())
    assert "2 gone before. Nothing to do: nothing is left of the plan (2 gone)." in report


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["/nowhere.json"], "/nowhere.json: cannot be read"),
        (["-", "--snapshot=-"], "cannot both be standard input"),
        ([], "missing argument 'PLAN'"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_a_usage_error(args, says, capsys):
    assert command(["apply", *args]) == ExitCode.USAGE
    assert says in capsys.readouterr().err


def test_a_snapshot_file_reports_offline_what_is_left(drifted, run, capsys, tmp_path):
    # One who reviews a plan may see what has become of it, without rights to move anything.
    path, _ = run.planned()
    taken = tmp_path / "cluster.zip"
    assert command(["snapshot", f"--kubeconfig={drifted.kubeconfig}", "-o", str(taken)]) == 0
    capsys.readouterr()
    args = ["apply", path, f"--snapshot={taken}", f"--policy={run.policy}", "-o", "json"]
    assert command(args) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["dryRun"], outcomes(report)) == (True, ["planned", "planned"])
    assert report["warnings"] == []
    # The same from a pipe, as its own process.
    done = call(["apply", "-", *args[2:]], stdin=Path(path).read_text())
    assert done.returncode == 0, done.stderr
    again = json.loads(done.stdout)
    assert again["moves"] == report["moves"]
    assert again["reviewedPlan"]["file"] == "standard input"


SCHEDULED = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
scheduler: {fromConfig: %s}
strategies: {anti-affinity: {}}
"""
SCHEDULER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: %d
"""


def scheduler_config(percentage):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "scheduler"},
        "data": {"config.yaml": SCHEDULER % percentage},
    }


@pytest.mark.parametrize("named", ["scheduler.yaml", "{configMap: default/scheduler}"])
def test_a_plan_under_another_configuration_of_the_scheduler_is_refused(drifted, tmp_path, named):
    def configure(percentage):
        (tmp_path / "scheduler.yaml").write_text(SCHEDULER % percentage)
        drifted.apply(scheduler_config(percentage))

    configure(50)
    run = Runner(drifted, tmp_path, SCHEDULED % named)
    path, planned = run.planned()
    before = uids(drifted)
    configure(60)
    with pytest.raises(PolicyError, match=r"policyHash: .*scheduler\.fromConfig holds something"):
        run(plan_path=path)
    with pytest.raises(PolicyError, match="shown above: policyHash"):
        run(confirmed_plan=Path(path).read_bytes())
    assert uids(drifted) == before
    configure(50)
    code, report = run(plan_path=path)
    assert (code, outcomes(report)) == (0, ["evicted", "evicted"])
    assert report["policyHash"] == planned["policyHash"]
