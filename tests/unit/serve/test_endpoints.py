"""What a process that serves answers, and what it does not."""

import io
import socket
from contextlib import ExitStack
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError
from rebalancer.report.model import RunReport
from rebalancer.run.one_run import run_unpublished
from rebalancer.run.options import RunOptions
from rebalancer.serve.health import (
    MAX_SILENCE,
    Answer,
    Health,
    answer_requests,
    parse_address,
)
from tests.support.clocks import HandClock
from tests.support.worlds import read_metrics
from tests.unit.commands.embedded import third_zone_joined
from tests.unit.commands.serving import BUSY, serving


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", ("", 8080)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:8080", ("::1", 8080)),
        ("localhost:8080", ("localhost", 8080)),
    ],
)
def test_addresses(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "8080", "host", ":http", ":70000", "a@b:1", "http://a:1", ":1/x", "ä..b:1"]
)
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(text)


def asked(port, path, method="GET", host="127.0.0.1"):
    connection = HTTPConnection(host, port, timeout=BUSY)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_only_what_is_there_is_answered():
    with answer_requests(("127.0.0.1", 0), {"/healthz": lambda: Answer(200, b"ok\n")}) as port:
        assert asked(port, "/healthz") == (200, "ok\n")
        assert asked(port, "/healthz?verbose") == (200, "ok\n")
        for path in ("/", "//[", "/healthz/", "/metrics", "/../etc/passwd"):
            assert asked(port, path)[0] == 404
        assert asked(port, "/healthz", "HEAD") == (200, "")
        assert asked(port, "/metrics", "HEAD") == (404, "")
        for method in ("POST", "PUT", "DELETE"):
            assert asked(port, "/healthz", method)[0] == 501
        with pytest.raises(PolicyError, match=f"--listen 127.0.0.1:{port}: "), ExitStack() as held:
            held.enter_context(answer_requests(("127.0.0.1", port), {}))


def test_clients_that_say_nothing_keep_no_others_away():
    with answer_requests(("127.0.0.1", 0), {"/healthz": lambda: Answer(200, b"ok\n")}) as port:
        silent = [socket.create_connection(("127.0.0.1", port), BUSY) for _ in range(40)]
        assert asked(port, "/healthz") == (200, "ok\n")
        # The one that came first was sent away.
        assert silent[0].recv(1) == b""
        for each in silent:
            each.close()


def test_without_a_host_it_answers_on_addresses_of_both_kinds():
    with answer_requests(("", 0), {"/healthz": lambda: Answer(200, b"ok\n")}) as port:
        hosts = ["127.0.0.1", *(["::1"] if socket.has_dualstack_ipv6() else [])]
        assert [asked(port, "/healthz", host=host) for host in hosts] == [(200, "ok\n")] * len(
            hosts
        )


def test_dns_is_not_asked_for_its_name(monkeypatch):
    def hangs(*_):
        raise AssertionError("DNS is asked")

    monkeypatch.setattr(socket, "getfqdn", hangs)
    monkeypatch.setattr(socket, "gethostbyaddr", hangs)
    with answer_requests(("", 0), {"/healthz": lambda: Answer(200, b"ok\n")}) as port:
        assert asked(port, "/healthz") == (200, "ok\n")


GONE = ClusterReadError("there is no ConfigMap ops/memory: create it")


def silent_for(seconds: float) -> Any:
    """What follows the cluster, and has heard nothing for so long."""
    return SimpleNamespace(silent_for=lambda: seconds, describe_troubles=lambda: "")


def test_it_is_well_while_it_works_and_hears_from_the_server():
    clock = HandClock(1000.0)
    health = Health(clock, deadline=120)
    answer = health.paths()["/healthz"]
    assert answer().status == 200
    clock.seconds += 239
    assert answer().status == 200
    clock.seconds += 2
    assert (answer().status, answer().body) == (503, b"nothing was done for 241 s\n")
    health.seen = clock.seconds
    health.cache = silent_for(MAX_SILENCE - 1)
    assert answer().status == 200
    health.cache = silent_for(MAX_SILENCE + 1)
    assert b"the API server has not reported changes for 301 s" in answer().body


