"""``doctor`` on an embedded cluster and on files: what it writes, and its exit codes."""

import io
import json

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.cli import command
from rebalancer.commands.doctor import doctor
from rebalancer.doctor.report import Grade
from rebalancer.embedded.apiserver.http import Fault
from rebalancer.run.options import RunOptions
from rebalancer.testing.objects import job
from tests.unit.commands.embedded import third_zone_joined

FILE = "docs/examples/zone-back.zip"
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "turns", "namespace": "default"},
    "spec": {"holderIdentity": "another-run", "leaseDurationSeconds": 60},
}


def examine(cluster, red=None, output="json", **flags):
    out = io.StringIO()
    environment = Environment(out=out, err=io.StringIO(), environ={}, clock=SystemClock())
    options = RunOptions.of(
        dry_run=True, kubeconfig=str(cluster.kubeconfig), output=output, **flags
    )
    code = int(doctor(options, red, environment))
    return code, out.getvalue()


def grades(text):
    return {of["check"]: of["grade"] for of in json.loads(text)["checks"]}


def messages(text, name):
    (of,) = (of for of in json.loads(text)["checks"] if of["check"] == name)
    return [finding["message"] for finding in of["findings"]]


def test_a_cluster_that_is_ready_has_no_problem_and_what_was_not_named_is_not_judged():
    with third_zone_joined("web") as cluster:
        code, text = examine(cluster, Grade.PROBLEM, settings=("protect.minPodAge=0s",))
    assert code == 0
    seen = grades(text)
    assert seen["lease"] == seen["memory"] == "notJudged"
    assert {grade for name, grade in seen.items() if name not in ("lease", "memory")} <= {
        "ok",
        "note",
    }


def test_lease_and_memory_are_looked_at_where_they_are_named():
    with third_zone_joined("web") as cluster:
        cluster.apply(LEASE)
        _, text = examine(cluster, lease=("default", "turns"), memory=("default", "memory"))
        assert messages(text, "lease")[1].startswith("another-run holds it")
        assert grades(text)["memory"] == "ok"
        code, text = examine(
            cluster, Grade.PROBLEM, lease=("default", "none"), memory=("default", "none")
        )
    assert code == 11
    assert grades(text)["lease"] == grades(text)["memory"] == "problem"
    assert "there is no Lease default/none" in messages(text, "lease")[0]


USAGE = ("strategies.low-utilisation.signal=usage", "protect.minPodAge=0s")


def test_metrics_are_looked_at_where_the_policy_needs_them():
    with third_zone_joined("web") as cluster:
        _, text = examine(cluster)
        assert messages(text, "metrics") == ["no strategy of the policy judges by measured usage"]
        # The embedded cluster has no metrics-server.
        code, text = examine(cluster, Grade.PROBLEM, settings=USAGE)
        assert (code, grades(text)["metrics"]) == (11, "problem")
        assert messages(text, "metrics")[0].startswith("nodes.metrics.k8s.io: ")
        prometheus = "usage.prometheus={url: 'http://127.0.0.1:9', nodes: {cpu: x}}"
        _, text = examine(cluster, settings=(*USAGE, prometheus))
    assert grades(text)["metrics"] == "problem"
    assert all("nothing is moved by usage" in each for each in messages(text, "metrics"))


@pytest.mark.usefixtures("quick_retries")
def test_what_cannot_be_read_is_a_problem_and_the_other_checks_go_on():
    with third_zone_joined("web") as cluster:
        cluster.faults.add(Fault(method="GET", path="^/api/v1/nodes$", status=500, times=99))
        code, text = examine(cluster)
    assert code == 3
    seen = grades(text)
    assert seen["reading"] == "problem"
    assert seen["rights"] == "ok"


def test_the_jobs_of_cron_jobs_are_seen_in_the_one_list_of_jobs():
    with third_zone_joined("web") as cluster:
        cluster.apply(job("descheduler-29012345"))
        cluster.settle()
        _, text = examine(cluster, settings=("protect.minPodAge=0s",))
        assert cluster.faults.count_seen("GET", "^/apis/batch/v1/jobs$") == 1
    (message,) = messages(text, "otherMovers")
    assert message == "the descheduler runs here, too (namespace default)"


def test_a_file_is_judged_without_a_cluster_and_says_that_rights_are_not(capsys):
    assert command(["doctor", "--snapshot", FILE]) == 0
    text = capsys.readouterr().out
    assert "not judged  a snapshot file does not say what a user may do" in text
    assert text.rstrip().endswith("Nothing is in the way; 1 not judged.")


@pytest.mark.parametrize(("red", "code"), [("warning", 11), ("problem", 0), (None, 0)])
def test_the_exit_code_follows_the_worst_finding(red, code, capsys):
    flags = ["--fail-on", red] if red else []
    arguments = ["doctor", "--snapshot", FILE, "--set", "budgets.perRun=0", *flags]
    assert command(arguments) == code
    assert "budgets.perRun is 0: nothing is ever moved" in capsys.readouterr().out
