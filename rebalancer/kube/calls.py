"""API calls in progress, each of which can be ended in time, even if the server does not answer.

A socket's time-out limits the silence between two pieces, so an answer that drips slowly never reaches it. Deadlines
per read would have to be set on sockets deep in http.client and ssl. So one mechanism covers all phases of a
connection (TLS handshake, request, headers, body): a thread watches the calls in progress, and shuts down the socket
of a call whose time is over or whose run must end. The calling thread then sees a broken connection.

Phases without a socket (name resolution, connecting, a credential plugin) cannot be ended; they run in a daemon
thread, which is abandoned (``rebalancer.base.stop``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rebalancer.base.stop import CutOffError, Stop, run_abandonable

T = TypeVar("T")

TOO_SLOW = "it answers too slowly"
_POLL_INTERVAL = 0.1
"""Seconds between two looks at the calls under way."""


class Call:
    """One request and its response, from connecting until the response is read.

    Before the request is sent, the call ends when the run must end; afterwards ``grace`` seconds later. ``ends`` is
    the latest end (time of the stop's clock), and ``late`` the message for that case.
    """

    def __init__(self, stop: Stop, ends: float, grace: float = 0.0, late: str = TOO_SLOW) -> None:
        self.sent = False
        """Whether the server may have seen the request."""
        self.cut_off: str | None = None
        """Why it was ended from our side, if it was."""
        self._stop, self._ends, self._grace, self._late = stop, ends, grace, late
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    @property
    def stopped(self) -> bool:
        """Whether the run must end, so that another attempt would fail the same way."""
        return self._stop.reason() is not None

    def over(self) -> str | None:
        """Return why the call must end now; None if it may continue."""
        if self.cut_off is not None:
            return self.cut_off
        why, now = self._stop.reason(), self._stop.now()
        if why is not None and (not self.sent or now >= (self._stop.since or 0.0) + self._grace):
            return why
        return self._late if now >= self._ends else None

    def at_most(self, seconds: float) -> Call:
        """Return a sub-call that ends with this call, or after ``seconds``."""
        return Call(self._stop, min(self._ends, self._stop.now() + seconds), late=self._late)

    def run(self, function: Callable[[], T], drop: Callable[[T], None] = lambda _: None) -> T:
        """Return the result of ``function``, see :func:`run_abandonable`."""
        try:
            return run_abandonable(function, self.over, drop)
        except CutOffError as error:
            self.cut(str(error))
            raise

    def hold(self, connection: socket.socket) -> None:
        """Register the connection's socket, so that the call can shut it down.

        The descriptor is duplicated: TLS replaces the socket, and http.client closes it early.

        Raises:
            CutOffError: the call is over.
        """
        with self._lock:
            self._drop()
            self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self.check()

    def check(self) -> None:
        """Raise if the call is over.

        Raises:
            CutOffError: the call is over.
        """
        if (why := self.over()) is not None:
            self.cut(why)
            raise CutOffError(why)

    def cut(self, why: str) -> None:
        """End the call; any thread may do so. ``why`` is the message."""
        with self._lock:
            self.cut_off = self.cut_off or why
            if self._socket is not None:
                # The other side may have closed it already.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Release the connection."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Calls:
    """The calls in progress, watched by a thread while there are any. Thread-safe."""

    def __init__(self) -> None:
        self._calls: set[Call] = set()
        self._lock = threading.Lock()
        self._watched = False

    def begin(self, call: Call) -> None:
        """Watch a call until :meth:`end`."""
        with self._lock:
            self._calls.add(call)
            if not self._watched:
                self._watched = True
                threading.Thread(target=self._watch, name="calls", daemon=True).start()

    def end(self, call: Call) -> None:
        """Stop watching a call."""
        with self._lock:
            self._calls.discard(call)
        call.end()

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(_POLL_INTERVAL):
            with self._lock:
                calls = tuple(self._calls)
                self._watched = bool(calls)
            if not calls:
                return
            for call in calls:
                if (why := call.over()) is not None:
                    call.cut(why)


_under_way = threading.local()


@contextlib.contextmanager
def making(call: Call) -> Iterator[None]:
    """Assign the connections that this thread uses in the ``with`` block to ``call``."""
    _under_way.call = call
    try:
        yield
    finally:
        _under_way.call = None


class Watched:
    """A mixin for urllib3's connections that registers their sockets with the current call."""

    sock: Any

    def _new_conn(self) -> socket.socket:
        call: Call = _under_way.call
        connect: Callable[[], socket.socket] = super()._new_conn  # type: ignore[misc]
        connection = call.run(connect, socket.socket.close)
        try:
            call.hold(connection)
        except CutOffError:
            connection.close()
            raise
        return connection

    def request(self, *positional: Any, **named: Any) -> None:
        """Send a request, unless the call is over."""
        call: Call = _under_way.call
        if self.sock is None:
            self.connect()  # type: ignore[attr-defined]
        else:
            call.hold(self.sock)
        call.check()
        call.sent = True
        super().request(*positional, **named)  # type: ignore[misc]
