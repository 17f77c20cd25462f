"""Attempts, time-outs, and what is said when there is no answer."""

import gzip
import inspect
import logging
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rebalancer import __version__
from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import TransportError
from rebalancer.kube.resources import AccessRule
from tests.unit.kube.scripted import SECRET, Say, Sleeps, client_of, status_body

RULE = AccessRule("list", "apps", "deployments")


LONG = 600.0
"""Seconds of a server's silence: half of it passes on no machine, however busy, unless something waits for the end."""


def test_a_request_carries_the_token_the_user_agent_and_the_query(server, tmp_path):
    server.on("GET", "/x", Say({"a": 1}))
    response = client_of(server.url, tmp_path).get("/x", query={"limit": 5, "f": "a!=b,c"})
    assert response.body == b'{"a": 1}'
    asked = server.asked[0]
    assert asked.headers["Authorization"] == f"Bearer {SECRET}"
    assert asked.headers["User-Agent"] == f"kube-rebalancer/{__version__}"
    assert asked.query == {"limit": "5", "f": "a!=b,c"}


def test_connections_are_used_again(server, tmp_path):
    server.on("GET", "/x", Say(b"y" * 600_000))
    client = client_of(server.url, tmp_path)
    for _ in range(3):
        assert len(client.get("/x").body) == 600_000
    assert client._transport._pool.connection_from_url(server.url).num_connections == 1


def test_a_part_of_a_command_has_its_connection_and_its_token_and_a_stop_of_its_own(
    server, tmp_path
):
    server.on("GET", "/x", Say(), Say(), Say(status=401), Say(), Say())
    client = client_of(server.url, tmp_path)
    assert client.get("/x").ok
    over = threading.Event()
    part = client.until(client.stop.sooner(LONG, over))
    assert part.get("/x").ok
    config = tmp_path / "config"
    config.write_text(config.read_text().replace(SECRET, "renewed"))
    assert part.get("/x").ok
    over.set()
    with pytest.raises(TransportError, match="was not asked"):
        part.get("/x")
    assert client.get("/x").ok
    tokens = [asked.headers["Authorization"].removeprefix("Bearer ") for asked in server.asked]
    assert tokens == [SECRET, SECRET, SECRET, "renewed", "renewed"]
    assert client._transport._pool.connection_from_url(server.url).num_connections == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_read_is_repeated_after_an_answer_that_may_pass(server, tmp_path, sleeps, status):
    server.on("GET", "/x", Say(status=status), Say(status=status), Say({"ok": True}))
    assert client_of(server.url, tmp_path, sleeps).get("/x").ok
    assert sleeps.waits == [0.5, 1.0]


def test_retry_after_is_kept_to(server, tmp_path, sleeps):
    server.on("GET", "/x", Say(status=429, headers={"Retry-After": "7"}), Say())
    assert client_of(server.url, tmp_path, sleeps).get("/x").ok
    assert sleeps.waits == [7.0]


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        ("0", [0.5, 1.0, 2.0, 4.0, 8.0]),
        ("7", [7.0, 7.0, 3.0]),
        ("21", [10.0]),
        ("3600", [10.0]),
        ("soon", [0.5, 1.0, 2.0, 4.0, 8.0]),
    ],
)
def test_a_retry_after_longer_than_the_patience_takes_half_of_what_is_left(
    server, tmp_path, sleeps, asked, waits
):
    server.on("GET", "/x", Say(status=429, headers={"Retry-After": asked}))
    assert client_of(server.url, tmp_path, sleeps, deadline=20.0).get("/x").status == 429
    assert sleeps.waits == waits
    assert sum(sleeps.waits) < 20.0


@pytest.mark.parametrize(("deadline", "waited"), [(9e9, 15.0), (1012.0, 6.0)])
@pytest.mark.parametrize("asked", ["16", "3600"])
def test_a_retry_after_holds_up_a_run_fifteen_seconds_and_once(
    server, tmp_path, asked, deadline, waited
):
    throttled = Say(status=429, headers={"Retry-After": asked})
    server.on("GET", "/x", throttled, Say({"ok": True}))
    server.on("GET", "/y", throttled)
    for path, status in (("/x", 200), ("/y", 429)):
        sleeps = Sleeps(deadline)
        client = client_of(server.url, tmp_path, sleeps, deadline=120.0)
        assert client.get(path).status == status
        assert sleeps.waits == [waited]


