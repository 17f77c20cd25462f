"""What a process that serves answers, and what it does not."""

import io
import json
import re
import socket
from contextlib import ExitStack
from dataclasses import replace
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError
from rebalancer.plan.plan import Outcome, Status
from rebalancer.run.memory.document import Document
from rebalancer.run.memory.remember import with_history
from rebalancer.run.one_run import run_unpublished
from rebalancer.run.options import RunOptions
from rebalancer.serve.health import (
    MAX_SILENCE,
    Answer,
    Health,
    answer_requests,
    is_own_host,
    parse_address,
)
from rebalancer.serve.page import MAX_RUNS, LivePage, Outlook
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


def test_the_report_is_shown_only_where_that_is_switched_on():
    health = Health(HandClock(1000.0), deadline=120)
    assert set(health.paths()) == {"/healthz", "/readyz", "/metrics"}


def test_metrics_and_report_are_those_of_the_last_run(tmp_path):
    with (
        third_zone_joined("web") as cluster,
        serving(cluster, tmp_path) as served,
        answer_requests(("127.0.0.1", 0), served.health.paths()) as port,
    ):
        served.await_runs(1)
        assert asked(port, "/healthz") == (200, "ok\n")
        assert asked(port, "/readyz") == (200, "leads\n")
        status, text = asked(port, "/report")
        assert (status, json.loads(text)) == (200, json.loads(served.out.getvalue()))
        text = asked(port, "/")[1]
        assert "Run 1, " in text
        assert ": 1 evicted, " in text
        steps = json.loads(asked(port, "/state")[1])["steps"]
        assert [step.split()[0] for step in steps if not step.startswith("waiting")] == [
            "wave",
            "evicted",
            "landed",
        ]
        values = read_metrics(asked(port, "/metrics")[1])
        assert values["rebalancer_moves", "evicted"] == 1
        assert values["rebalancer_last_run_exit_code",] == ExitCode.DONE
        assert values["rebalancer_leads",] == 1
        assert 0 <= values["rebalancer_watch_silence_seconds",] < MAX_SILENCE


@pytest.fixture(scope="module")
def report():
    """A dry run on README's example, which plans seven moves."""
    options = RunOptions.of(dry_run=True, snapshot_path="docs/examples/zone-back.zip")
    out = io.StringIO()
    ended = run_unpublished(options, Environment(SystemClock(), {}, out, out), None)
    assert ended.report is not None
    return ended.report


def state_of(page: LivePage) -> Any:
    return json.loads(page.state(stands_by=False))


def test_there_is_no_page_unless_it_is_switched_on():
    health = Health(HandClock(1000.0), deadline=120)
    assert not {"/", "/state"} & set(health.paths())


def test_the_page_shows_the_last_report_and_what_the_runs_before_did(report):
    health = Health(HandClock(1000.0), deadline=120, page=LivePage())
    with answer_requests(("127.0.0.1", 0), health.paths()) as port:
        assert "No run has a report yet." in asked(port, "/")[1]
        for second in range(2):
            health.note_report(report, None, 1_800_000_000.0 + second)
        health.note_failure(GONE, 1_800_000_002.0)
        status, text = asked(port, "/")
        assert status == 200
        assert "7 evictions in 2 waves" in text
        assert "Run 1, 2027-01-15T08:00:00Z: 0 evicted" in text
        assert f"Run 3, 2027-01-15T08:00:02Z: failed, exit code 3: {GONE}" in text
        assert text.count("<li aria-current") == 1
        for path in ("/runs/1", "/state/", "/x"):
            assert asked(port, path)[0] == 404, path
        assert asked(port, "/", "POST")[0] == 501


