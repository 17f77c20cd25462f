"""A slow line to the API server: bytes pass through a loopback port, so many a second."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

_PIECE = 1 << 16


@contextlib.contextmanager
def slow_link(port: int, bytes_per_second: float) -> Iterator[int]:
    """Pass connections on to ``port``; what comes back comes slowly. Yields the port where it listens."""
    # Its connections end with the processes on both sides.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        args = (listener, port, bytes_per_second)
        threading.Thread(target=_accept, args=args, daemon=True).start()
        yield listener.getsockname()[1]


def _accept(listener: socket.socket, target: int, bytes_per_second: float) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            # Small: what waits in buffers has left the server, which would see no slow line.
            server = socket.socket()
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PIECE)
            server.connect(("127.0.0.1", target))
            for source, sink, rate in ((client, server, None), (server, client, bytes_per_second)):
                threading.Thread(target=_pass_on, args=(source, sink, rate), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket, rate: float | None) -> None:
    """Copy until one side ends, then end the other."""
    with contextlib.suppress(OSError), source, sink:
        while piece := source.recv(_PIECE):
            sink.sendall(piece)
            if rate is not None:
                time.sleep(len(piece) / rate)
        sink.shutdown(socket.SHUT_WR)
