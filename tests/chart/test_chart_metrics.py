"""Metrics and notices in the chart, as the real Helm renders it."""

from pathlib import Path
from typing import Any

import pytest

from tests.chart.helm import HelmError, one, pod_spec, render

pytestmark = pytest.mark.e2e  # Helm is built from Go modules
ROOT = Path(__file__).parents[2]
ALL: dict[str, Any] = {
    "metrics": {
        "push": {"url": "http://gateway:9091/"},
        "file": "/textfile/rebalancer.prom",
        "rules": {"enabled": True, "labels": {"release": "prometheus"}, "periodSeconds": 600},
        "dashboard": {"enabled": True},
    },
    "notify": {"secretName": "webhook", "template": "slack"},
}


def container_of(manifests, kind, name=None):
    manifest = one(manifests, kind, name)
    spec = pod_spec(manifest) if kind == "CronJob" else manifest["spec"]["template"]["spec"]
    return spec["containers"][0]


def variables(container):
    return {
        one["name"]: one["valueFrom"]["secretKeyRef"]
        for one in container["env"]
        if "secretKeyRef" in one.get("valueFrom", {})
    }


def test_nothing_of_it_is_there_by_default():
    manifests = render()
    kinds = {manifest["kind"] for manifest in manifests}
    names = {manifest["metadata"]["name"] for manifest in manifests}
    assert "PrometheusRule" not in kinds
    assert not any("dashboard" in name for name in names)
    container = container_of(manifests, "CronJob")
    assert not [arg for arg in container["args"] if "metrics" in arg or "notify" in arg]
    assert variables(container) == {}


def test_values_become_flags_rules_and_a_dashboard():
    manifests = render(ALL)
    wanted = {
        "--metrics-push=http://gateway:9091/metrics/job/kube-rebalancer",
        "--metrics-file=/textfile/rebalancer.prom",
        "--notify-template=slack",
    }
    container = container_of(manifests, "CronJob")
    assert wanted <= set(container["args"])
    assert variables(container) == {"REBALANCER_NOTIFY": {"name": "webhook", "key": "url"}}
    rule = one(manifests, "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert rule["spec"]["groups"][0]["rules"][0]["expr"].endswith("> 1800")
    dashboard = one(manifests, "ConfigMap", "rebalancer-kube-rebalancer-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_chart_s_own_test_pushes_nothing():
    container = container_of(render(ALL), "Job", "rebalancer-kube-rebalancer-test")
    assert variables(container) == {}
    assert not [arg for arg in container["args"] if "--metrics" in arg or "--notify" in arg]


def test_an_address_that_is_a_secret_stands_in_no_argument():
    push = {"url": "http://gateway:9091", "secretName": "gateway"}
    container = container_of(render({"metrics": {"push": push}}), "CronJob")
    assert variables(container) == {"REBALANCER_METRICS_PUSH": {"name": "gateway", "key": "url"}}
    assert not [arg for arg in container["args"] if "--metrics-push" in arg]


def test_each_alert_links_its_part_of_the_page():
    page = "https://git.example.com/docs/metrics.md"
    headings = {
        line.removeprefix("### ").lower()
        for line in (ROOT / "docs" / "metrics.md").read_text().splitlines()
        if line.startswith("### ")
    }
    rules = {**ALL["metrics"]["rules"], "runbookUrl": page}
    for more, linked in ((ALL["metrics"]["rules"], False), (rules, True)):
        manifests = render({**ALL, "metrics": {**ALL["metrics"], "rules": more}})
        for rule in one(manifests, "PrometheusRule")["spec"]["groups"][0]["rules"]:
            anchor = rule["alert"].lower()
            assert anchor in headings
            assert rule["annotations"].get("runbook_url") == (
                f"{page}#{anchor}" if linked else None
            )


@pytest.mark.parametrize("part", ["rules", "dashboard"])
def test_alerts_without_metrics_are_refused(part):
    with pytest.raises(HelmError, match="need metrics: set metrics"):
        render({"metrics": {part: {"enabled": True}}})


def test_a_way_out_for_metrics_can_be_added_to_the_network_policy():
    more = {"to": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 9091}]}
    values = {"networkPolicy": {"enabled": True, "extraEgress": [more]}}
    egress = one(render(values), "NetworkPolicy")["spec"]["egress"]
    assert egress[-1] == more
    assert len(egress) == 3
