"""A proxy for one client of an API server: understands HTTP and TLS, and does what a script of faults says.

Watches pass as they come. Each request is recorded when it has wholly arrived, before anything is done with it.
"""

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path
from typing import Self

from tests.controlplane import ControlPlane
from tests.storm.faults import Effect, Fault, Script, kind_of
from tests.storm.wire import ClosedError, Head, Wire

_SLICE = 0.5
_HTML = b"<html><head><title>Service</title></head><body><h1>Please log in</h1></body></html>\n"
_REASONS = {
    200: "OK",
    410: "Gone",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
_STATUS_REASONS = {
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass
class Seen:
    """One request as the proxy saw it."""

    at: float
    """Unix seconds at which it had wholly arrived."""
    kind: str
    number: int
    """Among those of its kind, from 1."""
    method: str
    target: str
    body: bytes
    fault: Fault | None
    status: int = 0
    """What the server answered; 0 if it was not asked, or has not answered."""
    hit: bool = False
    """Whether the fault came to bear."""


Hook = Callable[[Seen], None]
"""Called when the server has answered, or would be asked, before an answer is given, which waits for its end."""


@dataclass(frozen=True)
class Upstream:
    """Where the server is, and the keys with which the proxy stands in for it."""

    port: int
    ca: Path
    certificate: Path
    key: Path

    @classmethod
    def of(cls, plane: ControlPlane) -> Self:
        """Return where the API server of a control plane is."""
        keys = plane.directory / "pki"
        port = int(plane.url.rpartition(":")[2])
        return cls(port, keys / "ca.crt", keys / "tls.crt", keys / "tls.key")


@dataclass
class Proxy:
    """A listening proxy, as a context manager; `port` is where it listens."""

    upstream: Upstream
    script: Script
    hook: Hook = lambda _: None
    seen: list[Seen] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What went wrong in the proxy itself; there must be nothing."""

    def __enter__(self) -> Self:
        self._inside = ssl.create_default_context(cafile=str(self.upstream.ca))
        self._outside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._outside.load_cert_chain(self.upstream.certificate, self.upstream.key)
        self._open: set[Wire] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            left = list(self._open)
        for wire in left:
            wire.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        """Serve one connection until one side ends it."""
        wires: list[Wire] = []
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client = self._opened(self._outside.wrap_socket(raw, server_side=True), wires)
            server: Wire | None = None
            while not self._closed.is_set():
                request = client.head()
                body = b"".join(client.body(request))
                exchange = Exchange(self, client, request, body)
                if exchange.must_reach_server and server is None:
                    server = self._opened(self._connect(), wires)
                exchange.run(server)
        except (OSError, ClosedError):
            raw.close()
        except Exception as error:  # noqa: BLE001 - reported by the one that made the proxy
            self.errors.append(repr(error))
        finally:
            with self._lock:
                self._open.difference_update(wires)
            for wire in wires:
                wire.close()

    def _connect(self) -> ssl.SSLSocket:
        sock = socket.create_connection(("127.0.0.1", self.upstream.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._inside.wrap_socket(sock, server_hostname="127.0.0.1")

    def _opened(self, sock: ssl.SSLSocket, wires: list[Wire]) -> Wire:
        wire = Wire(sock)
        wires.append(wire)
        with self._lock:
            self._open.add(wire)
        return wire

    def over(self) -> bool:
        """Whether the proxy is being closed."""
        return self._closed.is_set()


class Exchange:
    """One request and its answer."""

    def __init__(self, proxy: Proxy, client: Wire, request: Head, body: bytes) -> None:
        self._proxy, self._client, self._request, self._body = proxy, client, request, body
        method, target, _ = request.first.split(" ", 2)
        kind = kind_of(method, target)
        number, fault = proxy.script.next(kind)
        self._seen = Seen(time.time(), kind, number, method, target, body, fault)
        self._effect = fault.effect if fault else Effect()
        proxy.seen.append(self._seen)

    @property
    def must_reach_server(self) -> bool:
        """Whether the server is asked."""
        return self._effect.forward

    def run(self, server: Wire | None) -> None:
        """Carry it out; raises `ClosedError` where the connection must end after it."""
        effect, seen = self._effect, self._seen
        if effect.delay:
            seen.hit = True
            self._wait(effect.delay)
        answer: Head | None = None
        pieces: Iterator[bytes] = iter(())
        if server is not None and effect.forward:
            server.send(self._request.encode() + self._body)
            answer = server.head()
            seen.status = answer.status
            pieces = server.body(answer)
            replaced = effect.drop or effect.silent or effect.status
            if replaced and not self._request_watches:
                for _ in pieces:
                    pass  # the answer is whole before it is thrown away: what was asked is done
        self._proxy.hook(seen)
        if effect.hold:
            seen.hit = True
            self._wait(effect.hold)
        if effect.drop:
            seen.hit = True
            raise ClosedError("dropped")
        if effect.silent:
            seen.hit = True
            self._wait(float("inf"))
        if effect.status:
            seen.hit = True
            self._send_head_and(self._made(effect))
            if effect.forward and self._request_watches:
                raise ClosedError("a watch whose answer was replaced")
            return
        assert answer is not None
        self._pass_on(answer, pieces)

    @property
    def _request_watches(self) -> bool:
        return self._seen.kind.startswith("watch ")

    def _made(self, effect: Effect) -> tuple[Head, bytes]:
        if effect.html:
            body, content = _HTML, "text/html"
        elif effect.json:
            body, content = effect.json.encode(), "application/json"
        else:
            status = {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": f"made by the storm: {_REASONS[effect.status]}",
                "reason": _STATUS_REASONS[effect.status],
                "code": effect.status,
            }
            body, content = json.dumps(status).encode() + b"\n", "application/json"
        headers = [("Content-Type", content), ("Content-Length", str(len(body)))]
        headers.append(("Date", formatdate(time.time() + self._proxy.script.skew, usegmt=True)))
        if effect.retry_after is not None:
            headers.append(("Retry-After", str(effect.retry_after)))
        return Head(f"HTTP/1.1 {effect.status} {_REASONS[effect.status]}", headers), body

    def _send_head_and(self, made: tuple[Head, bytes]) -> None:
        head, body = made
        self._client.send(head.encode() + body)

    def _pass_on(self, answer: Head, pieces: Iterator[bytes]) -> None:
        if self._proxy.script.skew:
            self._skew(answer)
        if self._effect.drip_head:
            self._seen.hit = True
            self._drip(answer.encode(), self._effect.drip_head)
        else:
            self._client.send(answer.encode())
        # No body follows these, whatever is announced.
        if answer.status in (204, 304) or answer.status < 200:
            return
        at = self._point(answer)
        passed = 0
        for piece in pieces:
            data = self._changed(piece, passed, at)
            passed += len(piece)
            self._send_piece(answer, data)
            if (self._effect.cut or self._effect.mute) and passed > at:
                self._seen.hit = True
                if self._effect.mute:
                    self._wait(float("inf"))
                raise ClosedError("cut")
        if answer.chunked:
            self._client.send(b"0\r\n\r\n")

    def _point(self, answer: Head) -> int:
        """Return the byte of the body at which something happens."""
        fault = self._seen.fault
        longest = answer.length if answer.length and not answer.chunked else 2000
        return fault.at % longest if fault else 0

    def _changed(self, piece: bytes, passed: int, at: int) -> bytes:
        """Return a piece of the body as it is sent."""
        effect = self._effect
        here = passed <= at < passed + len(piece)
        if (effect.cut or effect.mute) and here:
            return piece[: at - passed]
        if effect.flip and here and self._seen.fault:
            self._seen.hit = True
            bit = 1 << (self._seen.fault.at // 7 % 8)
            index = at - passed
            return piece[:index] + bytes([piece[index] ^ bit]) + piece[index + 1 :]
        return piece

    def _send_piece(self, answer: Head, data: bytes) -> None:
        if not data:
            return
        framed = b"%x\r\n%s\r\n" % (len(data), data) if answer.chunked else data
        if self._effect.drip_body:
            self._seen.hit = True
            self._drip(framed, self._effect.drip_body)
        else:
            self._client.send(framed)

    def _drip(self, data: bytes, pause: float) -> None:
        for index in range(len(data)):
            self._client.send(data[index : index + 1])
            self._wait(pause)

    def _wait(self, seconds: float) -> None:
        """Wait; raises `ClosedError` if the client leaves or the proxy ends meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._proxy.over() or self._client.gone(min(_SLICE, left)):
                raise ClosedError("left while waiting")

    def _skew(self, answer: Head) -> None:
        with contextlib.suppress(ValueError):
            said = parsedate_to_datetime(answer.get("date")).timestamp()
            answer.set("Date", formatdate(said + self._proxy.script.skew, usegmt=True))
