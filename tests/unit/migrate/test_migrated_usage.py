"""Queries of Prometheus: what happens to providers, queries and thresholds."""

import pytest
import yaml

from rebalancer.policy.load import load_text
from tests.unit.migrate.conftest import KNOWN, OURS

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
FAILS = "not carried over: LowNodeUtilization: "


def provider(url="https://p:9091", token=""):
    return f"metricsProviders:\n- source: Prometheus\n  prometheus: {{url: '{url}'{token}}}\n"


SECRET = ", authToken: {secretReference: {namespace: kube-system, name: reader}}"


def profiles(*arguments):
    """One profile each, with LowNodeUtilization."""
    text = "profiles:\n"
    for args in arguments:
        text += f"- pluginConfig:\n  - name: LowNodeUtilization\n    args: {args}\n"
        text += "  plugins: {balance: {enabled: [LowNodeUtilization]}}\n"
    return text


def judged(query, low=20, high=50, name="MetricResource"):
    source = f"{{source: Prometheus, prometheus: {{query: '{query}'}}}}"
    limits = f"thresholds: {{{name}: {low}}}, targetThresholds: {{{name}: {high}}}"
    return f"{{{limits}, metricsUtilization: {source}}}"


CPU, MEMORY = judged("instance:node_cpu:rate:sum"), judged("1 - node_memory_free_share[2h]")
SERVER = "{thresholds: {cpu: 1}, targetThresholds: {cpu: 2}, metricsUtilization: {source: KubernetesMetrics}}"


@pytest.fixture
def policy(migrate):
    """The policy as plain data, once our own reader has accepted it, and the notes on usage."""

    def outcome(*parts):
        text, notes = migrate("".join(parts))
        load_text((OURS + text).encode(), "ours.yaml", KNOWN)
        return yaml.safe_load(text), [note for note in notes if "etrics" in note or "Prom" in note]

    return outcome


@pytest.mark.parametrize(
    ("url", "token", "files"),
    [
        ("http://p:9090", "", {}),
        ("http://p:9090", SECRET, {}),
        ("https://p:9091", "", {"tokenFile": f"{ACCOUNT}/token", "caFile": f"{ACCOUNT}/ca.crt"}),
        (
            "https://p:9091/prefix",
            SECRET,
            {
                "tokenFile": "/var/run/secrets/usage/prometheusAuthToken",
                "caFile": f"{ACCOUNT}/ca.crt",
            },
        ),
    ],
)
def test_a_query_becomes_the_policys_and_its_threshold_that_of_the_resource(
    policy, url, token, files
):
    ours, notes = policy(profiles(CPU), provider(url, token))
    assert ours["usage"]["prometheus"] == {
        "url": url,
        "nodes": {"cpu": "instance:node_cpu:rate:sum"},
        "unit": "share",
        "nodeLabel": "instance",
        **files,
    }
    assert ours["strategies"]["low-utilisation"] == {
        "under": {"cpu": "20%"},
        "over": {"cpu": "50%"},
        "gap": "100%",
        "signal": "usage",
    }
    named = "https only" if url.startswith("http:") else "the Secret kube-system/reader"
    assert any(named in note for note in notes) == (url.startswith("http:") or bool(token))
    assert any("MetricResource is cpu here" in note for note in notes)


def test_one_query_of_cpu_and_one_of_memory_go_together(policy):
    ours, _ = policy(profiles(CPU, MEMORY, CPU), provider())
    assert set(ours["usage"]["prometheus"]["nodes"]) == {"cpu", "memory"}
    assert ours["usage"]["prometheus"]["window"] == "2h"
    assert ours["strategies"]["low-utilisation"]["over"] == {"cpu": "50%"}
    assert ours["strategies"]["low-utilisation-2"]["over"] == {"memory": "50%"}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ((profiles(CPU),), f"{FAILS}no provider has an address of Prometheus that can be asked"),
        ((profiles(CPU), provider("p:9090")), f"{FAILS}no provider has an address"),
        (
            (profiles(judged("q", name="cpu")), provider()),
            f"{FAILS}with Prometheus the descheduler takes thresholds of MetricResource only",
        ),
        *(
            (
                (profiles(judged(query)), provider()),
                f"{FAILS}its query cannot be asked: it is empty",
            )
            for query in ("", "a" * 5000, "a[9999999h]", f"a[{'9' * 20}y]")
        ),
        ((profiles(SERVER, CPU), provider()), f"{FAILS}another plug-in goes by metrics.k8s.io"),
        ((profiles(CPU, judged("other")), provider()), f"{FAILS}another plug-in has another query"),
        ((profiles(SERVER), provider()), "no plug-in that is carried over asks Prometheus"),
    ],
)
def test_what_cannot_be_carried_over_is_named(policy, parts, why):
    ours, notes = policy(*parts)
    assert any(why in note for note in notes), notes
    queries = ours.get("usage", {}).get("prometheus", {}).get("nodes", {})
    kept = [one for one in ours["strategies"].values() if one.get("signal") == "usage"]
    assert len(kept) == len(queries) + (SERVER in parts[0])
