"""The chart's alerts and dashboard, and what a run pushes, with the real Prometheus and Pushgateway."""

import json
import re
import time
from dataclasses import replace

import pytest
import yaml

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.plan.plan import Code, Outcome, Skip, Status, with_moves
from rebalancer.report.metrics import of_report, of_totals, push, registry
from rebalancer.run.memory.document import Document, OwnerMemory, TermMemory
from rebalancer.run.memory.remember import summarize_memory
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.chart.helm import one, render
from tests.prometheus.programs import prometheus, promtool, pushgateway, query
from tests.unit.commands.embedded import MEMORY, Runner, third_zone_joined
from tests.unit.report.test_metrics import move, report

pytestmark = pytest.mark.prometheus

ENABLED = {
    "kind": "Deployment",
    "metrics": {
        "push": {"url": "http://pushgateway:9091"},
        "rules": {"enabled": True},
        "dashboard": {"enabled": True},
    },
}
JOB = 'job="kube-rebalancer"'
# Alert -> time series (a sample a minute), a minute at which it fires, one at which it has resolved, its labels.
FIRING = {
    "RebalancerDidNotRun": (
        {f"rebalancer_last_run_timestamp_seconds{{{JOB}}}": "0+0x20 1200+60x40"},
        10,
        25,
        {},
    ),
    "RebalancerIsNotSeen": (
        {f"rebalancer_last_run_timestamp_seconds{{{JOB}}}": "_x20 1200+60x40"},
        10,
        25,
        {},
    ),
    "RebalancerNobodyLeads": (
        # Of two processes the one that led lost the Lease, and the other gets it later.
        {
            f'rebalancer_leads{{{JOB},pod="a"}}': "1+0x5 0+0x40",
            f'rebalancer_leads{{{JOB},pod="b"}}': "0+0x20 1+0x25",
        },
        15,
        25,
        {},
    ),
    "RebalancerPolicyIsInvalid": (
        {f"rebalancer_policy_invalid{{{JOB}}}": "0+0x5 1+0x20 0+0x20"},
        18,
        30,
        {},
    ),
    "RebalancerFails": ({f"rebalancer_last_run_exit_code{{{JOB}}}": "4+0x10 0+0x20"}, 8, 15, {}),
    "RebalancerStandsStill": ({f"rebalancer_standstill{{{JOB}}}": "2+0x20 0+0x20"}, 18, 25, {}),
    "RebalancerLandingsContradictTheModel": (
        {
            # Of many runs between two scrapes nothing is lost, and a run without moves ends nothing.
            f'rebalancer_landings_total{{{JOB},result="elsewhere"}}': "7+1x20 27+0x100",
            f'rebalancer_landings_total{{{JOB},result="as-predicted"}}': "50+2x20 90+2x100",
        },
        15,
        110,
        {},
    ),
    "RebalancerMovesAgain": (
        {
            f'rebalancer_moved_again{{{JOB},owner="Deployment/shop/web"}}': "0+0x5 1+0x2 0+0x100",
            f'rebalancer_moved_again{{{JOB},owner="other"}}': "0+0x100",
        },
        10,
        80,
        {"owner": "Deployment/shop/web"},
    ),
    "RebalancerBudgetsExhausted": (
        {
            f"rebalancer_backlog_moves{{{JOB}}}": "9+0x150 0+0x200",
            f'rebalancer_skips{{{JOB},code="Budget"}}': "0+0x100 3+0x200 0+0x50",
        },
        270,
        330,
        {},
    ),
    "RebalancerUnmetRulesGrow": (
        {
            f'rebalancer_rules_unmet{{{JOB},strategy="duplicates",when="before"}}': "2+0x400 5+0x800",
            f'rebalancer_rules_unmet{{{JOB},strategy="duplicates",when="now"}}': "9+0x1200",
        },
        530,
        770,
        {},
    ),
    "RebalancerZoneIsClosed": (
        {
            f'rebalancer_zones{{{JOB},state="closed"}}': "1+0x90 0+0x50",
            f'rebalancer_zones{{{JOB},state="open"}}': "2+0x90 3+0x50",
        },
        70,
        100,
        {},
    ),
    "RebalancerSignalSourceFails": (
        {f'rebalancer_signal_source_failing{{{JOB},source="sqs"}}': "0+0x5 1+0x20 0+0x20"},
        18,
        30,
        {"source": "sqs"},
    ),
    "RebalancerWatchIsSilent": (
        {f"rebalancer_watch_silence_seconds{{{JOB}}}": "0+60x30 0+0x20"},
        20,
        35,
        {},
    ),
    "RebalancerWatchIsRefused": (
        # What is over within five minutes, as at an upgrade of the API server, is none.
        {f"rebalancer_watches_refused{{{JOB}}}": "0+0x5 1+0x3 0+0x5 2+0x14 0+0x20"},
        24,
        34,
        {},
    ),
}