def test_the_deadline_of_the_run_ends_repeated_attempts(server, tmp_path):
    server.on("GET", "/x", *[Say(status=503)] * 9)
    sleeps = Sleeps(deadline=1003.0)
    with pytest.raises(TransportError, match="was not asked: the run's deadline has passed"):
        client_of(server.url, tmp_path, sleeps).get("/x")
    assert sleeps.waits == [0.5, 1.0, 2.0]


def test_when_the_run_must_end_a_client_sends_nothing_any_more(server, tmp_path):
    sleeps = Sleeps(deadline=1005.0)
    client = client_of(server.url, tmp_path, sleeps)
    sleeps.sleep(5.0)
    with pytest.raises(TransportError, match="deadline has passed") as caught:
        client.post("/x", b"{}")
    assert not caught.value.sent
    with pytest.raises(TransportError, match="deadline has passed"):
        client.stream("/x", silence=1.0, stop=sleeps)
    with pytest.raises(TransportError, match="deadline has passed"):
        client.open_list("/x", accept="a/b")
    assert server.asked == []


def test_attempts_are_counted_and_waits_double_to_a_limit(server, tmp_path, sleeps):
    server.on("GET", "/x", Say(status=503))
    client = client_of(server.url, tmp_path, sleeps, attempts=7, longest_wait=5.0, deadline=60)
    assert client.get("/x").status == 503
    assert sleeps.waits == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_broken_connection_is_tried_again_for_reads_only(server, tmp_path, sleeps):
    server.on("GET", "/x", Say(hang_up=True), Say())
    server.on("PUT", "/x", Say(hang_up=True), Say())
    client = client_of(server.url, tmp_path, sleeps)
    assert client.get("/x").ok
    with pytest.raises(TransportError) as caught:
        client.put("/x", b"{}")
    assert caught.value.sent
    assert len(server.to("/x", "PUT")) == 1


def test_a_write_is_repeated_only_when_it_was_throttled(server, tmp_path, sleeps):
    server.on("POST", "/x", Say(status=429), Say(status=503), Say())
    client = client_of(server.url, tmp_path, sleeps)
    assert client.post("/x", b"{}").status == 503
    server.on("POST", "/y", Say(status=429))
    assert client.post("/y", b"{}", retry_throttled=False).status == 429
    assert len(server.to("/y", "POST")) == 1


def test_a_silent_server_is_given_up(server, tmp_path):
    server.on("GET", "/x", Say(after=LONG))
    client = client_of(server.url, tmp_path, read=0.1, attempts=2, first_wait=0.01)
    started = time.monotonic()
    with pytest.raises(TransportError, match="fell silent"):
        client.get("/x")
    assert time.monotonic() - started < LONG / 2


def test_a_trickling_answer_is_given_up_at_the_deadline(server, tmp_path):
    trickle = tuple(piece for _ in range(int(LONG / 0.02)) for piece in (b"x", 0.02))
    server.on("GET", "/x", Say(lines=trickle))
    client = client_of(server.url, tmp_path, deadline=0.2)
    started = time.monotonic()
    with pytest.raises(TransportError, match="too slowly"):
        client.get("/x")
    assert time.monotonic() - started < LONG / 2


@pytest.mark.parametrize("torn", [Say(b"x" * 1000, cut=500), Say(lines=(b"x" * 500,), torn=True)])
def test_a_body_that_breaks_off_is_an_error_never_a_short_body(server, tmp_path, sleeps, torn):
    server.on("GET", "/x", torn)
    with pytest.raises(TransportError, match="broke"):
        client_of(server.url, tmp_path, sleeps, attempts=2).get("/x")


def test_an_unreachable_server_is_named_soon(tmp_path, sleeps):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(TransportError) as caught:
            client_of(url, tmp_path, sleeps).get("/x")
    assert str(caught.value).startswith(f"{url} is unreachable: Connection refused")
    assert not caught.value.sent
    assert sleeps.waits == [0.5, 1.0]


