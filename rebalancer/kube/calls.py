"""Calls under way, and how they are ended in time, whatever the other side does.

A socket's time-out counts the silence between two pieces: an answer whose headers or body drip never runs into
it. Deadlines per read would have to be set on sockets deep in http.client and ssl. So there is one mechanism for
all that a connection can be kept waiting in (TLS handshake, request, headers, body): a thread watches the calls
under way, and shuts the socket of one whose time is over or whose run must end. The thread that made the call
then sees a connection that broke.

What has no socket yet (name resolution, connecting, a credential plugin) cannot be ended at all; it runs in a
daemon thread of its own, which is left behind (``rebalancer.base.abandonable``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rebalancer.base.abandonable import CutOffError, run_abandonable
from rebalancer.base.stop import Stop

T = TypeVar("T")

TOO_SLOW = "it answers too slowly"
_POLL_INTERVAL = 0.1
"""Seconds between two looks at the calls under way."""


class Call:
    """One exchange, from before its connection until its answer is read.

    Not sent yet, it ends when the run must end; sent, ``grace`` seconds later. ``ends`` is the time of the
    stop's clock when it ends in any case, and ``late`` what is said then.
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
        """Whether the run must end: another attempt would fail the same way."""
        return self._stop.reason() is not None

    def over(self) -> str | None:
        """Return why the call must end now, or None."""
        if self.cut_off is not None:
            return self.cut_off
        why, now = self._stop.reason(), self._stop.now()
        if why is not None and (not self.sent or now >= (self._stop.since or 0.0) + self._grace):
            return why
        return self._late if now >= self._ends else None

    def at_most(self, seconds: float) -> Call:
        """Return a part of this call that ends with it, and after so many seconds."""
        return Call(self._stop, min(self._ends, self._stop.now() + seconds), late=self._late)

    def run(self, function: Callable[[], T], drop: Callable[[T], None] = lambda _: None) -> T:
        """Return what ``function`` returns, see :func:`run_abandonable`."""
        try:
            return run_abandonable(function, self.over, drop)
        except CutOffError as error:
            self.cut(str(error))
            raise

    def hold(self, connection: socket.socket) -> None:
        """Be able to end what happens on this connection.

        By a duplicate of its descriptor: TLS takes the socket over, and http.client closes it early.

        Raises:
            CutOffError: the call is over.
        """
        with self._lock:
            self._drop()
            self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self.check()

    def check(self) -> None:
        """Do nothing while the call may go on.

        Raises:
            CutOffError: it may not.
        """
        if (why := self.over()) is not None:
            self.cut(why)
            raise CutOffError(why)

    def cut(self, why: str) -> None:
        """End the call, from any thread."""
        with self._lock:
            self.cut_off = self.cut_off or why
            if self._socket is not None:
                # The other side may have closed it already.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Calls:
    """The calls under way, watched by a thread for as long as there are any. Thread-safe."""

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
        """Watch it no longer."""
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
    """Let the connections that this thread uses belong to ``call``."""
    _under_way.call = call
    try:
        yield
    finally:
        _under_way.call = None


class Watched:
    """Mixed into urllib3's connections: hands their sockets to the call that uses them."""

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
        """Send a request, unless its call is over."""
        call: Call = _under_way.call
        if self.sock is None:
            self.connect()  # type: ignore[attr-defined]
        else:
            call.hold(self.sock)
        call.check()
        call.sent = True
        super().request(*positional, **named)  # type: ignore[misc]
