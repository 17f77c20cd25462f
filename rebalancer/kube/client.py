"""The client: paths in, bytes out, with time-outs, repeated attempts and a limit of requests in flight.

It has no way to delete anything, since nothing here ever does.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

from rebalancer import __version__
from rebalancer.kube.credentials import Credentials, find_credentials
from rebalancer.kube.failures import TransportError, refusal
from rebalancer.kube.resources import Rule
from rebalancer.kube.transport import Limits, Response, Stream, Transport

JSON = "application/json"
USER_AGENT = f"kube-rebalancer/{__version__}"

_READ_AGAIN = frozenset({429, 500, 502, 503, 504})
"""Answers to a read after which it is worth trying again."""
_THROTTLED = frozenset({429})
"""By the server's priority and fairness; nothing was done."""

_FIRST_CONTACT_ATTEMPTS = 3
"""A server that has never answered is more likely misspelt than restarting."""

Query = Mapping[str, str | int]
_Answer = TypeVar("_Answer", Response, Stream)


class Client:
    """Speaks with one API server. Thread-safe.

    Every HTTP answer is returned as a :class:`Response`, whatever its status; an exception means that
    there was none. Reads are repeated after transport errors and the answers 429, 500, 502, 503 and 504;
    writes only where nothing can have happened: the request was never sent, or the answer is 429 and
    ``retry_throttled`` is set.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        limits: Limits | None = None,
        seconds: float = math.inf,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """After ``seconds`` no request is under way any more, and none is made, whatever the limits say."""
        self.limits = limits or Limits()
        self.monotonic = monotonic
        self.sleep = sleep
        self.server = credentials.server
        self._credentials = credentials
        self._transport = Transport(credentials, self.limits, USER_AGENT)
        self._slots = threading.BoundedSemaphore(self.limits.in_flight)
        self._reached = False
        self._ends = monotonic() + seconds

    def deadline(self, seconds: float | None = None) -> float:
        """Return the monotonic time until which a call may last that begins now: ``seconds``, or the limit."""
        wanted = self.limits.deadline if seconds is None else seconds
        return min(self.monotonic() + wanted, self._ends)

    def get(
        self,
        path: str,
        *,
        query: Query | None = None,
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
        query: Query | None = None,
        retry_throttled: bool = True,
    ) -> Response:
        """Create, as JSON.

        Raises:
            TransportError: no answer; ``sent`` tells whether it may have happened.
        """
        return self._call("POST", path, query, body, retry_throttled=retry_throttled)

    def put(self, path: str, body: bytes, *, seconds: float | None = None) -> Response:
        """Replace, as JSON; guard it by ``metadata.resourceVersion``. Raises as :meth:`post`."""
        return self._call("PUT", path, None, body, seconds=seconds)

    def patch(
        self,
        path: str,
        body: bytes,
        *,
        query: Query | None = None,
        content_type: str = "application/merge-patch+json",
    ) -> Response:
        """Change in part. Raises as :meth:`post`."""
        return self._call("PATCH", path, query, body, content_type=content_type)

    def stream(
        self, path: str, *, query: Query | None = None, accept: str = JSON, silence: float
    ) -> Stream:
        """Open an answer that is read as it comes; ``silence`` seconds without data break it off.

        One attempt; takes no place among the requests in flight.

        Raises:
            TransportError: no answer.
        """
        left = self._must_be_left(self._ends)
        return self._transport.open(
            "GET", _target(path, query), headers={"Accept": accept}, read_seconds=min(silence, left)
        )

    def open_list(self, path: str, *, query: Query | None = None, accept: str) -> Stream:
        """Open a long answer that is read as it comes; it takes its place among the requests in flight.

        Throttled (429), it is asked for again when the server said, within the limits; any other answer is
        returned.

        Raises:
            TransportError: no answer.
        """
        headers = {"Accept": accept, **self._encoding()}
        target = _target(path, query)

        def ask() -> Stream:
            self._slots.acquire()
            try:
                stream = self._transport.open(
                    "GET",
                    target,
                    headers=headers,
                    read_seconds=min(self.limits.read, self._must_be_left(self._ends)),
                )
            except BaseException:
                self._slots.release()
                raise
            stream.at_end = self._slots.release
            return stream

        return self._repeated(ask, self.deadline(), again=_THROTTLED, repeat_error=_never)

    def expect(self, response: Response, rule: Rule) -> Response:
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

    # -- attempts ----------------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        path: str,
        query: Query | None,
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
        deadline = self.deadline(seconds)
        self._must_be_left(self._ends)
        return self._repeated(
            lambda: self._once(method, _target(path, query), body, headers, deadline),
            deadline,
            again=_READ_AGAIN if reads else _THROTTLED if retry_throttled else frozenset(),
            repeat_error=lambda error: not error.final and (reads or not error.sent),
        )

    def _encoding(self) -> dict[str, str]:
        return {"Accept-Encoding": "gzip"} if self.limits.compressed else {}

    def _repeated(
        self,
        ask: Callable[[], _Answer],
        deadline: float,
        *,
        again: Container[int],
        repeat_error: Callable[[TransportError], bool],
    ) -> _Answer:
        """Return an answer whose status is not one to ask ``again`` after, or the last one in time."""
        renewed = False
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = ask()
            except TransportError as error:
                wait = self._wait_after(attempt, None, deadline)
                if wait is None or not repeat_error(error):
                    raise
            else:
                self._reached = True
                if answer.status == 401 and not renewed:
                    renewed = True
                    if self._credentials.renew():
                        answer.close()
                        continue
                if answer.status not in again:
                    return answer
                wait = self._wait_after(attempt, answer.retry_after, deadline)
                if wait is None:
                    return answer
                answer.close()
            self.sleep(wait)

    def _must_be_left(self, until: float) -> float:
        """Return the seconds until then.

        Raises:
            TransportError: there are none.
        """
        left = until - self.monotonic()
        if left <= 0:
            raise TransportError(
                f"no time is left to ask {self.server} for anything", sent=False, final=True
            )
        return left

    def _once(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        deadline: float,
    ) -> Response:
        with self._slots:
            return self._transport.exchange(
                method,
                target,
                body=body,
                headers=headers,
                left=lambda: deadline - self.monotonic(),
            )

    def _wait_after(self, attempt: int, asked: float | None, deadline: float) -> float | None:
        """Return the seconds to wait before another attempt, None if there should be none."""
        attempts = self.limits.attempts
        if not self._reached:
            attempts = min(attempts, _FIRST_CONTACT_ATTEMPTS)
        if attempt >= attempts:
            return None
        wait = min(self.limits.first_wait * 2.0 ** (attempt - 1), self.limits.longest_wait)
        wait = max(wait, asked or 0.0)
        return wait if self.monotonic() + wait < deadline else None


def connect(
    *,
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    environ: Mapping[str, str],
    limits: Limits | None = None,
    seconds: float = math.inf,
) -> Client:
    """Return a client for the cluster that kubectl would talk to, for so many seconds. Nothing is sent yet.

    ``kubeconfig`` and ``context`` are kubectl's flags; without them KUBECONFIG, ``~/.kube/config`` and
    the pod's service account are tried in turn. ``environ`` also names the proxies.

    Raises:
        ClusterReadError: there is no cluster to talk to, or its configuration is wrong; says what to do.
    """
    credentials = find_credentials(file=kubeconfig, context=context, environ=environ)
    return Client(credentials, limits=limits, seconds=seconds)


def _never(_: TransportError) -> bool:
    return False


def _target(path: str, query: Query | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path
