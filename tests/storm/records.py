"""A record of a small run that kept every promise; tests change one thing in it."""

import json
from typing import Any

from tests.storm.faults import Fault
from tests.storm.schedule import Act, Scenario
from tests.storm.witnesses import Change, Evicted, NodePatch, Ran, Record

START = 1000.0
_FIRST, _SECOND = 1010.0, 1014.0


def pod(app: str, uid: str, *, ready: bool = True, ending: bool = False, node: str = "n0") -> Any:
    """Return a pod as a watch shows it."""
    metadata: dict[str, Any] = {"name": f"{app}-{uid}", "uid": uid, "labels": {"app": app}}
    if ending:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"conditions": conditions}}


class History:
    """Changes one after the other."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def add(self, at: float, kind: str, obj: Any, what: str = "MODIFIED") -> None:
        """Add one."""
        self.changes.append(Change(len(self.changes) + 1, at, kind, what, obj))

    def pod(self, at: float, app: str, uid: str, what: str = "MODIFIED", **state: Any) -> None:
        """Add a change of a pod."""
        self.add(at, "Pod", pod(app, uid, **state), what)

    def node(self, at: float, name: str, *taints: Any) -> None:
        """Add a change of a node: the taints that it has from then on."""
        node = {"metadata": {"name": name, "uid": name}, "spec": {"taints": list(taints)}}
        self.add(at, "Node", node)

    def holder(self, at: float, identity: str) -> None:
        """Add a change of the Lease."""
        lease = {
            "metadata": {"name": "rebalancer", "uid": "lease"},
            "spec": {"holderIdentity": identity},
        }
        self.add(at, "Lease", lease)


def two_moves() -> History:
    """Return how two of three replicas move, one after the other, under a budget of two."""
    history = History()
    budget = {"metadata": {"name": "web", "uid": "pdb"}, "spec": {"minAvailable": 2}}
    history.add(START - 5, "PodDisruptionBudget", budget, "ADDED")
    for uid in ("u1", "u2", "u3"):
        history.pod(START - 5, "web", uid, "ADDED")
    history.holder(START + 1, "main-1-x")
    history.pod(_FIRST, "web", "u1", ending=True)
    history.pod(_FIRST + 1, "web", "u4", "ADDED", ready=False, node="n1")
    history.pod(_FIRST + 2, "web", "u4", node="n1")
    history.pod(_FIRST + 2, "web", "u1", "DELETED", ending=True)
    history.pod(_SECOND, "web", "u2", ending=True)
    history.pod(_SECOND + 1, "web", "u5", node="n2")
    history.holder(_SECOND + 2, "")
    return history


TEAM = {"key": "team", "value": "x", "effect": "PreferNoSchedule"}
"""A taint of others."""


def mark(run: str = "main") -> dict[str, str]:
    """Return a mark."""
    value = f"steer.20260101T000000Z.{run}"
    return {"key": "rebalancer/mark", "value": value, "effect": "PreferNoSchedule"}


def patch(node: str, version: int, *taints: Any, **more: Any) -> NodePatch:
    """Return the patch that gives a node, as it was at a revision, these taints."""
    body = {"metadata": {"uid": node, "resourceVersion": str(version), **more}}
    return NodePatch("main", node, {**body, "spec": {"taints": list(taints) or None}})


def steered_report(*marks: str) -> str:
    """Return the report of the same two moves, which need these nodes marked."""
    made = json.loads(report(u1="evicted", u2="evicted"))
    made["moves"] = [{**move, "marks": marks} for move in made["moves"]]
    return json.dumps(made)


def steered_moves() -> dict[str, Any]:
    """Return what is different where the same two moves were steered: n0 has a taint of others, and is marked for a while."""
    history = History()
    history.node(START - 6, "n0", TEAM)
    first = len(history.changes)
    history.node(_FIRST - 1, "n0", TEAM, mark())
    for change in two_moves().changes:
        history.add(change.at, change.kind, change.object, change.type)
    history.node(_SECOND + 2, "n0", TEAM)
    return {
        "scenario": Scenario(0, (), (), steered=True),
        "runs": [ran(out=steered_report("n0"))],
        "changes": history.changes,
        "node_patches": [patch("n0", first, TEAM, mark()), patch("n0", first + 1, TEAM)],
    }


def report(*warnings: str, **outcomes: str) -> str:
    """Return a report with these warnings, and outcomes by uid."""
    moves = [
        {"uid": uid, "pod": f"web-{uid}", "outcome": outcome} for uid, outcome in outcomes.items()
    ]
    return json.dumps({"moves": moves, "standstill": [], "cut": None, "warnings": warnings})


def ran(**more: Any) -> Ran:
    """Return a process that did as it should."""
    values: dict[str, Any] = {
        "user": "main",
        "identity": "main-1",
        "deadline": 30.0,
        "started": START,
        "first_request": START + 1,
        "ended": START + 20,
        "code": 0,
        "out": report(u1="evicted", u2="evicted"),
        "sent": [(_FIRST, "u1"), (_SECOND, "u2")],
        "read": [(_FIRST - 0.1, "web-u1"), (_SECOND - 0.1, "web-u2")],
    }
    return Ran(**{**values, **more})


def record(**more: Any) -> Record:
    """Return a record in which nothing is violated, but for what is changed."""
    values: dict[str, Any] = {
        "scenario": Scenario(0, (Fault("lease", "cut", "first"),), (Act("opt-out"),)),
        "runs": [ran()],
        "evicted": [
            Evicted("main", "web-u1", "u1", _FIRST),
            Evicted("main", "web-u2", "u2", _SECOND),
        ],
        "changes": two_moves().changes,
        "desired": {"web": 3},
        "expected": {"web": [1, 1, 1]},
        "final": {"web": [1, 1, 1]},
        "least": 2,
        "budgets": {"inFlight": 1, "perNode": 1, "perRun": 2, "perHour": 4, "marks": 2},
        "hour_before": 2,
        "hour_after": 4,
        "memory_hindered": False,
        "sight_hindered": False,
        "deleted": 0,
        "acted": {},
        "opted_out": {},
        "hits": [],
        "hit_kinds": [],
        "secrets": ("s3cret",),
        "texts": ("moved",),
        "clean_evictions": 0,
    }
    return Record(**{**values, **more})
