"""HTTP/1.1 on a socket, as far as one API server and one client of it use it."""

import contextlib
import select
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

_PIECE = 1 << 16
_LONGEST_HEAD = 1 << 17


class ClosedError(ConnectionError):
    """The other side has closed the connection."""


@dataclass
class Head:
    """First line and headers of a request or an answer."""

    first: str
    headers: list[tuple[str, str]]

    def get(self, name: str) -> str:
        """Return a header's value, empty if there is none."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    def set(self, name: str, value: str) -> None:
        """Replace or add a header."""
        self.headers = [(k, v) for k, v in self.headers if k.lower() != name.lower()]
        self.headers.append((name, value))

    @property
    def status(self) -> int:
        """Of an answer."""
        return int(self.first.split(" ", 2)[1])

    @property
    def chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return "chunked" in self.get("transfer-encoding").lower()

    @property
    def length(self) -> int:
        """Bytes of the body, as announced."""
        return int(self.get("content-length") or 0)

    def encode(self) -> bytes:
        """Return it as it is sent."""
        lines = [self.first, *(f"{key}: {value}" for key, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")


class Wire:
    """One connection, read with a buffer; for one thread."""

    def __init__(self, sock: ssl.SSLSocket | socket.socket) -> None:
        self.sock = sock
        self._buffer = b""

    def head(self) -> Head:
        """Read a head."""
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > _LONGEST_HEAD:
                raise ClosedError("the head has no end")
            self._fill()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return Head(first, [(key, value.strip()) for key, _, value in pairs])

    def body(self, head: Head) -> Iterator[bytes]:
        """Yield the body in pieces, without the marks of chunks."""
        if head.chunked:
            while size := int(self._line().split(b";")[0], 16):
                yield self._exactly(size)
                self._line()
            while self._line():
                pass  # trailers
            return
        left = head.length
        while left:
            if not self._buffer:
                self._fill()
            piece, self._buffer = self._buffer[:left], self._buffer[left:]
            left -= len(piece)
            yield piece

    def send(self, data: bytes) -> None:
        """Send all of it."""
        self.sock.sendall(data)

    def gone(self, seconds: float) -> bool:
        """Wait so long, or until the other side closes or says something, which it must not now."""
        readable, _, _ = select.select([self.sock], [], [], max(0.0, seconds))
        return bool(readable)

    def close(self) -> None:
        """End the connection at once, in both directions."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _fill(self) -> None:
        data = self.sock.recv(_PIECE)
        if not data:
            raise ClosedError("closed")
        self._buffer += data