def test_an_unknown_name_is_not_tried_again(tmp_path, sleeps):
    with pytest.raises(ClusterReadError, match="cannot be resolved"):
        client_of("https://no-such-host.invalid", tmp_path, sleeps).get("/x")


def test_a_server_without_tls_is_recognised(server, tmp_path, sleeps):
    with pytest.raises(ClusterReadError, match="does not speak TLS"):
        client_of(server.url.replace("http://", "https://"), tmp_path, sleeps).get("/x")
    assert sleeps.waits == []


def test_a_new_token_in_the_file_is_used_after_a_401(server, tmp_path, sleeps):
    client = client_of(server.url, tmp_path, sleeps)
    config = tmp_path / "config"
    config.write_text(config.read_text().replace(SECRET, "renewed"))
    server.on("GET", "/x", Say(status=401), Say())
    assert client.get("/x").ok
    assert [a.headers["Authorization"] for a in server.asked] == [
        f"Bearer {SECRET}",
        "Bearer renewed",
    ]


def test_a_401_with_the_same_token_is_final(server, tmp_path, sleeps):
    server.on("GET", "/x", Say(status_body(401, "Unauthorized"), 401))
    client = client_of(server.url, tmp_path, sleeps)
    with pytest.raises(ClusterReadError, match=r"does not accept our credentials \(expired"):
        client.expect(client.get("/x"), RULE)
    assert len(server.asked) == 1


def test_a_403_names_the_verb_the_resource_and_the_rule_to_add(server, tmp_path):
    said = 'deployments.apps is forbidden: User "x" cannot list resource "deployments"'
    server.on("GET", "/x", Say(status_body(403, said), 403))
    client = client_of(server.url, tmp_path)
    with pytest.raises(ClusterReadError) as caught:
        client.expect(client.get("/x"), RULE)
    text = str(caught.value)
    assert "may not list deployments" in text
    assert '- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["list"]}' in text
    assert said in text


def test_no_more_requests_are_in_flight_than_allowed(server, tmp_path):
    server.on("GET", "/x", Say(after=0.05))
    client = client_of(server.url, tmp_path, in_flight=2)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.get("/x").status, range(8)))
    assert answers == [200] * 8
    assert server.most_at_once == 2


def test_the_token_is_in_no_message_and_no_log(server, tmp_path, sleeps, caplog):
    server.on("GET", "/x", Say(status=503), Say(hang_up=True))
    client = client_of(server.url, tmp_path, sleeps)
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "urllib3")
    with pytest.raises(TransportError) as caught:
        client.get("/x")
    assert SECRET not in str(caught.value)
    assert SECRET not in caplog.text
    assert "GET /x" in caplog.text  # the log was at work


def test_one_file_alone_deletes():
    package = Path(inspect.getfile(Client)).parents[1]
    deletes = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if re.search(r"""(?<!\bnp)\.delete\(|["']DELETE["']""", file.read_text())
    }
    # The embedded cluster is a server of its own, and the step http asks an address of the policy without any token.
    assert {file for file in deletes if not file.startswith("embedded/")} == {
        "kube/client.py",
        "machines/interruption/steps/pods.py",
        "machines/interruption/steps/http.py",
    }


@pytest.fixture(scope="module")
def bomb():
    return gzip.compress(b"0" * (64 << 20))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "gzip, gzip"])
def test_an_encoding_that_was_not_asked_for_is_refused_and_not_inflated(
    server, tmp_path, sleeps, encoding, bomb
):
    server.on("GET", "/x", Say(bomb, headers={"Content-Encoding": encoding}))
    client = client_of(server.url, tmp_path, sleeps)
    with pytest.raises(TransportError, match="in an encoding that was not asked for"):
        client.get("/x")
    with pytest.raises(TransportError, match="in an encoding that was not asked for"):
        client.open_list("/x", accept="application/json")
    assert sleeps.waits == []


def test_an_encoding_that_was_asked_for_is_undone(server, tmp_path):
    server.on("GET", "/x", Say(gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}))
    server.on("GET", "/y", Say(b"{}", headers={"Content-Encoding": "identity"}))
    client = client_of(server.url, tmp_path, compressed=True)
    assert client.get("/x").body == client.get("/y").body == b"{}"
