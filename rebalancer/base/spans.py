"""The spans of a run: its parts and its requests to the API server, with their times.

What is off is :data:`NO_SPANS`. A :class:`SpanRecorder` keeps plain records; ``rebalancer.report.traces`` sends them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

Value = str | int | float | bool
"""Of an attribute."""

MAX_SPANS = 4_000
"""Spans of one run; further requests are counted only, so that a trace stays below 2 MB."""


@dataclass(slots=True)
class SpanRecord:
    """A part of a run, or a request."""

    name: str
    number: int
    """Its identity within the run, 8 bytes."""
    parent: int | None
    """The number of the span that it is in; None: it is the run."""
    start: int
    """Unix time in nanoseconds."""
    end: int | None = None
    is_request: bool = False
    attributes: dict[str, Value] = field(default_factory=dict)
    error: str | None = None


class OpenRequest(Protocol):
    """A request that is under way."""

    def end(self, status: int | None, error: str | None = None) -> None:
        """Note the status of the response, or why there was none."""


class Spans:
    """Hears of each part of a run and of each request. This one keeps nothing."""

    def part(
        self,
        name: str,  # noqa: ARG002  # an interface
        **attributes: Value,
    ) -> AbstractContextManager[dict[str, Value]]:
        """Enter a part of the run; yield its attributes, to which its results may be added."""
        return nullcontext(attributes)

    def request(self, method: str, path: str) -> OpenRequest:  # noqa: ARG002  # an interface
        """Note that a request begins; its result is noted later, from any thread."""
        return _UNHEARD


class _Unheard:
    def end(self, status: int | None, error: str | None = None) -> None:
        """Keep nothing."""


_UNHEARD = _Unheard()
NO_SPANS = Spans()


class SpanRecorder(Spans):
    """Keeps the spans of one run. Thread-safe."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        unix: Callable[[], float],
        random: Callable[[int], bytes],
    ) -> None:
        """``now``: monotonic seconds; ``unix``: the time of day; ``random(n)``: n random bytes."""
        self.trace = random(16)
        self.spans: list[SpanRecord] = []
        self.left_out = 0
        """Requests beyond :data:`MAX_SPANS`."""
        self._now, self._random = now, random
        self._began_at, self._began = unix(), now()
        self._within: list[SpanRecord] = []
        self._lock = threading.Lock()

    @contextmanager
    def part(self, name: str, **attributes: Value) -> Iterator[dict[str, Value]]:
        """Enter a part of the run; yield its attributes, to which its results may be added."""
        with self._lock:
            span = self._begin(name, attributes)
            self.spans.append(span)
            self._within.append(span)
        try:
            yield span.attributes
        except BaseException as error:
            span.error = str(error) or type(error).__name__
            raise
        finally:
            with self._lock:
                span.end = self._time()
                self._within.remove(span)

    def request(self, method: str, path: str) -> OpenRequest:
        """Note that a request begins, in the innermost part that is under way."""
        route = route_of(path)
        named = {"http.request.method": method, "url.template": route, "url.path": path}
        with self._lock:
            span = self._begin(f"{method} {route}", named)
            span.is_request = True
            if len(self.spans) < MAX_SPANS:
                self.spans.append(span)
            else:
                self.left_out += 1
        return _Recorded(span, self._time)

    def _begin(self, name: str, attributes: Mapping[str, Value]) -> SpanRecord:
        parent = self._within[-1].number if self._within else None
        number = int.from_bytes(self._random(8), "big") or 1
        return SpanRecord(name, number, parent, self._time(), attributes=dict(attributes))

    def _time(self) -> int:
        # From one reading of the time of day on: a clock that is set meanwhile would turn spans around.
        return int((self._began_at + (self._now() - self._began)) * 1e9)


class _Recorded:
    def __init__(self, span: SpanRecord, time: Callable[[], int]) -> None:
        self._span, self._time = span, time

    def end(self, status: int | None, error: str | None = None) -> None:
        """Note the status of the response, or why there was none."""
        span = self._span
        span.end = self._time()
        if status is not None:
            span.attributes["http.response.status_code"] = status
            error = str(status) if status >= 400 else error
        span.error = error


def route_of(path: str) -> str:
    """Return the path of a request with placeholders for names, as the API server's own description has them."""
    parts = path.strip("/").split("/")
    root = 2 if parts[0] == "api" else 3
    if parts[0] not in {"api", "apis"} or len(parts) <= root:
        return path
    rest = parts[root:]
    known = parts[:root]
    if rest[0] == "namespaces" and len(rest) > 2:
        known += ["namespaces", "{namespace}"]
        rest = rest[2:]
    if len(rest) > 1:
        rest[1] = "{name}"
    return "/" + "/".join([*known, *rest])
