"""Injected faults: the N-th matching request is refused, delayed, or its connection closed."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field

import msgspec

from rebalancer.embedded.apiserver.api import Reply, Request


@dataclass
class Fault:
    """One fault, and the requests that it affects."""

    method: str = ".*"
    """Regular expression that the whole method matches."""
    path: str = ".*"
    """Regular expression that is searched in the path (without the query)."""
    skip: int = 0
    """Number of matching requests that are answered normally first."""
    times: int = 1
    """Number of requests that are affected after that."""
    delay: float = 0.0
    """Seconds before the request is handled."""
    status: int = 0
    """Reply with this code; the request is not carried out."""
    message: str = "injected"
    reason: str = ""
    retry_after: int = 0
    drop: bool = False
    """Close the connection: after the request was carried out if ``late``, else before."""
    late: bool = False
    truncate: int = 0
    """Close the connection after this number of bytes of the body."""

    def answer(self) -> Reply | None:
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
        return Reply(self.status, msgspec.json.encode(body), retry_after=self.retry_after)


@dataclass
class Faults:
    """The faults of one server, and a log of its requests. Thread-safe."""

    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """``METHOD /path`` of every request so far, in order of arrival."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fault: Fault) -> Fault:
        """Inject a fault from now on."""
        with self._lock:
            self.faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self.faults.clear()

    def seen(self, method: str, path: str) -> int:
        """Return the number of requests that matched so far; arguments as in a Fault."""
        with self._lock:
            lines = [line.split(" ", 1) for line in self.requests]
        return sum(bool(re.fullmatch(method, m)) and bool(re.search(path, p)) for m, p in lines)

    def match(self, request: Request) -> Fault | None:
        """Log a request, and return the fault that affects it."""
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
