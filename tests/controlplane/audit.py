"""The API server's audit log: requests with their users and answers."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

EVICTION = ("create", "", "pods/eviction")
"""Verb, group and resource of an eviction."""


def policy(*rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return an audit policy that logs, without bodies, only the requests that match one of ``rules``."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [*({"level": "Metadata", **rule} for rule in rules), {"level": "None"}],
    }


@dataclass(frozen=True)
class Request:
    """One request and its answer."""

    verb: str
    group: str
    resource: str
    """Plural, with its subresource after a slash; the path of a request without a resource."""
    namespace: str
    name: str
    code: int
    """The answer's HTTP status."""
    user: str
    agent: str
    at: datetime
    """When the server received it."""

    @property
    def kind(self) -> tuple[str, str, str]:
        """Verb, group and resource, as in RBAC."""
        return self.verb, self.group, self.resource


class AuditLog:
    """The requests since the construction or the last `mark`; with ``whole``, since the server's start.

    The server logs a request before it answers, so the log is complete when the client has the answer.
    """

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        self._path = path
        self._from = 0
        if not whole:
            self.mark()

    def mark(self) -> None:
        """Skip everything that was logged so far."""
        self._from = self._path.stat().st_size if self._path.exists() else 0

    def requests(self) -> Iterator[Request]:
        """Yield all requests, in the order in which they were answered."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._from)
            for line in file:
                # A line that is being written is complete at the next call.
                if line.endswith(b"\n"):
                    yield _request(json.loads(line))

    def evictions(self, user: str = "") -> list[Request]:
        """Return the evictions that the server has carried out, of one user or of all."""
        return [
            request
            for request in self.requests()
            if request.kind == EVICTION
            and request.code in (200, 201)
            and user in ("", request.user)
        ]


def _request(event: Mapping[str, Any]) -> Request:
    reference = event.get("objectRef")
    if reference is None:
        reference = {"resource": str(event["requestURI"]).partition("?")[0]}
    subresource = reference.get("subresource")
    return Request(
        verb=event["verb"],
        group=reference.get("apiGroup", ""),
        resource=reference["resource"] + (f"/{subresource}" if subresource else ""),
        namespace=reference.get("namespace", ""),
        name=reference.get("name", ""),
        code=int(event.get("responseStatus", {}).get("code", 0)),
        user=event["user"]["username"],
        agent=event.get("userAgent", ""),
        at=datetime.fromisoformat(event["requestReceivedTimestamp"]),
    )
