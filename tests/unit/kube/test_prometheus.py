"""Prometheus as the source of usage: what it answers, what it refuses, and what a run makes of that."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.kube.capture import write_cluster_snapshot
from rebalancer.kube.metrics import PrometheusSource, read_metrics
from rebalancer.kube.read import ClusterReading, read_cluster
from rebalancer.policy.cluster import Prometheus
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import Usage
from rebalancer.wire.kinds import NODE_METRICS
from tests.controlplane import pki
from tests.unit.kube.scripted import (
    Asked,
    Say,
    ScriptedServer,
    Sleeps,
    client_of,
    empty_cluster,
    list_body,
    node,
    pod,
)

TEN = 1795168800.0
"""The scripted server's clock."""
MIB = 1 << 20
QUERY = "/prom/api/v1/query"
NODES = {"cpu": "node_cpu", "memory": "node_memory"}
PODS = {"cpu": "pod_cpu", "memory": "pod_memory"}
SECRET = "s3cret-token"

Value = tuple[Mapping[str, str], str]


def of_node(name: str, value: str) -> Value:
    return {"node": name, "job": "kubelet"}, value


def of_pod(name: str, value: str) -> Value:
    return {"namespace": "default", "pod": name}, value


def vector(*values: Value, **more: Any) -> Say:
    """As Prometheus answers an instant query, ten seconds before the reading."""
    result = [{"metric": metric, "value": [TEN - 10, value]} for metric, value in values]
    return Say({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


FINE = {
    "node_cpu": vector(of_node("n2", "0.25"), of_node("n1", "1.5")),
    "node_memory": vector(of_node("n1", str(2 * MIB)), of_node("n2", "1e6")),
    "pod_cpu": vector(of_pod("b", "3e-3"), of_pod("a", "0.007000002")),
    "pod_memory": vector(of_pod("a", str(MIB)), of_pod("b", str(3 * MIB))),
}


def answers(server: ScriptedServer, **by_query: Say) -> None:
    said = {**FINE, **by_query}
    server.handle("GET", QUERY, lambda asked: said[asked.query["query"]])


@pytest.fixture
def cluster(server):
    """Two nodes of 4 cpu and two pods; the same server answers as Prometheus under /prom."""
    empty_cluster(server)
    server.on("GET", "/api/v1/pods", Say(list_body([pod("a"), pod("b", "n2")])))
    server.on("GET", "/api/v1/nodes", Say(list_body([node("n1"), node("n2")])))
    answers(server)
    return server


def source(at: str, stop: Stop | None = None, **settings: Any) -> PrometheusSource:
    chosen = {"url": f"{at}/prom", "nodes": NODES, "pods": PODS, **settings}
    return PrometheusSource(Prometheus.model_validate(chosen), stop or Stop(SystemClock()))


def read(server: ScriptedServer, folder: Path, **settings: Any) -> ClusterReading:
    client = client_of(server.url, folder, Sleeps())
    return read_cluster(client, clock=lambda: TEN, usage=source(server.url, **settings))


def usage_of(server: ScriptedServer, folder: Path, **settings: Any) -> Usage:
    reading = read(server, folder, **settings)
    assert reading.readings.notes == ()
    assert reading.snapshot.usage is not None
    return reading.snapshot.usage


def trouble(server: ScriptedServer, folder: Path, **settings: Any) -> str:
    """The one note of a reading that knows nothing of usage."""
    reading = read(server, folder, **settings)
    assert reading.snapshot.usage is None
    assert len(reading.snapshot.nodes) == 2
    (note,) = reading.readings.notes
    assert note.startswith("usage is not known: ")
    return note


def columns(usage: Usage | None) -> tuple[Any, ...]:
    assert usage is not None
    kept = usage.at, usage.measured, dict(usage.why_unknown), usage.others
    return usage.nodes.tolist(), usage.known.tolist(), usage.classes.tolist(), *kept


# -- what is measured ------------------------------------------------------------------------------


def test_amounts_are_in_the_units_of_the_snapshot(cluster, tmp_path):
    usage = usage_of(cluster, tmp_path, window="2m")
    assert columns(usage) == (
        [[1500, 250], [2 * MIB, 1_000_000]],
        [True, True],
        [[5], [2 * MIB]],  # the mean of 7 and 3 millicores, of 1 and 3 MiB
        TEN - 10 - 120,  # moves within the window are in it
        (True, True),
        {},
        (),
    )
    asked = cluster.to(QUERY)
    assert sorted(one.query["query"] for one in asked) == sorted(FINE)
    assert not any("Authorization" in one.headers for one in asked)


def test_shares_are_of_the_allocatable(cluster, tmp_path):
    answers(cluster, node_cpu=vector(of_node("n1", "0.5"), of_node("n2", "1.125")))
    usage = usage_of(cluster, tmp_path, nodes={"cpu": "node_cpu"}, pods={}, unit="share")
    assert usage.nodes[0].tolist() == [2000, 4500]
    assert usage.measured == (True, False)


def test_what_is_not_asked_for_is_not_known(cluster, tmp_path):
    usage = usage_of(cluster, tmp_path, nodes={"memory": "node_memory"}, pods={})
    assert usage.nodes.tolist() == [[0, 0], [2 * MIB, 1_000_000]]
    assert (usage.known.tolist(), usage.measured) == ([True, True], (False, True))
    assert [one.query["query"] for one in cluster.to(QUERY)] == ["node_memory"]


def test_a_file_holds_what_a_reading_has(cluster, tmp_path):
    answers(cluster, node_cpu=vector(of_node("n1", "0.1234567891234"), of_node("n2", "NaN")))
    path = tmp_path / "cluster.zip"
    of_shares: dict[str, Any] = {"unit": "share", "nodes": {"cpu": "node_cpu"}, "pods": {}}
    for settings in ({}, of_shares):
        client = client_of(cluster.url, tmp_path, Sleeps())
        measuring = source(cluster.url, **settings)
        captured = write_cluster_snapshot(client, path, clock=lambda: TEN, usage=measuring)
        assert captured.notes == ()
        live = read(cluster, tmp_path, **settings).snapshot.usage
        assert columns(load_snapshot(path).usage) == columns(live)


# -- what is none ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpu", "why"),
    [
        ([of_node("n2", "NaN")], "cpu is NaN"),
        ([of_node("n2", "+Inf")], "cpu is +Inf"),
        ([of_node("n2", "-0.1")], "cpu is -0.1"),
        ([of_node("n2", "fast")], "cpu is fast"),
        ([of_node("n2", "1e300")], "cpu is 1e300"),
        ([of_node("n2", "1"), of_node("n2", "1")], "2 samples of cpu"),
        ([], "no sample of cpu"),
    ],
)
@pytest.mark.parametrize("unit", ["amount", "share"])
def test_a_node_that_cannot_be_judged_says_why(cluster, tmp_path, cpu, why, unit):
    few = vector(of_node("n1", "1"), of_node("n2", "1"))
    answers(cluster, node_cpu=vector(of_node("n1", "1"), *cpu), node_memory=few)
    usage = usage_of(cluster, tmp_path, unit=unit)
    assert usage.known.tolist() == [True, False]
    assert dict(usage.why_unknown) == {"n2": why}
    assert usage.nodes[:, 1].tolist() == [0, 0]
    assert usage.measured == (True, True)


def test_a_node_without_a_sample_is_not_known(cluster, tmp_path):
    answers(
        cluster,
        node_cpu=vector(of_node("n1", "1")),
        node_memory=vector(of_node("n1", "1"), of_node("gone", "1")),
    )
    usage = usage_of(cluster, tmp_path)
    assert usage.known.tolist() == [True, False]
    assert dict(usage.why_unknown) == {}


def test_samples_of_other_nodes_only_are_named(cluster, tmp_path):
    other = vector(of_node("10.0.0.1:9100", "1"), of_node("10.0.0.2:9100", "1"))
    answers(cluster, node_cpu=other, node_memory=other)
    usage = usage_of(cluster, tmp_path)
    assert usage.others == ("10.0.0.1:9100", "10.0.0.2:9100")
    assert not usage.known.any()


def test_pods_that_cannot_be_judged_are_counted(cluster, tmp_path):
    odd = vector(of_pod("a", "NaN"), of_pod("b", "1"), of_pod("c", "1"), of_pod("c", "1"))
    answers(cluster, pod_cpu=odd)
    reading = read(cluster, tmp_path)
    (note,) = reading.readings.notes
    assert note.startswith("usage: 2 of 3 pods have no sample, several")
    assert reading.snapshot.usage is not None
    assert reading.snapshot.usage.classes[0].tolist() == [1000]


def test_an_old_sample_says_nothing_of_now(cluster, tmp_path):
    body = {"metric": {"node": "n1"}, "value": [TEN - 301, "1"]}
    old = Say({"status": "success", "data": {"resultType": "vector", "result": [body]}})
    answers(cluster, node_cpu=old)
    usage = usage_of(cluster, tmp_path, nodes={"cpu": "node_cpu"}, pods={})
    assert not usage.known.any()


def test_a_warning_of_the_server_is_passed_on(cluster, tmp_path):
    said = vector(of_node("n1", "1"), warnings=["partial response:\na store is away"])
    answers(cluster, node_cpu=said)
    reading = read(cluster, tmp_path, nodes={"cpu": "node_cpu"}, pods={})
    assert reading.readings.notes == ("usage: nodes.cpu: partial response:\\na store is away",)


# -- refusals --------------------------------------------------------------------------------------


def data(kind: str, result: Any) -> Say:
    return Say({"status": "success", "data": {"resultType": kind, "result": result}})


BAD_QUERY = {"status": "error", "errorType": "bad_data", "error": "1:3: parse error"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Say(b"no entry", 401), "answered 401 Unauthorized"),
        (Say(b"no entry", 403), "answered 403 Forbidden"),
        (Say(b"", 404), "answered 404 Not Found"),
        (Say(BAD_QUERY, 400), "answered 400 Bad Request: 1:3: parse error"),
        (Say(BAD_QUERY), "1:3: parse error"),
        (Say(b"", 302, {"Location": "http://192.0.2.1/"}), "answered 302 Found"),
        (Say(b"<html>log in</html>"), "answered, but not as Prometheus does"),
        (Say({"status": "success"}), "answered, but not as Prometheus does"),
        (Say({"status": "success", "data": 3}), "answered, but not as Prometheus does"),
        (Say(b"[" * 100_000), "answered, but not as Prometheus does"),
        (Say(FINE["node_cpu"].body, cut=40), "answered, but not as Prometheus does"),
        (data("scalar", [1, "2"]), "answered with a scalar"),
        (data("matrix", []), "answered with a matrix"),
        (data("vector", [{"metric": {}, "histogram": [1, {}]}]), "value"),
        (vector(), "the query gives no sample"),
        (vector(({"instance": "n1"}, "1")), "has no label node (its labels: instance)"),
        (Say(hang_up=True), "could not be reached"),
    ],
)
def test_another_answer_than_samples_is_named_and_nothing_is_known(cluster, tmp_path, said, why):
    answers(cluster, node_cpu=said)
    note = trouble(cluster, tmp_path)
    assert f"nodes of {cluster.url}: nodes.cpu: " in note
    assert why in note


