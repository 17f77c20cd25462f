"""Events and memory: written if they can be, never at the cost of a run."""

import time

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import ConfigMapConflictError, ConfigMapStore
from rebalancer.kube.events import EventWriter, Subject, shorten
from tests.unit.kube.scripted import Asked, Say, client_of, status_body

EVENTS = "/apis/events.k8s.io/v1/namespaces/shop/events"
MEMORY = "/api/v1/namespaces/ops/configmaps/memory"
POD = Subject("Pod", "shop", "web-1", "uid-1")
OWNER = Subject("Deployment", "shop", "web", "uid-d")
NOW = 1795168800.25


def writer(client: Client) -> EventWriter:
    return EventWriter(client, clock=lambda: NOW, instance="pod-x")


def test_a_move_is_reported_on_the_pod_and_on_its_owner(server, tmp_path):
    server.on("POST", EVENTS, Say({}, 201))
    events = writer(client_of(server.url, tmp_path))
    events.write(POD, OWNER, "zone skew 2")
    assert events.close() is None
    on_pod, on_owner = (asked.body for asked in server.to(EVENTS, "POST"))
    name = on_pod["metadata"].pop("name")
    assert name.startswith("web-1.")
    assert on_pod == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "shop"},
        "eventTime": "2026-11-20T10:00:00.250000Z",
        "type": "Normal",
        "reason": "Rebalanced",
        "action": "Evict",
        "note": "zone skew 2",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "shop",
            "name": "web-1",
            "uid": "uid-1",
        },
        "related": OWNER.reference(),
        "reportingController": "kube-rebalancer",
        "reportingInstance": "pod-x",
    }
    assert on_owner["regarding"]["apiVersion"] == "apps/v1"
    assert on_owner["note"] == "pod web-1: zone skew 2"


def test_the_same_event_has_the_same_name_and_another_another(server, tmp_path):
    server.on("POST", EVENTS, Say({}, 201), Say(status_body(409, "exists"), 409), Say({}, 201))
    events = writer(client_of(server.url, tmp_path))
    for note in ("a", "a", "b"):
        events.write(POD, None, note)
    assert events.close() is None
    names = [asked.body["metadata"]["name"] for asked in server.asked]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize(
    ("answer", "said", "asked"),
    [
        (Say(status_body(403, "no"), 403), "3 events were not written: forbidden", 1),
        (Say(status=500), "3 events were not written: ", 3),
        (Say(hang_up=True), "3 events were not written: the connection to ", 3),
        (Say(status=429, headers={"Retry-After": "60"}), "3 events were not written: ", 3),
    ],
)
def test_events_that_cannot_be_written_are_one_warning_in_one_line(
    server, tmp_path, sleeps, answer, said, asked
):
    server.on("POST", EVENTS, answer)
    events = writer(client_of(server.url, tmp_path, sleeps))
    for note in "abc":
        events.write(POD, None, note)
    warning = events.close()
    assert warning is not None
    assert warning.startswith(said)
    assert "\n" not in warning
    assert len(server.asked) == asked
    assert sleeps.waits == []


def test_nothing_waits_for_an_event(server, tmp_path, monkeypatch):
    """Neither the caller, nor a request when there may be only one, nor the end of the run for long."""
    monkeypatch.setattr("rebalancer.kube.events._JOIN_TIMEOUT", 0.3)
    server.on("POST", EVENTS, Say(after=600.0))
    server.on("GET", "/x", Say())
    client = client_of(server.url, tmp_path, in_flight=1)
    events = writer(client)
    started = time.monotonic()
    events.write(POD, OWNER, "a")
    while not server.asked:
        time.sleep(0.01)
    assert client.get("/x").ok
    assert events.close() == "2 events were not written: there was no time"
    assert time.monotonic() - started < 300.0


def test_without_events_there_is_nothing_to_end(server, tmp_path):
    assert writer(client_of(server.url, tmp_path)).close() is None
    assert server.asked == []


def test_a_note_is_cut_to_the_limit_of_the_api_at_a_whole_character():
    assert shorten("ä" * 512) == "ä" * 512
    cut = shorten("ä" * 513)
    assert cut == "ä" * 510 + "..."
    assert len(cut.encode()) <= 1024


def config_map(data: dict[str, str] | None, version: str) -> Say:
    metadata = {"name": "memory", "resourceVersion": version, "labels": {"by": "chart"}}
    return Say({"kind": "ConfigMap", "metadata": metadata} | ({"data": data} if data else {}))


def test_memory_is_replaced_as_it_was_read_and_keeps_what_is_not_ours(server, tmp_path):
    server.on("GET", MEMORY, config_map(None, "5"))

    def put(asked: Asked) -> Say:
        return config_map(asked.body["data"], "6")

    server.handle("PUT", MEMORY, put)
    store = ConfigMapStore(client_of(server.url, tmp_path), "ops", "memory")
    known = store.read()
    assert known is not None
    assert (known.data, known.resource_version) == ({}, "5")
    after = store.write(known, {"moves": "[1]"})
    assert (after.data, after.resource_version) == ({"moves": "[1]"}, "6")
    written = server.to(MEMORY, "PUT")[0].body
    assert written["metadata"]["resourceVersion"] == "5"
    assert written["metadata"]["labels"] == {"by": "chart"}


def test_without_the_config_map_nothing_is_remembered(server, tmp_path):
    assert ConfigMapStore(client_of(server.url, tmp_path), "ops", "memory").read() is None


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (Say(status_body(409, "modified"), 409), ConfigMapConflictError, "another client"),
        (Say(status_body(404, "gone"), 404), ConfigMapConflictError, "another client"),
        (Say(status_body(403, "no"), 403), ClusterReadError, "may not update configmaps memory"),
    ],
)
def test_what_keeps_memory_from_being_written_is_said(server, tmp_path, answer, error, said):
    server.on("GET", MEMORY, config_map({"a": "b"}, "5"))
    server.on("PUT", MEMORY, answer)
    store = ConfigMapStore(client_of(server.url, tmp_path), "ops", "memory")
    known = store.read()
    assert known is not None
    with pytest.raises(error, match=said):
        store.write(known, {})


def test_memory_beyond_the_limit_is_not_even_sent(server, tmp_path):
    server.on("GET", MEMORY, config_map({"a": "b"}, "5"))
    store = ConfigMapStore(client_of(server.url, tmp_path), "ops", "memory")
    known = store.read()
    assert known is not None
    with pytest.raises(ClusterReadError, match="has grown to 1000005 bytes"):
        store.write(known, {"moves": "x" * 1_000_000})
    assert server.to(MEMORY, "PUT") == []
