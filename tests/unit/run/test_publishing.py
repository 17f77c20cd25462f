"""What a run sends to others: metrics and notices, whatever comes of it, and never another exit code."""

import io
import json

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError
from rebalancer.commands.run import run_once
from tests.support.worlds import read_metrics
from tests.unit.base.test_sending import SECRET, server
from tests.unit.commands.embedded import MEMORY, NOW_POLICY, run_options, third_zone_joined


def run(cluster, folder, err=None, **options):
    policy = folder / "policy.yaml"
    policy.write_text(NOW_POLICY)
    chosen = {"policy_path": str(policy), "output": "json", "quiet": True, **options}
    if cluster is not None:
        chosen["kubeconfig"] = str(cluster.kubeconfig)
    environment = Environment(SystemClock(), {}, io.StringIO(), err or io.StringIO())
    return run_once(run_options(**chosen), environment)


def test_a_run_that_acts_pushes_writes_and_gives_notice(tmp_path):
    file = tmp_path / "rebalancer.prom"
    with server() as (url, asked), third_zone_joined("web") as cluster:
        flags = {"metrics_push": url, "notify": f"{url}/{SECRET}", "notify_template": "slack"}
        options = {**flags, "metrics_file": str(file), "memory": MEMORY}
        assert run(cluster, tmp_path, **options) == ExitCode.DONE
        assert run(cluster, tmp_path, **options) == ExitCode.DONE
    pushed, notice, pushed_again = asked
    assert (pushed[0], pushed[1]) == ("PUT", "/metrics/job/kube-rebalancer")
    metrics = read_metrics(pushed[3].decode())
    assert metrics["rebalancer_moves", "evicted"] == 1
    assert metrics["rebalancer_landings", "as-predicted"] == 1
    assert metrics["rebalancer_evictions", "Deployment/default/web"] == 1
    assert metrics["rebalancer_rules_unmet", "anti-affinity", "before"] == 1
    assert metrics["rebalancer_rules_unmet", "anti-affinity", "after"] == 0
    assert notice[:2] == ("POST", f"/{SECRET}")
    assert json.loads(notice[3])["text"] == "kube-rebalancer: acted"
    assert metrics["rebalancer_runs_total", "0"] == 1
    # What only grows is known to each run: nothing is lost where no scrape has seen one.
    again = read_metrics(pushed_again[3].decode())
    assert again["rebalancer_runs_total", "0"] == 2
    moves = {key: value for key, value in again.items() if key[0] == "rebalancer_moves_total"}
    assert moves == {("rebalancer_moves_total", "default", "evicted", "anti-affinity"): 1}
    assert again["rebalancer_landings_total", "as-predicted"] == 1
    # The second run had nothing to do: it gives no notice.
    assert read_metrics(pushed_again[3].decode())["rebalancer_moves", "evicted"] == 0
    assert read_metrics(file.read_text())["rebalancer_memory_owners", "fine"] == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_fails_to_be_sent_changes_no_exit_code_and_shows_no_secret(tmp_path):
    err = io.StringIO()
    with server(500) as (url, _), third_zone_joined("web") as cluster:
        code = run(
            cluster,
            tmp_path,
            err,
            metrics_push=f"http://user:{SECRET}@127.0.0.1:1",
            metrics_file=str(tmp_path / "no" / "such.prom"),
            notify=f"{url}/{SECRET}",
        )
    assert code == ExitCode.DONE
    said = err.getvalue().splitlines()
    assert [line.split(": ")[1].split()[0] for line in said] == [
        "--metrics-file",
        "--metrics-push",
        "--notify",
    ]
    assert SECRET not in err.getvalue()


def test_a_run_that_cannot_read_the_cluster_says_so(tmp_path):
    with third_zone_joined() as cluster:
        kubeconfig = tmp_path / "gone"
        kubeconfig.write_text(cluster.kubeconfig.read_text())
    with server() as (url, asked), pytest.raises(ClusterReadError) as error:
        run(None, tmp_path, kubeconfig=str(kubeconfig), metrics_push=url, notify=url)
    pushed, notice = asked
    assert (
        read_metrics(pushed[3].decode())["rebalancer_last_run_exit_code",]
        == error.value.exit_code
        == 3
    )
    assert json.loads(notice[3])["result"] == "failed"


def test_a_wrong_policy_is_a_failure_too(tmp_path):
    with server() as (url, asked), pytest.raises(PolicyError):
        run(None, tmp_path, metrics_push=url, snapshot_path="x", lease="a/b")
    assert read_metrics(asked[0][3].decode())["rebalancer_last_run_exit_code",] == 2


@pytest.mark.parametrize("flag", ["metrics_push", "notify"])
def test_a_wrong_address_is_refused_before_the_run(tmp_path, flag):
    with pytest.raises(PolicyError, match="is no address") as error:
        run(None, tmp_path, **{flag: f"ftp://{SECRET}"})
    assert SECRET not in str(error.value)


def test_a_group_in_the_address_is_kept(tmp_path):
    with server() as (url, asked), third_zone_joined("web") as cluster:
        run(cluster, tmp_path, dry_run=True, metrics_push=f"{url}/base/metrics/job/x/release/y")
    assert asked[0][1] == "/base/metrics/job/x/release/y"


YOUNG = ("protect.minPodAge=1h",)
"""No pod may move, and so a rule stays unmet."""


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"dry_run": True, "fail_on": ("unmet",)}, ExitCode.DONE),
        ({"dry_run": True, "fail_on": ("held", "standstill")}, ExitCode.DONE),
        ({"dry_run": True, "detailed_exitcode": True}, ExitCode.MOVES_PLANNED),
        ({"dry_run": True, "settings": YOUNG, "fail_on": ("unmet",)}, ExitCode.ASKED_RED),
        (
            {"dry_run": True, "settings": YOUNG, "fail_on": ("unmet",), "detailed_exitcode": True},
            ExitCode.ASKED_RED,
        ),
    ],
)
def test_fail_on(tmp_path, options, code):
    with third_zone_joined("web") as cluster:
        assert run(cluster, tmp_path, **options) == code