def test_a_percentage_is_no_share(cluster, tmp_path):
    answers(cluster, node_cpu=vector(of_node("n1", "0.9"), of_node("n2", "41.3")))
    note = trouble(cluster, tmp_path, nodes={"cpu": "node_cpu"}, pods={}, unit="share")
    assert "nodes.cpu: 41.3 of node n2 is no share from 0 to 1" in note


@pytest.mark.parametrize("label", ["namespace", "pod"])
def test_a_sample_of_a_pod_needs_both_labels(cluster, tmp_path, label):
    metric = {"namespace": "default", "pod": "a"}
    del metric[label]
    answers(cluster, pod_cpu=vector((metric, "1")))
    assert f"pods.cpu: a sample has no label {label}" in trouble(cluster, tmp_path)


def test_a_server_that_is_silent_is_waited_for_no_longer_than_the_policy_says(cluster, tmp_path):
    answers(cluster, node_cpu=Say(after=600.0))
    started = time.monotonic()
    assert "gave no answer in time" in trouble(cluster, tmp_path, timeout="0.2s")
    assert time.monotonic() - started < 300


def test_a_signal_ends_a_query_at_once(cluster):
    signalled = threading.Event()

    def silent(_asked: Asked) -> Say:
        signalled.set()
        return Say(after=600.0)

    cluster.handle("GET", QUERY, silent)
    stop = Stop(SystemClock(), signalled=signalled)
    started = time.monotonic()
    one = read_metrics(source(cluster.url, stop), NODE_METRICS, threading.Event())
    assert one.trouble is not None
    assert time.monotonic() - started < 300


