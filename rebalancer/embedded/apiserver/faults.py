"""Faults on demand: the N-th matching request is refused, delayed, or its connection dropped."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field

import msgspec

from rebalancer.embedded.apiserver.api import Answer, Request


@dataclass
class Fault:
    """What goes wrong, and with which requests."""

    method: str = ".*"
    """Regular expression that the whole method matches."""
    path: str = ".*"
    """Regular expression that is found in the path (without the query)."""
    skip: int = 0
    """So many matching requests are let through first."""
    times: int = 1
    """So many are hit then."""
    delay: float = 0.0
    """Seconds before anything happens."""
    status: int = 0
    """Answer with this code instead of asking the server."""
    message: str = "injected"
    reason: str = ""
    retry_after: int = 0
    drop: bool = False
    """Close the connection: after the request was carried out if ``late``, else before."""
    late: bool = False
    truncate: int = 0
    """Send only so many bytes of the body, then close the connection."""

    def answer(self) -> Answer | None:
        """Return the refusal, or None if the request is to be carried out."""
        if not self.status:
            return None
        body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.status,
        }
        return Answer(self.status, msgspec.json.encode(body), retry_after=self.retry_after)


@dataclass
class Faults:
    """The faults of one server, and how often each request was seen. Thread-safe."""

    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """``METHOD /path`` of every request so far, in order of arrival."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fault: Fault) -> Fault:
        """Have something go wrong from now on."""
        with self._lock:
            self.faults.append(fault)
        return fault

    def clear(self) -> None:
        """Let everything go well again."""
        with self._lock:
            self.faults.clear()

    def seen(self, method: str, path: str) -> int:
        """Return how many requests matched so far; both are regular expressions, as in a Fault."""
        with self._lock:
            lines = [line.split(" ", 1) for line in self.requests]
        return sum(bool(re.fullmatch(method, m)) and bool(re.search(path, p)) for m, p in lines)

    def meet(self, request: Request) -> Fault | None:
        """Note a request, and return the fault that hits it."""
        with self._lock:
            self.requests.append(f"{request.method} {request.path}")
            for fault in self.faults:
                if not re.fullmatch(fault.method, request.method):
                    continue
                if not re.search(fault.path, request.path) or fault.times <= 0:
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None
