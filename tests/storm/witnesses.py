"""What is recorded of a run by others than the product: none of its code is used here.

The API server's audit log (who evicted which uid), raw watches of pods, budgets, the Lease and the memory in the
order in which etcd made the changes, and what the processes themselves did.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from tests.controlplane.api import ApiClient, ApiError
from tests.storm.schedule import Scenario

APPS = "storm"
"""Namespace of the workloads."""
OPS = "storm-ops"
"""Namespace of the Lease and the memory."""
LEASE = "rebalancer"
MEMORY = "memory"
MEMORY_KEY = "memory.json"
MARK_KEYS = ("rebalancer/mark", "rebalancer/empty")
"""Keys of the taints that are marks, by the documentation."""

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Request",
            "userGroups": [f"system:serviceaccounts:{OPS}"],
            "verbs": ["create"],
            "resources": [{"group": "", "resources": ["pods/eviction"]}],
        },
        {
            "level": "Request",
            "userGroups": [f"system:serviceaccounts:{OPS}"],
            "verbs": ["patch"],
            "resources": [{"group": "", "resources": ["nodes"]}],
        },
        {
            "level": "Metadata",
            "userGroups": [f"system:serviceaccounts:{OPS}"],
            "verbs": ["delete", "deletecollection", "patch"],
        },
        {"level": "None"},
    ],
}


@dataclass(frozen=True)
class Evicted:
    """An eviction that the API server carried out, or may have, by its audit log."""

    user: str
    pod: str
    uid: str
    received: float
    """Unix seconds at which the server had the request."""
    answered: bool = True
    """False: the client was gone before the answer, and only the pod shows whether it was carried out."""


@dataclass(frozen=True)
class NodePatch:
    """A patch of a Node that the API server carried out, by its audit log."""

    user: str
    node: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One change of an object, as a watch showed it."""

    version: int
    """etcd's revision: all changes of all kinds in their true order."""
    at: float
    """Unix seconds at which it was seen."""
    kind: str
    type: str
    """ADDED, MODIFIED or DELETED."""
    object: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Of the object."""
        return str(self.object["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Of the object."""
        return str(self.object["metadata"]["uid"])


@dataclass
class Ran:
    """One process of the product."""

    user: str
    """Name of its ServiceAccount."""
    identity: str
    """Its POD_NAME, with which its Lease's holder begins."""
    deadline: float
    started: float
    """Unix seconds."""
    first_request: float | None = None
    ended: float = 0.0
    code: int | None = None
    """None: it had to be killed because it did not end."""
    out: str = ""
    err: str = ""
    reads_out: bool = True
    """Whether anybody could read its standard output."""
    terms: list[float] = field(default_factory=list)
    """When SIGTERM was sent to it."""
    killed: float | None = None
    """When SIGKILL was sent to it."""
    continued: float | None = None
    """When SIGCONT ended its being stopped."""
    sent: list[tuple[float, str]] = field(default_factory=list)
    """Evictions that it asked for: when, and the uid of the pod."""
    read: list[tuple[float, str]] = field(default_factory=list)
    """Pods that it read by name: when, and the name."""
    serves: bool = False
    """Whether it makes run after run until it is ended."""
    starved: list[tuple[float, float]] = field(default_factory=list)
    """When it was looked at, and the seconds until then that it could have run and had no processor."""

    @property
    def reports(self) -> list[dict[str, Any]]:
        """All that it wrote, up to one that is not whole."""
        reports: list[dict[str, Any]] = []
        decoder, text = json.JSONDecoder(), self.out.strip()
        with contextlib.suppress(ValueError):
            while text:
                report, end = decoder.raw_decode(text)
                if not isinstance(report, dict) or "moves" not in report:
                    break
                reports.append(report)
                text = text[end:].lstrip()
        return reports

    @property
    def report(self) -> dict[str, Any] | None:
        """Its report, if it wrote one: the last, with the moves and warnings of all."""
        reports = self.reports
        if not reports:
            return None
        both = ("moves", "warnings")
        return {**reports[-1], **{key: [one for r in reports for one in r[key]] for key in both}}

    def starved_since(self, begun: float) -> float:
        """Return the seconds since ``begun`` that the machine kept it from running."""
        before = max((seconds for at, seconds in self.starved if at <= begun), default=0.0)
        return max((seconds for _, seconds in self.starved), default=0.0) - before

    @property
    def clock_started(self) -> float:
        """When its deadline began to run, at the latest."""
        return self.started if self.first_request is None else self.first_request