def test_of_several_problems_the_one_that_says_most_is_named():
    clock = HandClock(1000.0)
    health = Health(clock, deadline=120)
    health.interruptions = interrupted("signal source queue has not answered for 141 s")
    assert health.problem() == "signal source queue has not answered for 141 s"
    health.cache = silent_for(MAX_SILENCE + 1)
    assert "the API server" in str(health.problem())
    clock.seconds += 241
    assert health.problem() == "nothing was done for 241 s"


def interrupted(problem: str) -> Any:
    """What listens to signals, one source of which hangs."""
    return SimpleNamespace(problem=lambda: problem)


def test_it_is_ready_when_it_leads_or_stands_by():
    health = Health(HandClock(1000.0), deadline=120)
    ready = health.paths()["/readyz"]
    assert ready().status == 503
    health.stands_by = True
    assert ready() == Answer(200, b"stands by\n")
    health.stands_by, health.leads = False, True
    assert ready() == Answer(200, b"leads\n")


def test_metrics_are_those_of_the_last_run(tmp_path):
    with (
        third_zone_joined("web") as cluster,
        serving(cluster, tmp_path) as served,
        answer_requests(("127.0.0.1", 0), served.health.paths()) as port,
    ):
        served.await_runs(1)
        assert asked(port, "/healthz") == (200, "ok\n")
        assert asked(port, "/readyz") == (200, "leads\n")
        values = read_metrics(asked(port, "/metrics")[1])
        assert values["rebalancer_moves", "evicted"] == 1
        assert values["rebalancer_last_run_exit_code",] == ExitCode.DONE
        assert values["rebalancer_leads",] == 1
        assert 0 <= values["rebalancer_watch_silence_seconds",] < MAX_SILENCE


@pytest.fixture(scope="module")
def report() -> RunReport:
    """A dry run on README's example, which plans seven moves."""
    options = RunOptions.of(dry_run=True, snapshot_path="docs/examples/zone-back.zip")
    out = io.StringIO()
    ended = run_unpublished(options, Environment(SystemClock(), {}, out, out), None)
    assert ended.report is not None
    return ended.report


def test_what_led_before_shows_no_numbers_of_its_last_run(report):
    health = Health(HandClock(1000.0), deadline=120)
    health.note_report(report, None, 5.0)
    assert ("rebalancer_last_run_exit_code",) in read_metrics(
        health.paths()["/metrics"]().body.decode()
    )
    health.end_term()
    values = read_metrics(health.paths()["/metrics"]().body.decode())
    assert ("rebalancer_last_run_exit_code",) not in values
    # What was counted by this process goes on being counted.
    assert values["rebalancer_runs_total", "0"] == 1


def test_answers_may_not_be_cached():
    with answer_requests(("127.0.0.1", 0), {"/": lambda: Answer(200, b"x")}) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=BUSY)
        connection.request("GET", "/")
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        connection.close()
    assert headers["cache-control"] == "no-store"
    assert "set-cookie" not in headers


def test_before_the_first_run_there_are_metrics():
    paths = Health(HandClock(1000.0), deadline=120).paths()
    values = read_metrics(paths["/metrics"]().body.decode())
    assert values["rebalancer_leads",] == 0
    assert ("rebalancer_last_run_exit_code",) not in values


def test_a_run_without_a_report_leaves_its_exit_code():
    health = Health(HandClock(1000.0), deadline=120)
    health.note_failure(GONE, 5.0)
    values = read_metrics(health.paths()["/metrics"]().body.decode())
    assert values["rebalancer_last_run_exit_code",] == 3
    assert values["rebalancer_last_run_timestamp_seconds",] == 5
