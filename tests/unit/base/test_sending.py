"""One HTTP request to somewhere else: bounded, and without secrets in what is said of it."""

import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rebalancer.base import sending
from rebalancer.base.environment import SystemClock
from rebalancer.base.sending import SendingError, check_url, place, send
from rebalancer.base.stop import Stop
from tests.support.serving import serving

SECRET = "T000-secret"


@contextmanager
def server(status=200, *, location=None, stalls=None):
    """Yield an address and what was asked there."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.command, self.path, dict(self.headers), body))
            if stalls is not None:
                stalls.wait(600)
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.end_headers()

        do_POST = do_PUT = do_GET = _answer  # noqa: N815

        def log_message(self, *_):
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        try:
            yield url, asked
        finally:
            if stalls is not None:
                stalls.set()


@pytest.fixture
def stop():
    return Stop(SystemClock())


def test_a_request_arrives_as_it_was_given(stop):
    with server() as (url, asked):
        send("POST", f"{url}/{SECRET}", b"body", {"Content-Type": "text/plain"}, stop)
    ((method, path, headers, body),) = asked
    assert (method, path, body) == ("POST", f"/{SECRET}", b"body")
    assert headers["Content-Type"] == "text/plain"


def test_a_user_in_the_address_becomes_a_header(stop):
    with server() as (url, asked):
        send("PUT", url.replace("//", "//me:p%40ss@"), b"", {}, stop)
    assert asked[0][2]["Authorization"] == "Basic bWU6cEBzcw=="


@pytest.mark.parametrize("status", [301, 307, 404, 500])
def test_another_answer_than_success_is_an_error_without_the_secret(stop, status):
    with server(status, location=f"http://elsewhere/{SECRET}") as (url, asked):
        with pytest.raises(SendingError, match=str(status)) as error:
            send("POST", f"{url}/{SECRET}", b"", {}, stop)
        assert len(asked) == 1
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:1/{SECRET}",
        f"http://{SECRET}:x@127.0.0.1:1/",
        f"https://127.0.0.1:1/{SECRET}?token={SECRET}",
        f"http://127.0.0.1:1/{SECRET} \r\nX: y",
    ],
)
def test_what_cannot_be_reached_is_said_without_the_secret(stop, url):
    with pytest.raises(SendingError) as error:
        send("POST", url, b"", {}, stop)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "url",
    ["", "file:///etc/passwd", "ftp://host/x", "host:9091", "http://", "http://h:x/", "http://["],
)
def test_an_address_is_http_or_https(url):
    with pytest.raises(SendingError, match="is no address"):
        check_url(url)


def test_the_place_of_an_address_is_scheme_and_host():
    assert place(f"https://me:{SECRET}@hooks.example:8443/{SECRET}?{SECRET}") == (
        "https://hooks.example:8443"
    )


def test_a_server_that_does_not_answer_is_waited_for_a_second_once_the_run_had_to_end(monkeypatch):
    monkeypatch.setattr(sending, "TIMEOUT", 600.0)
    signalled = threading.Event()
    signalled.set()
    stalls = threading.Event()
    with server(stalls=stalls) as (url, _asked):
        started = time.monotonic()
        with pytest.raises(SendingError, match="gave no answer in time"):
            send("POST", url, b"", {}, Stop(SystemClock(), signalled=signalled))
        waited = time.monotonic() - started
        stalls.set()
    assert waited < 300