def test_runs_that_fail_are_said_with_their_reason_until_one_does_not(report):
    health = Health(HandClock(1000.0), deadline=120, page=LivePage())
    answers = health.paths()
    for second in range(3):
        health.note_failure(GONE, 1_800_000_000.0 + second)
    said = f"The last 3 runs failed, since 2027-01-15T08:00:00Z: {GONE}"
    assert json.loads(answers["/state"]().body)["troubles"] == [said]
    assert f"<li>{said}</li>" in answers["/"]().body.decode()
    health.note_report(report, None, 1_800_000_003.0)
    assert json.loads(answers["/state"]().body)["troubles"] == []
    assert said not in answers["/"]().body.decode()


def test_the_first_screen_shows_the_last_moves_what_comes_next_and_how_to_stop_it(report):
    page = LivePage(stop_command="kubectl --namespace ops scale deployment/mover --replicas=0")
    moves = [
        Outcome(one.move, Status.EVICTED, "", one.move.landings[0].node, predicted=True)
        for one in report.outcomes[:2]
    ]
    page.keep(replace(report, dry_run=False, outcomes=tuple(moves)), 1_800_000_000.0)
    page.keep(report, 1_800_000_120.0)
    page.outlook = Outlook("enforce", 1_800_000_240.0)
    text = page.last_page(stands_by=False).decode()
    head = text[: text.index("<header>")]
    for outcome in moves:
        assert outcome.move.ref in head
        assert f"{outcome.move.strategy}: " in head
    for words in ("2027-01-15 08:00:00", "likely nodes", "kubectl --namespace ops scale"):
        assert words in head
    state = state_of(page)
    assert (state["mode"], state["next"]) == (
        "enforce",
        "2027-01-15T08:04:00Z, or when the cluster changes",
    )
    assert json.loads(page.state(stands_by=True))["next"] == ""


def test_a_process_that_has_just_begun_shows_the_moves_that_are_remembered(report):
    moved = [
        Outcome(one.move, Status.EVICTED, "", one.move.landings[0].node, predicted=True)
        for one in report.outcomes
    ]
    before = with_history(Document(), "earlier", "", moved, 1_800_000_000.0)
    page = LivePage()
    for second in (1, 2):
        page.keep(report, 1_800_000_000.0 + second, before)
    text = page.last_page(stands_by=False).decode()
    head = text[: text.index("<header>")]
    assert head.count("2027-01-15 08:00:00") == 5
    assert moved[-1].move.ref in head
    assert f"{moved[-1].landed}, as predicted" in head


def test_why_the_lease_cannot_be_had_and_a_policy_that_is_invalid_are_said():
    page = LivePage()
    page.outlook = Outlook("enforce", 1_800_000_240.0)
    health = Health(HandClock(1000.0), deadline=120, page=page)
    health.leads, answers = True, health.paths()
    health.policy_flaw = "the policy is wrong: rebalancer.yaml:3: mod"
    assert json.loads(answers["/state"]().body)["troubles"] == [
        "The policy is wrong: rebalancer.yaml:3: mod"
    ]
    values = read_metrics(answers["/metrics"]().body.decode())
    assert values["rebalancer_policy_invalid",] == 1
    assert json.loads(answers["/state"]().body)["next"]
    health.end_term()
    health.lease_flaw = "the Lease ops/mover cannot be had: forbidden"
    state = json.loads(answers["/state"]().body)
    assert (state["next"], state["troubles"]) == (
        "",
        ["The Lease ops/mover cannot be had: forbidden"],
    )
    assert answers["/readyz"]().status == 503
    assert b"cannot be had: forbidden" in answers["/readyz"]().body
    values = read_metrics(answers["/metrics"]().body.decode())
    assert values["rebalancer_policy_invalid",] == values["rebalancer_leads",] == 0


