"""Whatever keeps a request waiting ends with the run's deadline, with a signal, and with the call's own time."""

import contextlib
import itertools
import json
import math
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import CutOffError, Stop, run_abandonable
from rebalancer.kube.calls import Call
from rebalancer.kube.client import Client
from rebalancer.kube.credentials import find_credentials
from rebalancer.kube.failures import TransportError
from rebalancer.kube.transport import Limits
from tests.support.clocks import LeapingClock
from tests.unit.kube.scripted import HANGS, SECRET, Asked, Say, kubeconfig

FOR_EVER = 600.0
SOON = 300.0
"""On a busy machine; nothing here ends by itself before ``FOR_EVER``."""
AT_ONCE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

Script = Callable[[socket.socket, threading.Event, threading.Event], None]
"""What a server does with a connection until the first event; the second one ends the run."""


@contextmanager
def raw_server(script: Script, come: threading.Event | None = None) -> Iterator[str]:
    """Yield the address (host:port) of a server that does with each connection what ``script`` does."""
    over, come = threading.Event(), come or threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    def one(connection: socket.socket) -> None:
        # The client hangs up, which is what these tests are about.
        with connection, contextlib.suppress(OSError):
            script(connection, over, come)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)


def dripping(first: bytes, piece: bytes) -> Script:
    def script(connection: socket.socket, over: threading.Event, come: threading.Event) -> None:
        if not first.startswith(b"\x16"):
            connection.recv(65536)
        connection.sendall(first)
        for number in itertools.count():
            if over.wait(0.02):
                return
            connection.sendall(piece)
            if number == 10:
                come.set()

    return script


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DRIPS = {
    "status line": dripping(b"", b"H"),
    "headers": dripping(HEAD, b"X-A: 1\r\n"),
    "one header": dripping(HEAD + b"X-A: ", b"a"),
    "a body of known length": dripping(HEAD + b"Content-Length: 100000\r\n\r\n", b"x"),
    "a body in chunks": dripping(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "a body without end": dripping(HEAD + b"\r\n", b"x"),
}


def client(file: Path, stop: Stop | None = None, **limits: Any) -> Client:
    stop = stop or Stop(SystemClock())
    call = Call(stop, math.inf)
    credentials = find_credentials(file=file, context=None, environ={}, call=call)
    patient = {"connect": FOR_EVER, "read": FOR_EVER, "deadline": FOR_EVER, "attempts": 1}
    return Client(credentials, limits=Limits(**{**patient, **limits}), stop=stop)


def ends(by: str, come: threading.Event) -> Stop:
    """Return a stop that comes when ``come`` is set."""
    if by == "signal":
        return Stop(SystemClock(), signalled=come)
    clock = LeapingClock(come)
    if by == "deadline":
        return Stop(clock, clock.now() + FOR_EVER)
    stop = Stop(SystemClock())
    stop.add(lambda: "the Lease was lost" if come.is_set() else None)
    return stop


def in_a_moment(come: threading.Event) -> None:
    threading.Timer(0.3, come.set).start()


WHYS = {
    "signal": "stopped by a signal",
    "deadline": "the run's deadline has passed",
    "lost Lease": "the Lease was lost",
}
each_end = pytest.mark.parametrize("by", WHYS)


@pytest.fixture
def come():
    """Ends the run of a test when it is set."""
    return threading.Event()


@contextmanager
def soon() -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < SOON


@each_end
@pytest.mark.parametrize("what", DRIPS)
def test_an_answer_that_drips_is_cut_off(tmp_path, come, what, by):
    with raw_server(DRIPS[what], come) as address, soon():
        asking = client(kubeconfig(tmp_path, f"http://{address}"), ends(by, come))
        with pytest.raises(TransportError, match=WHYS[by]) as caught:
            asking.get("/x")
    assert caught.value.final


@each_end
def test_a_list_that_drips_is_cut_off(tmp_path, come, by):
    with raw_server(DRIPS["a body in chunks"]) as address, soon():
        asking = client(kubeconfig(tmp_path, f"http://{address}"), ends(by, come))
        stream = asking.open_list("/x", accept="application/json")
        in_a_moment(come)
        with pytest.raises(TransportError, match=WHYS[by]):
            stream.read_up_to(1 << 20)
        stream.end(complete=False)


@each_end
def test_a_tls_handshake_that_drips_is_cut_off(tmp_path, come, by):
    # A handshake record of 16 KiB that never ends.
    endless = dripping(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc", b"\x00")
    with raw_server(endless, come) as address, soon():
        file = kubeconfig(tmp_path, f"https://{address}", **{"insecure-skip-tls-verify": True})
        with pytest.raises(TransportError, match=WHYS[by]) as caught:
            client(file, ends(by, come)).get("/x")
    assert not caught.value.sent


def test_a_call_ends_with_its_own_time(tmp_path):
    for script in DRIPS.values():
        with raw_server(script) as address, soon():
            asking = client(kubeconfig(tmp_path, f"http://{address}"))
            with pytest.raises(TransportError, match="too slowly") as caught:
                asking.get("/x", seconds=0.3)
        assert not caught.value.final


def silent(connection: socket.socket, over: threading.Event, come: threading.Event) -> None:
    connection.recv(65536)
    come.set()
    over.wait(FOR_EVER)


@each_end
def test_a_server_that_says_nothing_is_left(tmp_path, come, by):
    with raw_server(silent, come) as address, soon():
        asking = client(kubeconfig(tmp_path, f"http://{address}"), ends(by, come))
        with pytest.raises(TransportError, match=WHYS[by]):
            asking.get("/x")


def test_a_server_that_has_never_answered_has_less_time(tmp_path, come):
    with raw_server(silent, come) as address, soon():
        asking = client(kubeconfig(tmp_path, f"http://{address}"), first_answer=0.3)
        with pytest.raises(
            TransportError, match=r"not answered within 0\.3 s: .*--request-timeout"
        ):
            asking.get("/version")
        with pytest.raises(TransportError, match=r"not answered within 0\.3 s"):
            asking.post("/x", b"{}")


def test_a_server_that_has_answered_has_its_whole_time(server, tmp_path):
    server.on("GET", "/slow", Say(after=0.6))
    asking = client(kubeconfig(tmp_path, server.url), first_answer=0.3)
    with pytest.raises(TransportError, match="not answered within"):
        asking.get("/slow")
    assert asking.get("/version").status
    assert asking.get("/slow").ok
    assert asking.beside(asking.stop).get("/slow").ok, "what one client knows holds for its twin"


@each_end
def test_a_request_that_waits_for_its_turn_is_not_sent(server, tmp_path, come, by):
    server.on("GET", "/slow", Say(after=FOR_EVER))
    asking = client(kubeconfig(tmp_path, server.url), ends(by, come), in_flight=1)
    failures: list[TransportError] = []

    def ask(path: str) -> None:
        try:
            asking.get(path)
        except TransportError as error:
            failures.append(error)

    with soon():
        slow = threading.Thread(target=ask, args=("/slow",))
        slow.start()
        while not server.asked:
            time.sleep(0.01)
        in_a_moment(come)
        ask("/x")
        slow.join()
    assert [asked.path for asked in server.asked] == ["/slow"]
    assert sorted(error.sent for error in failures) == [False, True]
    assert all(WHYS[by] in str(error) for error in failures)


@each_end
def test_a_throttled_request_does_not_outlast_the_run(server, tmp_path, come, by, monkeypatch):
    wait = Stop.wait

    def ends_while_it_waits(stop: Stop, seconds: float) -> str | None:
        come.set()
        return wait(stop, seconds)

    monkeypatch.setattr(Stop, "wait", ends_while_it_waits)
    server.on("GET", "/x", Say(status=429, headers={"Retry-After": "550"}))
    asking = client(kubeconfig(tmp_path, server.url), ends(by, come), attempts=6)
    with soon(), pytest.raises(TransportError, match=f"was not asked: {WHYS[by]}"):
        asking.get("/x")
    assert len(server.asked) == 1


def plugin(folder: Path, code: str) -> Path:
    (folder / "plugin.py").write_text(code)
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(folder / "plugin.py")],
        }
    }
    file = kubeconfig(folder, "https://127.0.0.1:1")
    file.write_text(file.read_text().replace(json.dumps({"token": SECRET}), json.dumps(user)))
    return file


