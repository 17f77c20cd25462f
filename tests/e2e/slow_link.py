"""A slow line to the API server: bytes pass through a loopback port, so many a second."""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self

_PIECE = 1 << 16


class SlowLink:
    """Passes connections on to ``port``; what comes back comes slowly. A context manager."""

    def __init__(self, port: int, bytes_per_second: float) -> None:
        self._target, self._rate = port, bytes_per_second
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        """Where it listens."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Its connections end with the processes on both sides.
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                # Small: what waits in buffers has left the server, which would see no slow line.
                server = socket.socket()
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PIECE)
                server.connect(("127.0.0.1", self._target))
                for source, sink, rate in ((client, server, None), (server, client, self._rate)):
                    threading.Thread(
                        target=_pass_on, args=(source, sink, rate), daemon=True
                    ).start()


def _pass_on(source: socket.socket, sink: socket.socket, rate: float | None) -> None:
    """Copy until one side ends, then end the other."""
    with contextlib.suppress(OSError), source, sink:
        while piece := source.recv(_PIECE):
            sink.sendall(piece)
            if rate is not None:
                time.sleep(len(piece) / rate)
        sink.shutdown(socket.SHUT_WR)
