"""A server of the standard library that answers while a test needs it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer

_POLL_INTERVAL = 0.02
"""Seconds after which it sees that it is to end; the library's own are half a second, which each test would wait."""


@contextmanager
def serving(server: HTTPServer) -> Iterator[str]:
    """Let a server answer in a thread of its own; yield its address."""
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_INTERVAL,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