@each_end
def test_a_credential_plugin_that_hangs_ends_with_the_run(tmp_path, come, by):
    file = plugin(tmp_path, HANGS)
    in_a_moment(come)
    with soon(), pytest.raises(ClusterReadError, match=f"gave no answer: {WHYS[by]}"):
        client(file, ends(by, come))
    (tmp_path / "over").touch()


# -- what is under way when the stop comes ----------------------------------------------------------


def and_ends(come: threading.Event, answer: Say) -> Callable[[Asked], Say]:
    """Return the script of a server that ends the run when it is asked."""

    def script(_: Asked) -> Say:
        come.set()
        return answer

    return script


def test_a_write_that_was_sent_has_a_moment_for_its_answer(server, tmp_path, come):
    server.handle("POST", "/x", and_ends(come, Say({"done": True}, 201, after=0.6)))
    asking = client(kubeconfig(tmp_path, server.url), ends("signal", come), grace=SOON)
    assert asking.post("/x", b"{}").status == 201
    assert asking.stop.reason() is not None
    with pytest.raises(TransportError, match="was not asked"):
        asking.post("/x", b"{}")
    assert len(server.asked) == 1


def test_a_write_whose_answer_takes_longer_may_have_happened(server, tmp_path, come):
    server.handle("POST", "/x", and_ends(come, Say({}, 201, after=FOR_EVER)))
    asking = client(kubeconfig(tmp_path, server.url), ends("signal", come), grace=0.2)
    with soon(), pytest.raises(TransportError) as caught:
        asking.post("/x", b"{}")
    assert caught.value.sent


