"""The catalogue: which kinds of requests there are, what can go wrong with one, and at which of them it does."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Phase = Literal["first", "second", "third", "later", "always"]
"""Which requests of a kind are hit: that one, all from the third on, or all."""

LISTED = (
    "pods",
    "nodes",
    "poddisruptionbudgets",
    "namespaces",
    "deployments",
    "statefulsets",
    "replicationcontrollers",
    "services",
    "resourcequotas",
    "persistentvolumes",
    "persistentvolumeclaims",
    "storageclasses",
    "csinodes",
    "replicasets",
    "jobs",
)
SINGLE = ("lease", "memory", "get pod", "eviction", "events", "access", "version")
MARKING = ("get node", "patch node")
"""The kinds by which nodes are marked. They are in none of KINDS: only runs that steer ask for them."""
KINDS = (
    *SINGLE,
    *(f"list {plural}" for plural in LISTED),
    *(f"watch {plural}" for plural in LISTED),
)
CENTRAL = ("lease", "memory", "get pod", "eviction", "events", "list pods", "watch pods")
"""The kinds on which promises depend most; the covering plan begins with them."""
_NAMED = ("nodes", "clusters", "machinedeployments", "machinesets", "machines")
"""Objects of which single ones are asked for by the method, the last four of Cluster API."""


@dataclass(frozen=True)
class Effect:
    """What the proxy does with one exchange. Seconds and bytes; what is left out does not happen."""

    forward: bool = True
    """Whether the request reaches the server at all."""
    delay: float = 0.0
    """Before it is forwarded."""
    hold: float = 0.0
    """Before the answer is given."""
    status: int = 0
    """Answered with this status in place of the server's."""
    html: bool = False
    """The answer is a page of HTML, as gateways give."""
    json: str = ""
    """The answer has this body."""
    retry_after: int | None = None
    drop: bool = False
    """The connection ends in place of an answer."""
    silent: bool = False
    """Nothing comes in place of an answer, and the connection stays."""
    drip_head: float = 0.0
    """Seconds between the single bytes of the head."""
    drip_body: float = 0.0
    """Seconds between the single bytes of the body."""
    cut: bool = False
    """The connection ends at a byte of the body."""
    mute: bool = False
    """At a byte of the body nothing comes any more, and the connection stays."""
    flip: bool = False
    """One bit of the body is another."""

    @property
    def quick(self) -> bool:
        """Whether the client knows of it at once."""
        slow = self.delay or self.hold or self.drip_head or self.drip_body
        return not (slow or self.silent or self.mute or self.flip or (self.retry_after or 0) > 1)


EFFECTS: Mapping[str, Effect] = {
    "delay": Effect(delay=2.5),
    "delayed answer": Effect(hold=2.5),
    "dripping head": Effect(drip_head=0.3),
    "dripping body": Effect(drip_body=0.3),
    "drop before commit": Effect(forward=False, drop=True),
    "drop after commit": Effect(drop=True),
    "200 with HTML": Effect(forward=False, status=200, html=True),
    "200 with HTML after commit": Effect(status=200, html=True),
    "429 Retry-After 0": Effect(forward=False, status=429, retry_after=0),
    "429 Retry-After 1": Effect(forward=False, status=429, retry_after=1),
    "429 Retry-After 60": Effect(forward=False, status=429, retry_after=60),
    "429 Retry-After 3600": Effect(forward=False, status=429, retry_after=3600),
    "500 after commit": Effect(status=500),
    "502 after commit": Effect(status=502, html=True),
    "503 after commit": Effect(status=503),
    "504 after commit": Effect(status=504),
    "cut": Effect(cut=True),
    "silence before commit": Effect(forward=False, silent=True),
    "silence after commit": Effect(silent=True),
    "silence in the body": Effect(mute=True),
    "410": Effect(forward=False, status=410),
    "flipped bit": Effect(flip=True),
}


def effects_on(kind: str) -> Sequence[str]:
    """Return which faults a kind of request can have: 410 is an answer to lists and watches only."""
    return [name for name in EFFECTS if name != "410" or kind.startswith(("list ", "watch "))]


def phases_of(kind: str) -> Sequence[Phase]:
    """Return at which requests a kind can be hit; most lists are asked for once."""
    if kind.startswith("list ") or kind == "version":
        return ("first", "always")
    if kind.startswith("watch "):
        return ("first", "second", "always")
    return ("first", "second", "later", "always")  # the third is the first of the later ones


def kind_of(method: str, target: str) -> str:
    """Return the kind of a request."""
    path, _, query = target.partition("?")
    parts = path.strip("/").split("/")
    if parts[-1] == "eviction":
        return "eviction"
    for plural, kind in (("leases", "lease"), ("configmaps", "memory"), ("events", "events")):
        if plural in parts:
            return kind
    if parts[-1].endswith("accessreviews") or parts[-1].endswith("rulesreviews"):
        return "access"
    if len(parts) >= 2 and parts[-2] == "pods":
        return f"{method.lower()} pod"
    if "watch=" not in query and parts[-1] == "pods" and "spec.nodeName" in query:
        return "list pods of node"
    # A namespace may have the name of a plural.
    if len(parts) >= 3 and parts[-2] in _NAMED and parts[-3] != "namespaces":
        return f"{method.lower()} {parts[-2].removesuffix('s')}"
    if "watch=" in query:
        return f"watch {parts[-1]}"
    return "version" if path == "/version" else f"list {parts[-1]}"


@dataclass(frozen=True)
class Fault:
    """One fault of a scenario."""

    kind: str
    name: str
    phase: Phase
    at: int = 0
    """Which byte of the body, and which of its bits, by the rest of dividing it."""

    @property
    def effect(self) -> Effect:
        """What the proxy does."""
        return EFFECTS[self.name]

    @property
    def transient(self) -> bool:
        """Whether it hits one request only."""
        return self.phase in ("first", "second", "third")

    def hits(self, number: int) -> bool:
        """Whether it hits the request of this number, counted from 1, of its kind."""
        match self.phase:
            case "first":
                return number == 1
            case "second":
                return number == 2
            case "third":
                return number == 3
            case "later":
                return number >= 3
            case "always":
                return True

    def __str__(self) -> str:
        return f"{self.kind}: {self.name} ({self.phase}, {self.at})"


class Script:
    """Says of each request, as it comes, which fault hits it. Thread-safe."""

    def __init__(self, faults: Sequence[Fault] = (), skew: float = 0.0) -> None:
        """``skew``: seconds by which the server's clock seems to be ahead."""
        self.faults, self.skew = tuple(faults), skew
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def next(self, kind: str) -> tuple[int, Fault | None]:
        """Count a request; return its number among those of its kind, and what hits it."""
        with self._lock:
            self._seen[kind] += 1
            number = self._seen[kind]
        hit = (fault for fault in self.faults if fault.kind == kind and fault.hits(number))
        return number, next(hit, None)
