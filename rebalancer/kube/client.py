"""The HTTP client: paths in, bytes out, with time-outs, retries and a limit of concurrent requests.

Only ``rebalancer.machines.interruption.steps.pods`` uses its method ``delete`` (a test checks that).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from rebalancer import __version__
from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Backoff, Stop
from rebalancer.kube.calls import TOO_SLOW, Call
from rebalancer.kube.credentials import Credentials, find_credentials
from rebalancer.kube.failures import TransportError, refusal
from rebalancer.kube.impersonation import AS_OURSELVES, Impersonation
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Limits, Response, Stream, Transport

JSON = "application/json"
USER_AGENT = f"kube-rebalancer/{__version__}"

_READ_AGAIN = frozenset({429, 500, 502, 503, 504})
"""Answers to a read after which it is worth trying again."""
_THROTTLED = frozenset({429})
"""By the server's priority and fairness; nothing was done."""

_FIRST_CONTACT_ATTEMPTS = 3
"""A server that has never answered is more likely misspelt than restarting."""
LAST_WORDS = 6.0
"""Seconds after a run's stop for its last requests: for pods whose outcome is open, the memory, the Lease. The chart's pod has
10 from SIGTERM on, and the report uses some of them."""
FINISHING = 2.0
"""Seconds after a run's stop for the remaining evictions of a gang. A responsive API server handles hundreds in that time,
and the run's last requests have the rest of LAST_WORDS."""
_NO_ANSWER = (
    "it has not answered within {:g} s: check that an API server runs at this address, and not only a tunnel or load"
    " balancer in front of it; --request-timeout gives it more time"
)
_POLL_INTERVAL = 0.1
"""Seconds after which a request that waits for its turn looks whether its time is over."""

QueryParams = Mapping[str, str | int]
_Answer = TypeVar("_Answer", Response, Stream)