@dataclass
class Record:
    """All that is known of one scenario."""

    scenario: Scenario
    runs: list[Ran]
    """The run itself, then its rival if there was one."""
    evicted: list[Evicted]
    changes: list[Change]
    """From before the run until all was at rest again, in etcd's order."""
    desired: Mapping[str, int]
    """App -> replicas."""
    expected: Mapping[str, Sequence[int]]
    """App -> pods per zone in the end state of an undisturbed run, sorted."""
    final: Mapping[str, Sequence[int]]
    """The same after the clean runs that followed."""
    least: int
    """Moves of the undisturbed plan."""
    budgets: Mapping[str, int]
    """inFlight, perNode, perRun, perHour of the policy in force."""
    hour_before: int
    """Evictions that the memory counted before."""
    hour_after: int | None
    """Those that it counts after the run; None if it cannot be read."""
    memory_hindered: bool
    """Whether a fault hit the last attempts to write the memory."""
    sight_hindered: bool
    """Whether a fault hit a list or watch of pods, so that the run may not have seen changes of others."""
    deleted: int
    """Requests of the product to delete or patch anything but nodes."""
    acted: Mapping[str, float]
    """Act -> when it was done."""
    opted_out: Mapping[str, str]
    """Uids of pods that opted out in mid-run -> their names."""
    hits: list[str]
    """Faults that came to bear, by name."""
    hit_kinds: list[str]
    """Kinds of requests that were hit."""
    secrets: Sequence[str]
    """Tokens, which must be nowhere in what is written."""
    texts: Sequence[str]
    """What the run wrote into the cluster: events, memory."""
    clean_evictions: int
    """Evictions of the clean runs that followed."""
    clean_codes: Sequence[int | None] = ()
    node_patches: Sequence[NodePatch] = ()
    marks_left: Sequence[str] = ()
    """Nodes that carried a mark when the runs had ended."""
    marks_later: Sequence[str] = ()
    """The same after one more run without faults."""

    @property
    def main(self) -> Ran:
        """The run that the scenario is about."""
        return self.runs[0]


class Recorder:
    """Keeps all changes of pods, nodes, budgets, Leases, ConfigMaps, EndpointSlices and what else is named, in etcd's order."""

    _PATHS: ClassVar[dict[str, str]] = {
        "Pod": f"/api/v1/namespaces/{APPS}/pods",
        "Node": "/api/v1/nodes",
        "PodDisruptionBudget": f"/apis/policy/v1/namespaces/{APPS}/poddisruptionbudgets",
        "Lease": f"/apis/coordination.k8s.io/v1/namespaces/{OPS}/leases",
        "ConfigMap": f"/api/v1/namespaces/{OPS}/configmaps",
        "EndpointSlice": f"/apis/discovery.k8s.io/v1/namespaces/{APPS}/endpointslices",
    }

    def __init__(self, api: ApiClient, more: Mapping[str, str] = MappingProxyType({})) -> None:
        """``more``: kind -> path of its list."""
        self._api = api
        self._changes: list[Change] = []
        self._lock = threading.Lock()
        for kind, path in {**self._PATHS, **more}.items():
            threading.Thread(target=self._watch, args=(kind, path), daemon=True).start()

    def since(self, version: int) -> list[Change]:
        """Return the changes after a revision."""
        with self._lock:
            changes = [change for change in self._changes if change.version > version]
            self._changes = changes.copy()
        return sorted(changes, key=lambda change: change.version)

    def caught_up(self, uids: set[str]) -> bool:
        """Whether the end of each of these pods was seen."""
        with self._lock:
            ending = {c.uid for c in self._changes if c.kind == "Pod" and is_ending(c)}
        return uids <= ending

    def _watch(self, kind: str, path: str) -> None:
        version = ""
        while True:
            try:
                if not version:
                    version = self._api.get(f"{path}?limit=1")["metadata"]["resourceVersion"]
                where = f"{path}?resourceVersion={version}&allowWatchBookmarks=true"
                for event in self._api.watch(where, 3600):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._add(kind, event, int(version))
            except ApiError:
                version = ""
            except Exception:  # noqa: BLE001 - the line broke off: the watch goes on where it was
                time.sleep(0.2)

    def _add(self, kind: str, event: Mapping[str, Any], version: int) -> None:
        change = Change(version, time.time(), kind, event["type"], event["object"])
        with self._lock:
            self._changes.append(change)


