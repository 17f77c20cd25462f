"""The proxy between a plain TLS client and a small server: each fault is what its name says."""

import http.client
import http.server
import json
import ssl
import threading
import time
from email.utils import parsedate_to_datetime

import pytest

from tests.controlplane import pki, wait_until
from tests.storm.faults import Fault, Script
from tests.storm.proxy import Proxy, Upstream
from tests.support.serving import serving

BODY = json.dumps({"kind": "PodList", "items": [{"metadata": {"name": "a" * 200}}]}).encode()
PODS = "/api/v1/pods"
WATCH = f"{PODS}?watch=1"


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, keys):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.go_on = threading.Event()
        self.go_on.set()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys.server_cert, keys.server_key)
        self.socket = context.wrap_socket(self.socket, server_side=True)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(200)
        if "watch" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number in range(3):
                line = b'{"number": %d}\n' % number
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
                self.server.go_on.wait(600)
            self.wfile.write(b"0\r\n\r\n")
            return
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return pki.create(tmp_path_factory.mktemp("pki"), ["127.0.0.1"])


@pytest.fixture
def server(keys):
    made = Server(keys)
    with serving(made):
        yield made
        made.go_on.set()


@pytest.fixture
def ask(keys, server):
    """Ask through a proxy with one fault; return status, body and headers of the answer.

    It may be silent so many seconds once ``when`` holds.
    """

    def asked(fault=None, path=PODS, skew=0.0, timeout=60.0, silent=None, when=lambda: True):
        upstream = Upstream(server.server_port, keys.ca_cert, keys.server_cert, keys.server_key)
        script = Script([fault] if fault else [], skew)
        with Proxy(upstream, script) as proxy:
            context = ssl.create_default_context(cafile=str(keys.ca_cert))
            line = http.client.HTTPSConnection(
                "127.0.0.1", proxy.port, context=context, timeout=timeout
            )
            try:
                line.request("GET", path)
                wait_until(when, 60, "the request")
                if silent is not None:
                    line.sock.settimeout(silent)
                answer = line.getresponse()
                return answer.status, answer.read(), answer.headers
            finally:
                line.close()
                assert proxy.errors == []

    return asked


def fault(name, path=PODS, at=0):
    return Fault("watch pods" if "watch" in path else "list pods", name, "first", at)


def test_without_a_fault_it_passes_everything_on(ask, server):
    assert ask()[:2] == (200, BODY)
    assert ask(path=WATCH)[:2] == (200, b'{"number": 0}\n{"number": 1}\n{"number": 2}\n')
    assert server.asked == [PODS, WATCH]


def test_a_watch_passes_as_it_comes(keys, server):
    server.go_on.clear()
    upstream = Upstream(server.server_port, keys.ca_cert, keys.server_cert, keys.server_key)
    with Proxy(upstream, Script()) as proxy:
        context = ssl.create_default_context(cafile=str(keys.ca_cert))
        line = http.client.HTTPSConnection("127.0.0.1", proxy.port, context=context, timeout=60)
        line.request("GET", WATCH)
        answer = line.getresponse()
        # The second line has not been written by the server yet.
        assert answer.readline() == b'{"number": 0}\n'
        server.go_on.set()
        assert answer.readline() == b'{"number": 1}\n'
        line.close()


@pytest.mark.parametrize(
    ("name", "status", "asked"),
    [
        ("200 with HTML", 200, False),
        ("200 with HTML after commit", 200, True),
        ("429 Retry-After 60", 429, False),
        ("500 after commit", 500, True),
        ("502 after commit", 502, True),
        ("503 after commit", 503, True),
        ("504 after commit", 504, True),
        ("410", 410, False),
    ],
)
def test_another_answer_comes_in_place_of_the_servers(ask, server, name, status, asked):
    got, body, headers = ask(fault(name))
    assert got == status
    assert body != BODY
    assert bool(server.asked) == asked
    assert headers.get("Retry-After") == ("60" if status == 429 else None)


@pytest.mark.parametrize(
    ("name", "asked"), [("drop before commit", False), ("drop after commit", True)]
)
def test_a_dropped_connection_gives_no_answer(ask, server, name, asked):
    with pytest.raises((http.client.RemoteDisconnected, ssl.SSLError, ConnectionError)):
        ask(fault(name))
    assert bool(server.asked) == asked


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("silence before commit", False),
        ("silence after commit", True),
        ("silence in the body", True),
    ],
)
def test_silence_keeps_the_connection(ask, server, name, asked):
    with pytest.raises(TimeoutError):
        ask(fault(name), silent=0.5, when=lambda: bool(server.asked) or not asked)
    assert bool(server.asked) == asked


@pytest.mark.parametrize("path", [PODS, WATCH])
def test_a_cut_ends_the_connection_within_the_body(ask, path):
    with pytest.raises((http.client.IncompleteRead, ssl.SSLError, ConnectionError)):
        ask(fault("cut", path, at=20), path)


def test_one_bit_is_another(ask):
    _, body, _ = ask(fault("flipped bit", at=33))
    differing = [index for index, (a, b) in enumerate(zip(body, BODY, strict=True)) if a != b]
    assert differing == [33]
    assert (body[33] ^ BODY[33]).bit_count() == 1


@pytest.mark.parametrize("name", ["dripping head", "dripping body"])
def test_what_drips_is_never_silent_and_never_done(ask, name):
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        _read_for(ask, name, 1.2)
    assert time.monotonic() - begun > 1.0


def _read_for(ask, name, seconds):
    """Ask, and give up after so many seconds although bytes still come."""
    ended = []

    def asking():
        try:
            ask(fault(name))
            ended.append("an answer")
        except OSError:
            ended.append("silence")

    thread = threading.Thread(target=asking, daemon=True)
    thread.start()
    thread.join(seconds)
    if not ended:
        raise TimeoutError("bytes still come")
    raise AssertionError(ended)


def test_a_delay_comes_before_the_server_is_asked_or_after(ask, server):
    for name in ("delay", "delayed answer"):
        begun = time.monotonic()
        assert ask(fault(name))[0] == 200
        assert time.monotonic() - begun >= 2.5
    assert server.asked == [PODS, PODS]


def test_a_wrong_clock_is_in_the_date(ask):
    _, _, headers = ask(skew=3600)
    said = parsedate_to_datetime(headers["Date"]).timestamp()
    assert said - time.time() > 3500