class Client:
    """A client of one API server. Thread-safe.

    Every HTTP response is returned as a :class:`Response`, whatever its status; an exception means that there was
    none. Reads are retried after transport errors and the statuses 429, 500, 502, 503 and 504; writes only if they
    certainly had no effect: the request was never sent, or the status is 429 and ``retry_throttled`` is set.

    After ``stop`` nothing is sent, waits end, and calls in progress are aborted; only a write that was sent gets one
    more second for its response.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        limits: Limits | None = None,
        stop: Stop | None = None,
        transport: Transport | None = None,
    ) -> None:
        """``transport``: the connections of another client, see :meth:`until`; None: connections of its own."""
        self.limits = limits or Limits()
        self.stop = stop or Stop(SystemClock())
        self.server, self.namespace = credentials.server, credentials.namespace
        self.impersonated = credentials.impersonated
        self._credentials = credentials
        self._transport = transport or Transport(credentials, self.limits, USER_AGENT)
        self._slots = threading.BoundedSemaphore(self.limits.in_flight)
        self._reached = False
        self._last: Client | None = None
        self._finishing: Client | None = None

    def beside(self, stop: Stop) -> Client:
        """Return a client of the same server with its own connections and limits, which works until ``stop``."""
        client = Client(self._credentials, limits=self.limits, stop=stop)
        client._reached = self._reached
        return client

    def until(self, stop: Stop) -> Client:
        """Return this client with another stop: same credentials, connections and limit of concurrent requests.

        A part of a long command ends by its own stop, and connects no more than once.
        """
        # Its threads decode what modules import that were not there when this client was made.
        prepare_structs()
        client = Client(
            self._credentials,
            limits=self.limits,
            stop=stop,
            transport=self._transport,
        )
        client._reached, client._slots = self._reached, self._slots
        return client

    @property
    def last_words(self) -> Client:
        """The client for the last reads and writes of a run: it works some seconds longer than this one."""
        if self._last is None:
            self._last = self.beside(self.stop.later(LAST_WORDS))
        return self._last

    @property
    def finishing(self) -> Client:
        """The client for work that is useless when half done: it works for FINISHING seconds longer than this one.

        It ends at once if nothing may be written any more, see :meth:`Stop.finishing`.
        """
        if self._finishing is None:
            self._finishing = self.beside(self.stop.finishing(FINISHING))
        return self._finishing

    def monotonic(self) -> float:
        """Return the time of the stop's clock in seconds."""
        return self.stop.now()

    def get(
        self,
        path: str,
        *,
        query: QueryParams | None = None,
        accept: str = JSON,
        seconds: float | None = None,
    ) -> Response:
        """Read an object or list, within ``seconds`` if given, else within the limits.

        Raises:
            ClusterReadError: no response in that time.
        """
        return self._call("GET", path, query, None, accept=accept, seconds=seconds)

    def post(
        self,
        path: str,
        body: bytes,
        *,
        query: QueryParams | None = None,
        retry_throttled: bool = True,
        seconds: float | None = None,
    ) -> Response:
        """Create an object from JSON.

        Raises:
            TransportError: no response; ``sent`` says whether the request may have been executed.
        """
        return self._call(
            "POST", path, query, body, retry_throttled=retry_throttled, seconds=seconds
        )

    def put(self, path: str, body: bytes, *, seconds: float | None = None) -> Response:
        """Replace an object by JSON; guard the write by ``metadata.resourceVersion``. Raises as :meth:`post`."""
        return self._call("PUT", path, None, body, seconds=seconds)

    def patch(
        self,
        path: str,
        body: bytes,
        *,
        query: QueryParams | None = None,
        content_type: str = "application/merge-patch+json",
        seconds: float | None = None,
    ) -> Response:
        """Change a part of an object. Raises as :meth:`post`."""
        return self._call("PATCH", path, query, body, content_type=content_type, seconds=seconds)

    def delete(self, path: str, body: bytes, *, seconds: float | None = None) -> Response:
        """Delete an object, with DeleteOptions in JSON. Raises as :meth:`post`."""
        return self._call("DELETE", path, None, body, seconds=seconds)

    def stream(
        self,
        path: str,
        *,
        query: QueryParams | None = None,
        accept: str = JSON,
        silence: float,
        stop: Stop,
    ) -> Stream:
        """Open a response that is read while it arrives, until ``stop``; ``silence``: seconds without data that end it.

        There is one attempt, and another one where credentials were refused and could be renewed. It does not count as
        a concurrent request.

        Raises:
            TransportError: no response.
        """

        def ask() -> Stream:
            return self._transport.open(
                "GET",
                _target(path, query),
                self._begin(stop, stop.deadline),
                headers={"Accept": accept},
                read_seconds=silence,
            )

        return self._repeat(ask, lambda: stop.deadline, again=frozenset(), repeat_error=_never)

    def open_list(self, path: str, *, query: QueryParams | None = None, accept: str) -> Stream:
        """Open a long response that is read while it arrives; it counts as a concurrent request.

        After a 429 it is requested again, at the time that the server gives and within the limits; any other response
        is returned.

        Raises:
            TransportError: no response.
        """
        headers = {"Accept": accept, **self._encoding()}
        target = _target(path, query)
        deadline = self.monotonic() + self.limits.deadline

        def ask() -> Stream:
            self._take_slot(deadline)
            try:
                stream = self._transport.open(
                    "GET",
                    target,
                    self._begin(self.stop, deadline),
                    headers=headers,
                    read_seconds=self.limits.read,
                )
            except BaseException:
                self._slots.release()
                raise
            stream.at_end = self._slots.release
            return stream

        return self._repeat(ask, lambda: deadline, again=_THROTTLED, repeat_error=_never)

    def expect(self, response: Response, rule: AccessRule) -> Response:
        """Return ``response`` if its status is a success.

        Raises:
            ClusterReadError: it is not; the message names the right in ``rule``, and what to do.
        """
        if response.ok:
            return response
        raise refusal(response.status, response.body, rule, self.server)

    def close(self) -> None:
        """Close all unused connections."""
        self._transport.close()
        for other in (self._last, self._finishing):
            if other is not None:
                other.close()

    # -- attempts ----------------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        path: str,
        query: QueryParams | None,
        body: bytes | None,
        *,
        accept: str = JSON,
        content_type: str = JSON,
        retry_throttled: bool = True,
        seconds: float | None = None,
    ) -> Response:
        headers = {"Accept": accept} | ({"Content-Type": content_type} if body is not None else {})
        reads = method == "GET"
        if reads:
            headers |= self._encoding()
        ends, late = self._time(seconds)

        def ask() -> Response:
            self._take_slot(ends())
            try:
                return self._transport.exchange(
                    method,
                    _target(path, query),
                    self._begin(self.stop, ends(), 0.0 if reads else self.limits.grace, late()),
                    body=body,
                    headers=headers,
                    read_seconds=self.limits.read,
                )
            finally:
                self._slots.release()

        return self._repeat(
            ask,
            ends,
            again=_READ_AGAIN if reads else _THROTTLED if retry_throttled else frozenset(),
            repeat_error=lambda error: not error.final and (reads or not error.sent),
        )

    def _time(self, seconds: float | None) -> tuple[Callable[[], float], Callable[[], str]]:
        """Return functions for the end of a call that starts now, and for the message if it is too late.

        The limit is ``seconds``, or the client's limits. Both change with the first response of the server, to any
        call.
        """
        begun, first = self.monotonic(), self.limits.first_answer
        whole = self.limits.deadline if seconds is None else seconds

        def is_first() -> bool:
            return not self._reached and first <= whole

        return (
            lambda: begun + (first if is_first() else whole),
            lambda: _NO_ANSWER.format(first) if is_first() else TOO_SLOW,
        )

    def _begin(self, stop: Stop, deadline: float, grace: float = 0.0, late: str = TOO_SLOW) -> Call:
        """Return a new call.

        Raises:
            TransportError: no time is left for it.
        """
        call = Call(stop, deadline, grace, late)
        if (why := call.over()) is not None:
            raise TransportError(
                f"{self.server} was not asked: {why}", sent=False, final=call.stopped
            )
        return call

    def _take_slot(self, deadline: float) -> None:
        """Wait until another concurrent request is allowed.

        Raises:
            TransportError: no time is left.
        """
        while not self._slots.acquire(timeout=_POLL_INTERVAL):
            self._begin(self.stop, deadline)

    def _encoding(self) -> dict[str, str]:
        return {"Accept-Encoding": "gzip"} if self.limits.compressed else {}

    def _repeat(
        self,
        ask: Callable[[], _Answer],
        ends: Callable[[], float],
        *,
        again: Container[int],
        repeat_error: Callable[[TransportError], bool],
    ) -> _Answer:
        """Repeat a request until its status needs no retry or its time is over; return the last response."""
        renewed = False
        attempt, backoff = 0, Backoff(self.limits.first_wait, self.limits.longest_wait)
        while True:
            attempt += 1
            try:
                answer = ask()
            except TransportError as error:
                wait = self._wait_after(attempt, backoff.take(), None, ends())
                if wait is None or not repeat_error(error):
                    raise
            else:
                self._reached = True
                if answer.status == 401 and not renewed:
                    renewed = True
                    if self._credentials.renew(self._begin(self.stop, ends())):
                        answer.close()
                        continue
                if answer.status not in again:
                    return answer
                wait = self._wait_after(attempt, backoff.take(), answer.retry_after, ends())
                if wait is None:
                    return answer
                answer.close()
            # Should the stop come meanwhile, the next attempt says so.
            self.stop.wait(wait)

    def _wait_after(
        self, attempt: int, wait: float, asked: float | None, deadline: float
    ) -> float | None:
        """Return the seconds until the next attempt, ``wait`` or as ``asked``; None for no further attempt.

        If the server requests more time than is left (a proxy's Retry-After of an hour), one more attempt is made
        after a part of it. If the answer is the same, the run gives up.
        """
        attempts = self.limits.attempts
        if not self._reached:
            attempts = min(attempts, _FIRST_CONTACT_ATTEMPTS)
        left = deadline - self.monotonic()
        if attempt >= attempts or wait >= left:
            return None
        if asked is None:
            return wait
        longest = self.limits.longest_wait
        if asked > longest and attempt > 1:
            return None
        left = min(left, self.stop.deadline - self.monotonic())
        return max(wait, asked if asked < min(longest, left) else min(longest, left / 2))


