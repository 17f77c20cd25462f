"""The client: paths in, bytes out, with time-outs, repeated attempts and a limit of requests in flight.

What it deletes, it deletes for ``rebalancer.kube.delete`` alone (a test looks).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

from rebalancer import __version__
from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Backoff, Stop
from rebalancer.kube.calls import TOO_SLOW, Call
from rebalancer.kube.credentials import Credentials, find_credentials
from rebalancer.kube.failures import TransportError, refusal
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
"""Seconds after a run's stop for what ends it: pods whose fate is open, the memory, the Lease. The chart's pod has
10 from SIGTERM on, and the report takes some of them."""
_NO_ANSWER = (
    "it has not answered within {:g} s: check that an API server runs at this address, and not only a tunnel or load"
    " balancer in front of it; --request-timeout gives it more time"
)
_POLL_INTERVAL = 0.1
"""Seconds after which a request that waits for its turn looks whether its time is over."""

QueryParams = Mapping[str, str | int]
_Answer = TypeVar("_Answer", Response, Stream)


class Client:
    """Speaks with one API server. Thread-safe.

    Every HTTP answer is returned as a :class:`Response`, whatever its status; an exception means that
    there was none. Reads are repeated after transport errors and the answers 429, 500, 502, 503 and 504;
    writes only where nothing can have happened: the request was never sent, or the answer is 429 and
    ``retry_throttled`` is set.

    Once ``stop`` comes nothing is sent, waits end, and what is under way is cut off; only a write that was sent
    has a second left for its answer.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        limits: Limits | None = None,
        stop: Stop | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.stop = stop or Stop(SystemClock())
        self.server = credentials.server
        self._credentials = credentials
        self._transport = Transport(credentials, self.limits, USER_AGENT)
        self._slots = threading.BoundedSemaphore(self.limits.in_flight)
        self._reached = False
        self._last: Client | None = None

    def beside(self, stop: Stop) -> Client:
        """Return a client of the same server that waits for no request of this one, and goes on until ``stop``."""
        client = Client(self._credentials, limits=self.limits, stop=stop)
        client._reached = self._reached
        return client

    @property
    def last_words(self) -> Client:
        """The client of what is read and written at a run's end: some seconds longer than this one's stop."""
        if self._last is None:
            self._last = self.beside(self.stop.later(LAST_WORDS))
        return self._last

    def monotonic(self) -> float:
        """Return the time of the stop's clock."""
        return self.stop.now()

    def get(
        self,
        path: str,
        *,
        query: QueryParams | None = None,
        accept: str = JSON,
        seconds: float | None = None,
    ) -> Response:
        """Read, within ``seconds`` if given, else within the limits.

        Raises:
            ClusterReadError: no answer in that time.
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
        """Create, as JSON.

        Raises:
            TransportError: no answer; ``sent`` says whether it may have happened.
        """
        return self._call(
            "POST", path, query, body, retry_throttled=retry_throttled, seconds=seconds
        )

    def put(self, path: str, body: bytes, *, seconds: float | None = None) -> Response:
        """Replace, as JSON; guard it by ``metadata.resourceVersion``. Raises as :meth:`post`."""
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
        """Change in part. Raises as :meth:`post`."""
        return self._call("PATCH", path, query, body, content_type=content_type, seconds=seconds)

    def delete(self, path: str, body: bytes, *, seconds: float | None = None) -> Response:
        """Delete, with DeleteOptions as JSON. Raises as :meth:`post`."""
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
        """Open an answer that is read as it comes, until ``stop``; ``silence`` seconds without data break it off.

        One attempt; takes no place among the requests in flight.

        Raises:
            TransportError: no answer.
        """
        return self._transport.open(
            "GET",
            _target(path, query),
            self._begin(stop, stop.deadline),
            headers={"Accept": accept},
            read_seconds=silence,
        )

    def open_list(self, path: str, *, query: QueryParams | None = None, accept: str) -> Stream:
        """Open a long answer that is read as it comes; it takes its place among the requests in flight.

        Throttled (429), it is asked for again when the server said, within the limits; any other answer is
        returned.

        Raises:
            TransportError: no answer.
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
        """Return ``response`` if it is a success.

        Raises:
            ClusterReadError: it is not; the message says what ``rule`` allows, and what to do.
        """
        if response.ok:
            return response
        raise refusal(response.status, response.body, rule, self.server)

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._transport.close()
        if self._last is not None:
            self._last.close()

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
        """Return when a call must end that begins now, after ``seconds`` or by the limits, and what is said then.

        Both change with the first answer of the server, to whichever call.
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
            TransportError: there is no time for it.
        """
        call = Call(stop, deadline, grace, late)
        if (why := call.over()) is not None:
            raise TransportError(
                f"{self.server} was not asked: {why}", sent=False, final=call.stopped
            )
        return call

    def _take_slot(self, deadline: float) -> None:
        """Wait until there may be one more request.

        Raises:
            TransportError: the time is over.
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
        """Repeat a request until its status is no reason to retry or its time is over; return the last answer."""
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
        """Return the seconds to wait before another attempt, ``wait`` or as ``asked``; None if there should be none.

        A server that asks for more patience than there is (a proxy's Retry-After of an hour) is asked once more,
        when a part of it is used up. If it says so again, this run can do nothing.
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
    limits: Limits | None = None,
    stop: Stop | None = None,
) -> Client:
    """Return a client for the cluster that kubectl would talk to, until ``stop``. Nothing is sent yet.

    ``kubeconfig`` and ``context`` are kubectl's flags; without them KUBECONFIG, ``~/.kube/config`` and
    the pod's service account are tried in turn. ``environ`` also names the proxies.

    Raises:
        ClusterReadError: there is no cluster to talk to, or its configuration is wrong; says what to do.
    """
    stop = stop or Stop(SystemClock())
    credentials = find_credentials(
        file=kubeconfig, context=context, environ=environ, call=Call(stop, math.inf)
    )
    return Client(credentials, limits=limits, stop=stop)


def _never(_: TransportError) -> bool:
    return False


def _target(path: str, query: QueryParams | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path