@pytest.fixture(scope="module")
def manifests():
    return render(ENABLED)


@pytest.fixture
def rules(manifests, tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(one(manifests, "PrometheusRule")["spec"]))
    return file


def expressions(manifests):
    """Yield the queries of the dashboard, for all jobs."""
    (text,) = one(manifests, "ConfigMap", "rebalancer-kube-rebalancer-dashboard")["data"].values()
    for panel in json.loads(text)["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$job", ".*")


def test_promtool_accepts_the_rules_and_each_has_a_test(rules):
    promtool("check", "rules", rules)
    (group,) = yaml.safe_load(rules.read_text())["groups"]
    assert {rule["alert"] for rule in group["rules"]} == set(FIRING)


@pytest.mark.parametrize("alert", FIRING)
def test_each_alert_fires_and_resolves(rules, tmp_path, alert):
    (group,) = yaml.safe_load(rules.read_text())["groups"]
    (rule,) = (rule for rule in group["rules"] if rule["alert"] == alert)
    series, fires, resolved, labels = FIRING[alert]
    # What a text says of its value is Prometheus' matter: here it is the labels that count.
    rule.pop("annotations")
    rules.write_text(yaml.safe_dump({"groups": [{**group, "rules": [rule]}]}))
    fired = {"exp_labels": {"severity": rule["labels"]["severity"], "job": "kube-rebalancer"}}
    fired["exp_labels"] |= labels
    checks = [
        {"eval_time": f"{fires}m", "alertname": alert, "exp_alerts": [fired]},
        {"eval_time": f"{resolved}m", "alertname": alert, "exp_alerts": []},
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    tests = [{"interval": "1m", "input_series": inputs, "alert_rule_test": checks}]
    file = tmp_path / "tests.yaml"
    text = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(text))
    promtool("test", "rules", file)


def test_texts_of_the_alerts_can_be_filled_in(rules):
    # Helm and Prometheus use the same brackets.
    text = rules.read_text()
    assert "{{ $value | humanizeDuration }}" in text
    assert "{{ $labels.owner }}" in text


def test_a_run_pushes_prometheus_scrapes_and_every_query_of_the_dashboard_has_an_answer(
    manifests, tmp_path
):
    now = time.time()
    terms = {"spread/soft": TermMemory(moves=1, last=int(now), trail=(("n-b", "n-a"),))}
    memory = Document(owners={"Deployment/shop/web": OwnerMemory("f", "z", int(now), terms)})
    skips = [Skip("shop", "five", "n-a", "spread", Code.BUDGET, "")]
    busy = report([Outcome(move("one"), Status.EVICTED, "", "n-b", predicted=True)], skips=skips)
    two_zones = [node("n-a", "a"), node("n-b", "b"), *workload("web", ["n-a"] * 3)]
    busy = replace(busy, snapshot=snapshot_of(two_zones))
    with pushgateway() as gateway, prometheus(tmp_path, gateway) as server:
        totals = of_totals(with_moves(memory.totals, busy.outcomes))
        push(
            gateway,
            registry(of_report(busy, summarize_memory(memory, now), now) | totals),
            Stop(SystemClock()),
        )
        # Those on interruptions are of serve, which pushes nothing.
        of_serve = re.compile("rebalancer_(interruption|signal)")
        wanted = [one for one in expressions(manifests) if not of_serve.search(one)]
        assert len(wanted) == 15
        until = time.monotonic() + 60
        # Growth is known from the second scrape on.
        while missing := [expression for expression in wanted if not query(server, expression)]:
            assert time.monotonic() < until, f"no answer within a minute: {missing}"
            time.sleep(0.5)
        with third_zone_joined("web") as cluster:
            code, _ = Runner(cluster, tmp_path)(metrics_push=gateway, memory=MEMORY)
        assert code == 0
        owner = 'rebalancer_evictions{owner="Deployment/default/web",job="kube-rebalancer"}'
        while not query(server, owner):
            assert time.monotonic() < until + 60, "the run's metrics were not scraped"
            time.sleep(0.5)
        assert query(server, 'rebalancer_runs_total{exit_code="0",job="kube-rebalancer"} == 1')
        assert query(server, 'rebalancer_moves_total{outcome="evicted",namespace="default"} > 0')
        # A push replaces the group: owners of earlier runs are gone, and scraped as such.
        while query(server, 'rebalancer_evictions{owner="Deployment/shop/web"}'):
            assert time.monotonic() < until + 60, "the metrics of the run before stay"
            time.sleep(0.5)
