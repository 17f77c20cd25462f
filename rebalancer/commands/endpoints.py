"""What ``serve`` answers over HTTP: whether it is well, its metrics and, if that is switched on, its last report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from rebalancer.base.errors import PolicyError

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
_SLOWEST = 10.0
"""Seconds for a client to send its request and to take the answer."""
_MOST_AT_ONCE = 16


class Answer(NamedTuple):
    """What a path answers."""

    status: int
    body: bytes
    content_type: str = TEXT


Paths = Mapping[str, Callable[[], Answer]]


def parse_address(text: str) -> tuple[str, int]:
    """Return ``HOST:PORT`` as a pair; without a host, all addresses.

    Raises:
        ValueError: it is something else.
    """
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        port = None
    if port is None or parts.username or parts.path or parts.query or parts.fragment:
        raise ValueError(f"{text!r} is no address; write HOST:PORT, or :PORT for all addresses")
    return parts.hostname or "", port


@contextmanager
def answering(address: tuple[str, int], paths: Paths) -> Iterator[int]:
    """Answer GET for these paths and 404 for all others; yield the port.

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


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.BoundedSemaphore(_MOST_AT_ONCE)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; a crowd of slow clients is sent away, not waited for."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that leave early: a probe's time-out is no event of ours."""


def _server_of(host: str) -> type[_Server]:
    import socket  # noqa: PLC0415

    class Server(_Server):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    return Server


def _handler(paths: Paths) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "kube-rebalancer", ""
        timeout: ClassVar[float] = _SLOWEST

        def do_GET(self) -> None:  # the name is the library's
            path = urlsplit(self.path).path
            answer = paths[path]() if path in paths else Answer(404, b"not found\n")
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """Log no requests: probes come every few seconds."""

    return Handler
