"""The HTTP server of the embedded API server: threads, keep-alive connections, chunked watches."""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from rebalancer.embedded.apiserver.api import Api, HttpRequest, Reply

_LOOPBACK = "127.0.0.1"
_JOIN_SECONDS = 10.0


class Server:
    """Serves one :class:`Api` on a free port of the loopback interface until :meth:`close`."""

    def __init__(self, api: Api, faults: Faults, now: Callable[[], float]) -> None:
        self._listener = _Listener(api, faults, now)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://{_LOOPBACK}:{self._listener.server_address[1]}"

    @property
    def errors(self) -> list[BaseException]:
        """Exceptions raised by our own code in a request; closed connections are not among them."""
        return self._listener.errors

    def close(self) -> None:
        """Stop listening, end all connections, and wait for their threads."""
        self._listener.shutdown()
        self._listener.end_connections()
        self._listener.server_close()
        self._thread.join(_JOIN_SECONDS)


class _Listener(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 128

    def __init__(self, api: Api, faults: Faults, now: Callable[[], float]) -> None:
        self.api, self.faults, self.now = api, faults, now
        self.closing = threading.Event()
        self.errors: list[BaseException] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__((_LOOPBACK, 0), _Handler)

    def track(self, connection: socket.socket) -> None:
        """Remember a connection, to end it when the server closes."""
        with self._lock:
            self._open.add(connection)
            if self.closing.is_set():
                # Accepted after end_connections: its thread would wait for ever.
                _hang_up(connection)

    def untrack(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def end_connections(self) -> None:
        """Wake every thread that waits on its connection, now and later."""
        with self._lock:
            self.closing.set()
            for connection in self._open:
                _hang_up(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep an exception of a handler, unless the client closed the connection."""
        del request, client_address
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self.errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def setup(self) -> None:
        super().setup()
        self.server.track(self.connection)

    def finish(self) -> None:
        self.server.untrack(self.connection)
        super().finish()

    def log_message(self, *_: Any) -> None:
        """Print nothing: Faults logs the requests."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the Date header in the cluster's time."""
        return formatdate(self.server.now() if timestamp is None else timestamp, usegmt=True)

    def _handle(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        request = HttpRequest(
            method=self.command,
            path=url.path,
            query=dict(parse_qsl(url.query, keep_blank_values=True)),
            body=self.rfile.read(length) if length else b"",
            content_type=self.headers.get("Content-Type", "application/json"),
            authorization=self.headers.get("Authorization", ""),
            accept=self.headers.get("Accept", ""),
        )
        if self._is_from_a_page():
            body = b"pages of other sites have no access"
            self._send(Reply(403, body, content_type="text/plain"), None)
            return
        fault = self.server.faults.match(request)
        if fault is not None and fault.delay:
            self.server.closing.wait(fault.delay)
        if fault is not None and fault.drop and not fault.late:
            self._drop()
            return
        answer = (fault.answer() if fault else None) or self.server.api.answer(request)
        if fault is not None and fault.drop:
            self._drop()
        elif answer.stream is not None:
            self._stream(answer.stream, fault)
        else:
            self._send(answer, fault)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 - the base class's names

    def _is_from_a_page(self) -> bool:
        """Return whether a browser sends this request for a page of another site, even if that name resolves to us.

        A kept cluster accepts requests without a token.
        """
        try:
            host = urlsplit(f"//{self.headers.get('Host', _LOOPBACK)}").hostname
        except ValueError:
            host = None
        return "Origin" in self.headers or host not in (_LOOPBACK, "localhost")

    def _send(self, answer: Reply, fault: Fault | None) -> None:
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        if answer.retry_after:
            self.send_header("Retry-After", str(answer.retry_after))
        self.end_headers()
        self.wfile.write(self._cut(answer.body, fault))
        if fault is not None and fault.truncate:
            self._drop()

    def _stream(self, lines: Iterator[bytes], fault: Fault | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent = 0
        for line in lines:
            if self.server.closing.is_set() or not self._client_is_there():
                self.close_connection = True
                return
            if line:
                sent += len(line)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            if fault is not None and fault.truncate and sent >= fault.truncate:
                self._drop()
                return
        self.wfile.write(b"0\r\n\r\n")

    def _client_is_there(self) -> bool:
        """Whether the client of a watch is connected: it never sends, so a readable socket was closed."""
        try:
            self.connection.setblocking(False)
            try:
                return bool(self.connection.recv(1, socket.MSG_PEEK))
            finally:
                self.connection.setblocking(True)
        except BlockingIOError:
            return True
        except OSError:
            return False

    @staticmethod
    def _cut(body: bytes, fault: Fault | None) -> bytes:
        return body[: fault.truncate] if fault is not None and fault.truncate else body

    def _drop(self) -> None:
        self.close_connection = True
        _hang_up(self.connection)


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # Closed already.
        return


@dataclass
class Fault:
    """One fault, and the requests that it affects."""

    method: str = ".*"
    """Regular expression that the whole method matches."""
    path: str = ".*"
    """Regular expression that is searched in the path (without the query)."""
    skip: int = 0
    """Number of matching requests that are answered normally first."""
    times: int = 1
    """Number of requests that are affected after that."""
    delay: float = 0.0
    """Seconds before the request is handled."""
    status: int = 0
    """Reply with this code; the request is not carried out."""
    message: str = "injected"
    reason: str = ""
    retry_after: int = 0
    drop: bool = False
    """Close the connection: after the request was carried out if ``late``, else before."""
    late: bool = False
    truncate: int = 0
    """Close the connection after this number of bytes of the body."""

    def answer(self) -> Reply | None:
        """Return the refusal, or None if the request is to be carried out."""
        if not self.status:
            return None
        body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.status,
        }
        return Reply(self.status, msgspec.json.encode(body), retry_after=self.retry_after)


@dataclass
class Faults:
    """The faults that one server injects into its answers, and a log of its requests. Thread-safe."""

    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """``METHOD /path`` of every request so far, in order of arrival."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fault: Fault) -> Fault:
        """Inject a fault from now on."""
        with self._lock:
            self.faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self.faults.clear()

    def count_seen(self, method: str, path: str) -> int:
        """Return the number of requests that matched so far; arguments as in a Fault."""
        with self._lock:
            lines = [line.split(" ", 1) for line in self.requests]
        return sum(bool(re.fullmatch(method, m)) and bool(re.search(path, p)) for m, p in lines)

    def match(self, request: HttpRequest) -> Fault | None:
        """Log a request, and return the fault that affects it."""
        with self._lock:
            self.requests.append(f"{request.method} {request.path}")
            for fault in self.faults:
                if not re.fullmatch(fault.method, request.method):
                    continue
                if not re.search(fault.path, request.path) or fault.times <= 0:
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None