def is_ending(change: Change) -> bool:
    """Whether a pod is on its way out, or gone."""
    return change.type == "DELETED" or "deletionTimestamp" in change.object["metadata"]


def is_ready(obj: Mapping[str, Any]) -> bool:
    """Whether a pod is Ready and stays."""
    conditions = obj.get("status", {}).get("conditions", ())
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and "deletionTimestamp" not in obj["metadata"]


def marks_on(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the marks among the taints of a node."""
    return [taint for taint in taints_on(node) if taint["key"] in MARK_KEYS]


def taints_of_others(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the taints of a node that are no marks."""
    return [taint for taint in taints_on(node) if taint["key"] not in MARK_KEYS]


def taints_on(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the taints of a node, or those that a patch of one names."""
    return (node.get("spec") or {}).get("taints") or []


_CANCELED = 504
"""What the server logs when its client is gone, whether or not it had evicted by then ("context canceled")."""


class Asked(NamedTuple):
    """What the product has asked for."""

    evicted: list[Evicted]
    """The evictions that may have been carried out."""
    patched: list[NodePatch]
    """The patches of nodes that were carried out."""
    others: int
    """How often anything else was to be deleted or patched."""


class Audit:
    """The API server's audit log, from where it was last read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> Asked:
        """Return what was asked for since then."""
        asked = Asked([], [], 0)
        for event in self._events():
            reference = event.get("objectRef") or {}
            code = event.get("responseStatus", {}).get("code")
            if reference.get("resource") == "nodes" and event["verb"] == "patch":
                if code == 200:
                    asked.patched.append(_patched(event))
            elif reference.get("subresource") != "eviction":
                asked = asked._replace(others=asked.others + 1)
            elif code in (200, 201, _CANCELED) and not is_rehearsal(event.get("requestURI", "")):
                asked.evicted.append(_evicted(event, code != _CANCELED))
        return asked

    def _events(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._at += len(line)
                yield json.loads(line)


def is_rehearsal(target: str) -> bool:
    """Return whether a request for an eviction is a dry run."""
    return "dryRun=" in target


def _user(event: Mapping[str, Any]) -> str:
    return str(event["user"]["username"]).rpartition(":")[2]


def _patched(event: Mapping[str, Any]) -> NodePatch:
    return NodePatch(_user(event), str(event["objectRef"]["name"]), event["requestObject"])


def _evicted(event: Mapping[str, Any], answered: bool) -> Evicted:
    options = event.get("requestObject", {}).get("deleteOptions") or {}
    return Evicted(
        user=_user(event),
        pod=str(event["objectRef"]["name"]),
        uid=str((options.get("preconditions") or {}).get("uid", "")),
        received=datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp(),
        answered=answered,
    )


def carried_out(evicted: Sequence[Evicted], changes: Sequence[Change]) -> list[Evicted]:
    """Return the evictions that were answered, and of the others each whose pod was seen to end."""
    answered = {eviction.uid for eviction in evicted if eviction.answered}
    ended = {change.uid for change in changes if change.kind == "Pod" and is_ending(change)}
    open_ = {
        eviction.uid: eviction for eviction in reversed(evicted) if eviction.uid not in answered
    }
    done = [eviction for eviction in evicted if eviction.answered]
    done += [eviction for uid, eviction in open_.items() if uid in ended]
    return sorted(done, key=lambda eviction: eviction.received)


def hour_count(data: Mapping[str, str]) -> int | None:
    """Return the evictions that a memory counts, by its documented form; None if it cannot be read."""
    try:
        document = json.loads(data.get(MEMORY_KEY) or "{}")
        return sum(int(count) for _, count in document.get("evictions", ()))
    except (ValueError, TypeError, AttributeError):
        return None
