"""Watching pods through breaks, bookmarks and forgetful servers."""

import json
import threading
import time
from typing import Any

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import JSON, Client
from rebalancer.kube.watch import CATCHING_UP, SILENCE, EventType, Watch, Where, pod_changes
from rebalancer.wire.kinds import PODS
from rebalancer.wire.pods import PodRecord
from tests.unit.kube.scripted import Asked, Say, client_of, pod, status_body

PATH = "/api/v1/pods"


def change(kind: str, name: str, version: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "object": pod(name, version=version, **fields)}


def bookmark(version: str) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": version}}}


def error(code: int, reason: str = "") -> dict[str, Any]:
    return {"type": "ERROR", "object": status_body(code, "trouble", reason=reason)}


EXPIRED = Say(lines=(error(410, "Expired"),))


def watch_pods(client: Client, version: str, *, seconds: float) -> Watch[PodRecord]:
    where = Where(PODS, version, JSON, lambda: pod_changes(JSON), selector="status.phase!=Failed")
    return Watch(client, where, seconds=seconds)


def names(watch: Watch[PodRecord]) -> list[str]:
    return [event.object.name for event in watch]


def test_changes_come_as_they_happen(server, tmp_path):
    lines = (
        change("ADDED", "a", "11"),
        bookmark("12"),
        change("MODIFIED", "a", "13", deletionTimestamp="2026-11-20T10:00:00Z"),
        change("DELETED", "a", "14"),
    )
    server.on("GET", PATH, Say(lines=lines), EXPIRED)
    watch = watch_pods(client_of(server.url, tmp_path), "10", seconds=5)
    events = list(watch)
    assert [event.type for event in events] == [
        EventType.ADDED,
        EventType.MODIFIED,
        EventType.DELETED,
    ]
    assert [event.object.deleting for event in events] == [False, True, False]
    assert server.asked[0].query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "10",
        "timeoutSeconds": "5",
        "fieldSelector": "status.phase!=Failed",
    }


def test_a_line_may_come_in_pieces(server, tmp_path):
    text = json.dumps(change("ADDED", "a", "11")).encode() + b"\n"
    server.on("GET", PATH, Say(lines=(text[:30], 0.02, text[30:], text)), EXPIRED)
    assert names(watch_pods(client_of(server.url, tmp_path), "1", seconds=5)) == ["a", "a"]


def test_a_broken_stream_goes_on_from_the_last_version(server, tmp_path, sleeps):
    server.on(
        "GET",
        PATH,
        Say(lines=(change("ADDED", "a", "11"), bookmark("20")), torn=True),
        Say(status=503),
        Say(hang_up=True),
        Say(lines=(change("ADDED", "b", "21"), error(500))),
        EXPIRED,
    )
    watch = watch_pods(client_of(server.url, tmp_path, sleeps), "10", seconds=100)
    assert names(watch) == ["a", "b"]
    asked = [a.query["resourceVersion"] for a in server.asked]
    assert asked == ["10", "20", "20", "20", "21"]
    assert sleeps.waits == [0.25, 0.5, 1.0, 0.25]
    assert watch.broken == 4
    assert watch.expired


def test_a_stream_that_had_its_time_is_opened_again_at_once(server, tmp_path, sleeps):
    def quiet(_: Asked) -> Say:
        sleeps.sleep(300)
        return Say(lines=()) if len(server.asked) < 8 else EXPIRED

    server.handle("GET", PATH, quiet)
    assert names(watch_pods(client_of(server.url, tmp_path, sleeps), "10", seconds=1e6)) == []
    assert set(sleeps.waits) == {300, 0.25}


def test_a_stream_that_is_silent_for_too_long_is_not_current(server, tmp_path, sleeps):
    server.on("GET", PATH, Say(lines=(change("ADDED", "a", "11"), change("ADDED", "b", "12"))))
    watch = watch_pods(client_of(server.url, tmp_path, sleeps), "10", seconds=1000)
    assert not watch.is_current()
    events = iter(watch)
    next(events)
    assert watch.is_current()
    sleeps.sleep(SILENCE + 1)
    assert watch.live
    assert not watch.is_current()
    watch.close()


def test_a_stream_that_was_opened_again_is_current_once_it_has_caught_up(server, tmp_path, sleeps):
    lines = (change("ADDED", "b", "12"), change("ADDED", "c", "13"))
    answers = iter([Say(lines=(change("ADDED", "a", "11"),)), Say(lines=lines)])
    server.handle("GET", PATH, lambda _: next(answers, EXPIRED))
    watch = watch_pods(client_of(server.url, tmp_path, sleeps), "10", seconds=1000)
    events = iter(watch)
    next(events)
    assert watch.is_current()
    next(events)
    # What came with the first piece is there; the clock has not moved since the stream was opened.
    assert not watch.is_current()
    sleeps.sleep(CATCHING_UP)
    assert watch.is_current()
    watch.close()


@pytest.mark.parametrize("answer", [EXPIRED, Say(status_body(410, "too old"), 410)])
def test_it_ends_when_the_server_has_forgotten_the_version(server, tmp_path, answer):
    server.on("GET", PATH, answer)
    watch = watch_pods(client_of(server.url, tmp_path), "1", seconds=60)
    assert names(watch) == []
    assert watch.expired


def test_it_ends_in_time_while_nothing_happens(server, tmp_path):
    server.on("GET", PATH, Say(lines=(change("ADDED", "a", "11"), 600.0)))
    watch = watch_pods(client_of(server.url, tmp_path), "1", seconds=3)
    started = time.monotonic()
    assert names(watch) == ["a"]
    assert time.monotonic() - started < 300
    assert not watch.expired


def test_another_thread_can_end_it(server, tmp_path):
    server.on("GET", PATH, Say(lines=(change("ADDED", "a", "11"), 600.0)))
    watch = watch_pods(client_of(server.url, tmp_path), "1", seconds=600)
    started, seen = time.monotonic(), []
    for event in watch:
        seen.append(event.object.name)
        threading.Timer(0.2, watch.close).start()
    assert seen == ["a"]
    assert time.monotonic() - started < 300


FORBIDDEN = Say(status_body(403, "RBAC: clusterrole not found"), 403)
OPEN = Say(lines=(change("ADDED", "a", "11"),), torn=True)


def test_a_server_that_has_just_started_may_refuse_what_it_allowed_before(server, tmp_path, sleeps):
    """It serves requests before it has read its roles."""
    again = Say(lines=(change("ADDED", "b", "12"),), torn=True)
    server.on("GET", PATH, OPEN, FORBIDDEN, FORBIDDEN, again, FORBIDDEN, EXPIRED)
    watch = watch_pods(client_of(server.url, tmp_path, sleeps), "10", seconds=100)
    assert names(watch) == ["a", "b"]
    assert watch.expired


def test_a_refusal_that_stays_is_believed(server, tmp_path, sleeps):
    server.on("GET", PATH, OPEN, FORBIDDEN)
    with pytest.raises(ClusterReadError, match="may not watch pods"):
        names(watch_pods(client_of(server.url, tmp_path, sleeps), "10", seconds=100))
    assert 10 < sum(sleeps.waits) < 30


def test_a_refusal_is_an_error_and_not_a_loop(server, tmp_path):
    server.on("GET", PATH, Say(status_body(403, "no"), 403))
    with pytest.raises(ClusterReadError, match="may not watch pods"):
        names(watch_pods(client_of(server.url, tmp_path), "1", seconds=60))
    assert len(server.asked) == 1