def test_what_led_before_shows_no_numbers_of_its_last_run(report):
    health = Health(HandClock(1000.0), deadline=120)
    health.note_report(report, None, 5.0)
    assert ("rebalancer_last_run_exit_code",) in read_metrics(
        health.paths()["/metrics"]().body.decode()
    )
    health.end_term()
    values = read_metrics(health.paths()["/metrics"]().body.decode())
    assert ("rebalancer_last_run_exit_code",) not in values
    # If nobody leads, it is how long there was no run.
    assert values["rebalancer_last_run_timestamp_seconds",] == 5
    # What was counted by this process goes on being counted.
    assert values["rebalancer_runs_total", "0"] == 1


def test_of_many_runs_the_last_are_shown(report):
    page = LivePage()
    for second in range(MAX_RUNS + 10):
        page.keep(report, float(second))
    text = page.last_page(stands_by=False).decode()
    shown = re.findall(r"<title>Run (\d+), ", text)
    assert shown == [str(number) for number in range(11, MAX_RUNS + 11)]


def test_the_state_says_what_goes_on():
    page = LivePage()
    state = state_of(page)
    assert (state["last"], state["now"], state["steps"]) == (0, "No run is under way.", [])
    assert b"stands by" in page.state(stands_by=True)
    page.begin_run()
    for number in range(30):
        page.note_step(f"evicted {number}\x1b")
    assert state_of(page)["now"] == "Run 1 is under way."
    assert state_of(page)["steps"] == [rf"evicted {number}\x1b" for number in range(18, 30)]
    page.end_run()
    page.keep_failure(ExitCode.PARTIAL, "why", 1.0)
    assert (state_of(page)["now"], state_of(page)["last"]) == ("No run is under way.", 1)
    page.begin_run()
    assert state_of(page)["steps"] == []


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost:8080", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("rebalancer", True),
        ("rebalancer.rebalancing.svc:8080", True),
        ("rebalancer.rebalancing.svc.cluster.local", True),
        ("Known.example.com", True),
        ("known.example.com.", True),
        ("elsewhere.example.com:8080", False),
        ("127.0.0.1.elsewhere.example.com", False),
        ("svc.example.com", False),
        ("", False),
        ("[", False),
    ],
)
def test_it_answers_under_names_of_its_own(host, own):
    assert is_own_host(host, ["known.example.com"]) == own


def test_a_name_of_somebody_else_gets_health_and_nothing_that_names_workloads():
    paths = {
        "/": lambda: Answer(200, b"pods"),
        "/metrics": lambda: Answer(200, b"owners"),
        "/healthz": lambda: Answer(200, b"ok\n"),
    }
    with answer_requests(("127.0.0.1", 0), paths, hosts=["known.example.com"]) as port:
        given = {}
        for host in ("known.example.com", "elsewhere.example.com"):
            for path in ("/", "/metrics", "/healthz", "/other"):
                connection = HTTPConnection("127.0.0.1", port, timeout=BUSY)
                connection.request("GET", path, headers={"Host": host})
                given[host, path] = connection.getresponse().status
                connection.close()
    assert list(given.values()) == [200, 200, 200, 404, 421, 421, 200, 421]


def test_answers_may_not_be_framed_or_cached():
    with answer_requests(("127.0.0.1", 0), {"/": lambda: Answer(200, b"x")}) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=BUSY)
        connection.request("GET", "/")
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        connection.close()
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")
    assert "set-cookie" not in headers


def test_before_the_first_run_there_are_metrics_and_no_report():
    paths = Health(HandClock(1000.0), deadline=120, keeps_report=True).paths()
    assert paths["/report"]().status == 404
    values = read_metrics(paths["/metrics"]().body.decode())
    assert values["rebalancer_leads",] == 0
    assert ("rebalancer_last_run_exit_code",) not in values


def test_a_run_without_a_report_leaves_its_exit_code():
    health = Health(HandClock(1000.0), deadline=120)
    health.note_failure(GONE, 5.0)
    values = read_metrics(health.paths()["/metrics"]().body.decode())
    assert values["rebalancer_last_run_exit_code",] == 3
    assert values["rebalancer_last_run_timestamp_seconds",] == 5
