"""Usage by queries of the real Prometheus, over series that were recorded."""

import io
import json
import time
from typing import Any

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.commands.run import run_once
from rebalancer.commands.snapshot import save_snapshot
from rebalancer.embedded.engine import Durations
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.run.options import ClusterFlags, RunOptions
from rebalancer.testing.objects import EmbeddedCluster, deployment
from tests.controlplane import pki
from tests.prometheus.programs import recorded

pytestmark = pytest.mark.prometheus

MINUTES = 90
BUSY, IDLE = [2.8, 3.6], [0.2, 0.2]
PERCENTILE = "quantile_over_time(0.95, cores{job='node'}[1h])"


def samples(name, labels, values, now):
    """One series: ``values`` in turn, a sample every 30 s, up to now."""
    text = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return [
        f"{name}{{{text}}} {values[k % len(values)]} {now - 30 * k}\n"
        for k in reversed(range(MINUTES * 2))
    ]


def series(now):
    """What the nodes of the cluster below use, and samples that are none of theirs."""
    lines = ["# TYPE cores gauge\n"]
    for node, values in {"n-a": BUSY, "n-b": IDLE, "n-c": IDLE, "n-d": IDLE}.items():
        lines += samples("cores", {"job": "node", "node": node}, values, now)
    lines += samples("cores", {"job": "twice", "node": "n-a", "replica": "0"}, BUSY, now)
    lines += samples("cores", {"job": "twice", "node": "n-a", "replica": "1"}, BUSY, now)
    lines += samples("cores", {"job": "twice", "node": "n-c", "replica": "0"}, IDLE, now)
    lines += samples("cores", {"job": "other", "node": "10.0.0.1:9100"}, IDLE, now)
    return "".join(lines)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The cluster of four nodes, the address of Prometheus, and its authority."""
    folder = tmp_path_factory.mktemp("prometheus")
    keys = pki.create(folder / "pki", ["127.0.0.1"])
    timings = Durations(start_up=0.05, shutdown=0.05, node_start_up=0.05)
    with (
        EmbeddedCluster(timings=timings) as cluster,
        recorded(folder, series(int(time.time())), keys) as url,
    ):
        cluster.add_node("n-a", "a", cpu="4")
        cluster.settle()
        cluster.apply(deployment("web", 4, labels={"app": "web"}))
        cluster.settle()
        for name in ("n-b", "n-c", "n-d"):
            cluster.add_node(name, name[-1], cpu="4")
        cluster.settle()
        yield cluster, url, keys.ca_cert


@pytest.fixture
def planned(world, tmp_path):
    """Report of a dry run by a query, and the path of its policy."""
    cluster, url, ca = world

    def once(query=PERCENTILE, snapshot=None, ca_file=ca, **settings):
        chosen = {"url": url, "nodes": {"cpu": query}, "window": "1h", "caFile": str(ca_file)}
        usage = {"prometheus": {**chosen, **settings}}
        options = {"signal": "usage", "runs": 1, "under": {"cpu": "30%"}, "over": {"cpu": "60%"}}
        policy = tmp_path / "policy.yaml"
        data = {"apiVersion": "rebalancer/v1", "kind": "Policy", "usage": usage}
        data |= {"protect": {"minPodAge": "0s"}, "strategies": {"low-utilisation": options}}
        policy.write_text(json.dumps(data))
        out = io.StringIO()
        source: dict[str, Any] = {"snapshot_path": str(snapshot)} if snapshot else {}
        source = source or {"kubeconfig": str(cluster.kubeconfig)}
        run_once(
            RunOptions.of(
                policy_path=str(policy), dry_run=True, output="json", quiet=True, **source
            ),
            Environment(SystemClock(), {}, out, io.StringIO()),
        )
        return json.loads(out.getvalue()), policy

    return once


def first_reason(report):
    """Why the first pod is moved; all are moved off one node."""
    assert {move["from"] for move in report["moves"]} == {"n-a"}
    return report["moves"][0]["reason"]


def moves(report):
    return sorted((move["pod"], move["from"], move["reason"]) for move in report["moves"])


def test_a_percentile_judges_the_nodes_and_a_file_gives_the_same_plan(planned, world, tmp_path):
    report, policy = planned()
    assert first_reason(report) == "node n-a: cpu 90% used (over 60%)"  # 3.6 of 4 cores
    file = tmp_path / "cluster.zip"
    usage = load_policy(policy, Registry.installed()).policy.usage
    environment = Environment(SystemClock(), {}, io.StringIO(), io.StringIO())
    access = ClusterFlags(kubeconfig=str(world[0].kubeconfig))
    save_snapshot(access, str(file), environment, usage=usage)
    first, again = (planned(snapshot=file)[0] for _ in range(2))
    assert [one.pop("timings") for one in (first, again)]
    assert first == again
    assert moves(first) == moves(report)


@pytest.mark.parametrize("of_shares", [False, True])
def test_the_query_decides_what_is_judged(planned, of_shares):
    query = f"avg_over_time(cores{{job='node'}}[1h]){' / 4' if of_shares else ''}"
    report, _ = planned(query, unit="share" if of_shares else "amount")
    assert first_reason(report) == "node n-a: cpu 80% used (over 60%)"
    report, _ = planned("cores{job='node'} / 10")
    assert report["moves"] == []


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("cores{job='twice'}", "n-a: 2 samples of cpu"),
        ("cores{job='node',node!='n-d'}", "1 of 4 nodes are not measured (n-d)"),
        ("cores{job='node'} / 0 * 0", "cpu is NaN"),
        ("cores{job='node'} * Inf", "cpu is +Inf"),
        ("cores{job='other'}", "what was measured is of others (10.0.0.1:9100)"),
        ("nothing", "nodes.cpu: the query gives no sample"),
        ("cores[5m]", "matrix"),
        ("scalar(cores{node='n-a'})", "answered with a scalar"),
        ("cores{", "answered 400 Bad Request"),
        ("sum(cores)", "a sample has no label node (its labels: none)"),
        ("cores{job='node'} * 100", "is no share from 0 to 1"),
    ],
)
def test_what_cannot_be_judged_is_named(planned, query, says):
    share = {"unit": "share"} if query.endswith("* 100") else {}
    report, _ = planned(query, **share)
    assert says in json.dumps(report)
    if "node!=" not in query:
        assert report["moves"] == []


def test_a_server_of_another_authority_is_not_asked(planned, tmp_path):
    strange = pki.create(tmp_path / "strange", ["127.0.0.1"])
    report, _ = planned(ca_file=strange.ca_cert)
    assert "its certificate is not trusted" in json.dumps(report)
    assert report["moves"] == []