def test_a_write_is_not_sent_on_a_connection_that_comes_too_late(tmp_path, come):
    """The connection takes until after the signal: nothing is said on it."""
    stop, said = ends("signal", come), []

    def script(connection: socket.socket, over: threading.Event, come: threading.Event) -> None:
        come.set()
        over.wait(1.0)
        connection.settimeout(1.0)
        said.append(connection.recv(65536))

    # A TLS handshake that is never answered, so that the request would follow it.
    with raw_server(script, come) as address, soon():
        file = kubeconfig(tmp_path, f"https://{address}", **{"insecure-skip-tls-verify": True})
        with pytest.raises(TransportError) as caught:
            client(file, stop, grace=FOR_EVER).post("/x", b"{}")
    assert not caught.value.sent
    assert all(b"POST" not in piece for piece in said)


def test_last_words_go_on_for_some_seconds(server, tmp_path, come, monkeypatch):
    monkeypatch.setattr("rebalancer.kube.client.LAST_WORDS", FOR_EVER)
    server.on("PUT", "/x", Say())
    server.handle("GET", "/x", and_ends(come, Say(after=FOR_EVER)))
    signalled = threading.Event()
    asking = client(kubeconfig(tmp_path, server.url), Stop(LeapingClock(come), signalled=signalled))
    last = asking.last_words
    assert last is asking.last_words
    signalled.set()
    with pytest.raises(TransportError, match="was not asked"):
        asking.put("/x", b"{}")
    assert last.put("/x", b"{}").ok
    with soon(), pytest.raises(TransportError, match="stopped by a signal"):
        last.get("/x")


def test_no_thread_watches_where_nothing_is_under_way(server, tmp_path):
    server.on("GET", "/x", Say())
    # Clients of other tests in this process may have calls under way.
    others = set(threading.enumerate())

    def watching() -> bool:
        return any(t.name == "calls" for t in set(threading.enumerate()) - others)

    asking = client(kubeconfig(tmp_path, server.url))
    for _ in range(5):
        assert asking.get("/x").ok
    until = time.monotonic() + SOON
    while watching() and time.monotonic() < until:
        time.sleep(0.02)
    assert not watching()
    assert asking.get("/x").ok


# -- what runs apart --------------------------------------------------------------------------------


def test_a_result_or_an_error_comes_back():
    assert run_abandonable(lambda: 7, lambda: None) == 7
    with pytest.raises(ValueError, match="literal"):
        run_abandonable(lambda: int("a"), lambda: None)


def test_what_hangs_is_left_behind_and_its_result_dropped():
    begun, go_on = threading.Event(), threading.Event()
    dropped: list[str] = []

    def hangs() -> str:
        begun.set()
        go_on.wait(FOR_EVER)
        return "late"

    with soon(), pytest.raises(CutOffError, match="enough"):
        run_abandonable(hangs, lambda: "enough" if begun.is_set() else None, dropped.append)
    go_on.set()
    until = time.monotonic() + SOON
    while not dropped and time.monotonic() < until:
        time.sleep(0.01)
    assert dropped == ["late"]


def test_nothing_begins_when_the_time_is_over():
    begun: list[int] = []
    with pytest.raises(CutOffError):
        run_abandonable(lambda: begun.append(1), lambda: "over")
    assert begun == []
