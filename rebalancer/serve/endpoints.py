"""The HTTP endpoints of ``serve``: health, metrics and, if enabled, the last report."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from rebalancer.base.errors import PolicyError

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
_TIMEOUT = 10.0
"""Seconds of silence for a client that sends its request, or takes the answer."""
_MAX_CONNECTIONS = 16
"""Clients; of more, the one that came first is sent away, so that no crowd of slow ones keeps a probe from its answer."""


class Answer(NamedTuple):
    """The response for a path."""

    status: int
    body: bytes
    content_type: str = TEXT


Paths = Mapping[str, Callable[[], Answer]]


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``; without a host, all addresses.

    Raises:
        ValueError: the text has another form.
    """
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:
        port = None
    if port is None or parts.username or parts.path or parts.query or parts.fragment:
        raise ValueError(f"{text!r} is no address; write HOST:PORT, or :PORT for all addresses")
    return parts.hostname or "", port


@contextmanager
def answer_requests(address: tuple[str, int], paths: Paths) -> Iterator[int]:
    """Serve GET and HEAD for these paths, 404 for others; yield the port. Without a host, on all addresses.

    Raises:
        PolicyError: the address cannot be used.
    """
    host, port = address
    try:
        server = _server_of(host)(address, _handler(paths))
    except OSError as error:
        raise PolicyError([f"--listen {host}:{port}: {error.strerror or error}"]) from None
    thread = threading.Thread(target=server.serve_forever, name="endpoints", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingTCPServer):
    # Not the HTTP server of the library: that one asks DNS for its own name before it answers.
    allow_reuse_address = daemon_threads = True
    block_on_close = False
    request_queue_size = _MAX_CONNECTIONS

    def __init__(self, *arguments: Any) -> None:
        self._lock = threading.Lock()
        self._open: dict[Any, None] = {}
        """Connections that are being answered, in the order in which they came."""
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle each request in its own thread."""
        oldest = None
        with self._lock:
            self._open[request] = None
            if len(self._open) > _MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
        if oldest is not None:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect early, such as a probe with a time-out."""


def _server_of(host: str) -> type[_Server]:
    everywhere = not host and socket.has_dualstack_ipv6()

    class Server(_Server):
        address_family = socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET

        def server_bind(self) -> None:
            if everywhere:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            super().server_bind()

    return Server


def _handler(paths: Paths) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "kube-rebalancer", ""
        timeout: ClassVar[float] = _TIMEOUT

        def do_GET(self) -> None:  # the name is the library's
            path = self.path.partition("?")[0]
            answer = paths[path]() if path in paths else Answer(404, b"not found\n")
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_HEAD = do_GET  # noqa: N815  # the name is the library's

        def log_message(self, *_: object) -> None:
            """Log no requests: probes come every few seconds."""

    return Handler