def connect(
    *,
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    environ: Mapping[str, str],
    impersonate: Impersonation = AS_OURSELVES,
    limits: Limits | None = None,
    stop: Stop | None = None,
) -> Client:
    """Return a client for the cluster that kubectl would use, until ``stop``. Nothing is sent yet.

    ``kubeconfig``, ``context`` and ``impersonate`` are kubectl's flags; without them KUBECONFIG, ``~/.kube/config`` and the pod's
    service account are tried in turn. ``environ`` also names the proxies.

    Raises:
        ClusterReadError: no cluster is configured, or its configuration is invalid; the message has the remedy.
    """
    stop = stop or Stop(SystemClock())
    credentials = find_credentials(
        file=kubeconfig,
        context=context,
        environ=environ,
        call=Call(stop, math.inf),
        impersonate=impersonate,
    )
    # Threads decode the answers.
    prepare_structs()
    return Client(credentials, limits=limits, stop=stop)


def _never(_: TransportError) -> bool:
    return False


def _target(path: str, query: QueryParams | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def prepare_structs() -> None:
    """Build the decoder of each Struct that is imported now, before threads decode with it.

    msgspec builds it when a Struct is decoded for the first time. If two threads do that at the same moment, the second
    one reads an unfinished decoder, and the process ends with a segmentation fault (msgspec 0.22.0). Takes some
    milliseconds; a second call takes no time.
    """
    for struct in _subclasses(msgspec.Struct):
        _prepare(struct)


@cache
def _prepare(struct: type[msgspec.Struct]) -> None:
    # One that cannot be decoded is not decoded by threads either.
    with suppress(TypeError, NameError):
        msgspec.json.Decoder(struct)


def _subclasses(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in struct.__subclasses__():
        yield each
        yield from _subclasses(each)