# -- whom to trust ---------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path):
    return pki.create(tmp_path / "pki", ["127.0.0.1"])


def test_the_token_goes_to_the_known_server_only(cluster, tmp_path, keys):
    token, strange = tmp_path / "token", pki.create(tmp_path / "other", ["127.0.0.1"])
    token.write_text(f"{SECRET}\n")
    with ScriptedServer((keys.server_cert, keys.server_key)) as secure:
        answers(secure)
        chosen = {"url": f"{secure.url}/prom", "token_file": str(token)}
        usage = usage_of(cluster, tmp_path, ca_file=str(keys.ca_cert), **chosen)
        assert usage.known.all()
        assert {one.headers["Authorization"] for one in secure.to(QUERY)} == {f"Bearer {SECRET}"}
        asked = len(secure.asked)
        for untrusted in ({}, {"ca_file": str(strange.ca_cert)}):
            note = trouble(cluster, tmp_path, **chosen, **untrusted)
            assert "its certificate is not trusted" in note
        assert len(secure.asked) == asked
        answers(secure, node_cpu=Say(b"", 307, {"Location": f"{cluster.url}{QUERY}"}))
        note = trouble(cluster, tmp_path, ca_file=str(keys.ca_cert), **chosen)
        assert "answered 307" in note
        assert SECRET not in note
    assert cluster.to(QUERY) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("", "holds no bearer token"),
        (f"{SECRET}\n{SECRET}", "holds no bearer token"),
        (f"Bearer {SECRET}", "holds no bearer token"),
        (f"{SECRET}ü", "holds no bearer token"),
    ],
)
def test_a_token_that_is_none_is_named_without_being_shown(cluster, tmp_path, content, why):
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)
    note = trouble(cluster, tmp_path, url="https://127.0.0.1:1", token_file=str(token))
    assert f"tokenFile {token} {why}" in note
    assert SECRET not in note


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "cannot be read (No such file"), ("no PEM", "holds no certificate in PEM")],
)
def test_authorities_that_are_none_are_named(cluster, tmp_path, content, why):
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_text(content)
    note = trouble(cluster, tmp_path, url="https://127.0.0.1:1", ca_file=str(file))
    assert f"caFile {file} {why}" in note
