"""Clusters of a given size and severity, as API JSON: what each phase is timed on.

All are drifted, so that every phase has work: in an eighth of the workloads no pod stands in the last
zone, as after its outage. A severity makes one thing extreme that costs grow with. A drift says instead
how much is wrong: so many pods stand where another pod of their workload stands already.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

Manifest = dict[str, Any]

ZONE, RACK, HOSTNAME = "topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname"
ZONES = 3
_RACKS = 12
_OLD = "2026-01-01T00:00:00Z"
_CAPTURED = "2026-06-01T00:00:00Z"
_REQUEST = {"cpu": "150m", "memory": "320Mi"}
_REQUESTS = [{"cpu": f"{cpu}m", "memory": f"{4 * cpu}Mi"} for cpu in (9, 33, 120, 450)]
"""What pods request on nodes from cold to hot: 30 pods fill 2 % to 84 % of a node."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One cluster."""

    nodes: int
    pods: int
    replicas: int = 10
    """Pods of an owner; 0: all pods are one owner's."""
    constraints: tuple[str, ...] = ("plain", "zone-soft", "zone-hard", "host-soft", "zone-apart")
    """What owners ask for, in turn."""
    own_labels: bool = False
    """Whether each pod carries a label of its own, which makes it a class of its own."""
    budgets: float = 0.1
    """Share of the owners that have a PodDisruptionBudget."""
    in_namespace: int = 30
    """Owners in a namespace."""
    wrong: float | None = None
    """Share of the pods that stand on the node of a sibling; None: a zone is missing, as said above."""
    hot: bool = False
    """Whether requests differ 50-fold between nodes: a workload's pods are large on hot nodes, or small on cold ones."""
    seed: int = 1

    @property
    def owners(self) -> int:
        """How many Deployments there are."""
        return max(1, self.pods // self.replicas) if self.replicas else 1


SIZES = ((100, 3_000), (300, 10_000), (1_000, 30_000), (3_000, 100_000))
"""(nodes, pods)."""
_LARGEST_OWNER = 20_000

SEVERITIES: dict[str, dict[str, Any]] = {
    "ordinary": {},
    "label per pod": {"own_labels": True},
    "two pods a class": {"replicas": 2},
    "three spreads each": {"constraints": ("three-spreads",)},
    "apart by host": {"constraints": ("host-hard",)},
    "apart in namespace": {"constraints": ("namespace-apart",), "in_namespace": 300},
    "single-pod owners": {"replicas": 1},
    "one owner": {"replicas": 0, "constraints": ("zone-soft",)},
    "budget each": {"budgets": 1.0},
}
"""Name -> what differs from an ordinary cluster."""


def shape(severity: str, nodes: int, pods: int) -> Shape:
    """Return a cluster of this size and severity; the one owner has at most 20,000 pods."""
    if severity == "one owner":
        pods = min(pods, _LARGEST_OWNER)
    return replace(Shape(nodes, pods), **SEVERITIES[severity])


def drift(share: float, nodes: int, pods: int, *, hot: bool) -> Shape:
    """Return a cluster in which so large a share of the pods stands badly."""
    return Shape(nodes, pods, wrong=share, hot=hot)


def as_json(of: Shape) -> bytes:
    """Return the cluster as a snapshot file holds it; the same for the same shape."""
    kinds = "Pod,Node,Deployment,ReplicaSet,PodDisruptionBudget"
    annotations = {
        "rebalancer/captured-at": _CAPTURED,
        "rebalancer/server-version": "1.36",
        "rebalancer/kinds": kinds,
    }
    head = msgspec.json.encode(
        {"apiVersion": "v1", "kind": "List", "metadata": {"annotations": annotations}}
    )
    items = b",\n".join(msgspec.json.encode(item) for item in _objects(of))
    return head[:-1] + b',"items":[\n' + items + b"\n]}\n"


def _objects(of: Shape) -> Iterator[Manifest]:
    owners = [_Owner(of, number) for number in range(of.owners)]
    rng = random.Random(of.seed)
    for owner in owners:
        yield from owner.pods(rng)
    for number in range(of.nodes):
        yield _node(number)
    for owner in owners:
        yield from owner.workloads()
        if rng.random() < of.budgets:
            yield owner.budget()


class _Owner:
    """A Deployment with its ReplicaSet and pods."""

    def __init__(self, of: Shape, number: int) -> None:
        self._of, self._number = of, number
        self._replicas = of.replicas or of.pods
        self._namespace = f"ns{number // of.in_namespace:04d}"
        self._name = f"app{number:06d}"
        self._labels = {"app": self._name, "tier": "web", "pod-template-hash": "5d4f"}
        self._level = number // len(of.constraints) % len(_REQUESTS)
        requests = _REQUESTS[self._level] if of.hot else _REQUEST
        self._spec = _spec(of.constraints[number % len(of.constraints)], self._name, requests)

    def pods(self, rng: random.Random) -> Iterator[Manifest]:
        """Yield the pods, each on its node."""
        if self._of.wrong is not None:
            yield from self._drifted(rng, self._of.wrong)
            return
        zones = ZONES - 1 if rng.random() < 1 / 8 else ZONES
        for replica in range(self._replicas):
            node = replica % zones + ZONES * rng.randrange(max(1, self._of.nodes // ZONES))
            yield self._pod(replica, f"node-{min(node, self._of.nodes - 1):05d}")

    def _drifted(self, rng: random.Random, wrong: float) -> Iterator[Manifest]:
        """Yield the pods, spread over zones and nodes but for those that are wrong.

        The nodes of a level of heat are every fourth group of three, one of each zone.
        """
        levels = len(_REQUESTS) if self._of.hot else 1
        groups = range(self._level % levels, max(1, self._of.nodes // ZONES), levels)
        first, taken = "", set[int]()
        for replica in range(self._replicas):
            node = replica % ZONES + ZONES * rng.choice(groups)
            while node in taken and len(taken) < len(groups):
                node = replica % ZONES + ZONES * rng.choice(groups)
            taken.add(node)
            name = f"node-{min(node, self._of.nodes - 1):05d}"
            first = first or name
            yield self._pod(replica, first if rng.random() < wrong else name)

    def _pod(self, replica: int, node: str) -> Manifest:
        labels = dict(self._labels)
        if self._of.own_labels:
            labels["apps.kubernetes.io/pod-index"] = str(replica)
        owner = _reference("ReplicaSet", f"{self._name}-5d4f", self._uid("rs"))
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{self._name}-5d4f-{replica:05d}",
                "namespace": self._namespace,
                "uid": self._uid(f"pod-{replica:05d}"),
                "creationTimestamp": _OLD,
                "labels": labels,
                "ownerReferences": [owner],
            },
            "spec": {**self._spec, "nodeName": node},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _OLD}],
            },
        }

    def _uid(self, what: str) -> str:
        return f"{self._number:08d}-{what}"

    def workloads(self) -> Iterator[Manifest]:
        count = self._replicas
        status = {"replicas": count, "readyReplicas": count, "updatedReplicas": count}
        for kind, name, uid, owner in (
            ("Deployment", self._name, "deploy", None),
            ("ReplicaSet", f"{self._name}-5d4f", "rs", ("Deployment", self._name, "deploy")),
        ):
            references = [_reference(owner[0], owner[1], self._uid(owner[2]))] if owner else []
            template = {"metadata": {"labels": self._labels}, "spec": self._spec}
            yield {
                "apiVersion": "apps/v1",
                "kind": kind,
                "metadata": {
                    "name": name,
                    "namespace": self._namespace,
                    "uid": self._uid(uid),
                    "ownerReferences": references,
                },
                "spec": {"replicas": count, "selector": self._selector(), "template": template},
                "status": status,
            }

    def _selector(self) -> Manifest:
        return {"matchLabels": {"app": self._name}}

    def budget(self) -> Manifest:
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {"maxUnavailable": 1, "selector": self._selector()},
            "status": {"disruptionsAllowed": 1, "currentHealthy": self._replicas},
        }


def _reference(kind: str, name: str, uid: str) -> Manifest:
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": True}


def _node(number: int) -> Manifest:
    room = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "200Gi"}
    labels = {
        HOSTNAME: f"node-{number:05d}",
        ZONE: f"zone-{number % ZONES}",
        RACK: f"rack-{number % _RACKS}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number:05d}", "labels": labels, "creationTimestamp": _OLD},
        "status": {
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
        },
    }


def _spec(wish: str, app: str, requests: Manifest) -> Manifest:
    mine = {"matchLabels": {"app": app}}
    spec: Manifest = {
        "containers": [{"name": "main", "image": "nginx", "resources": {"requests": requests}}]
    }
    spreads = {
        "zone-soft": ((ZONE, "ScheduleAnyway"),),
        "zone-hard": ((ZONE, "DoNotSchedule"),),
        "host-soft": ((HOSTNAME, "ScheduleAnyway"),),
        "three-spreads": tuple((key, "ScheduleAnyway") for key in (ZONE, RACK, HOSTNAME)),
    }
    if wish in spreads:
        spec["topologySpreadConstraints"] = [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": mine}
            for key, when in spreads[wish]
        ]
    apart = {
        "zone-apart": ("preferred", ZONE, mine),
        "host-hard": ("required", HOSTNAME, mine),
        "namespace-apart": ("preferred", ZONE, {"matchLabels": {"tier": "web"}}),
    }
    if wish in apart:
        how, key, selector = apart[wish]
        term: Manifest = {"labelSelector": selector, "topologyKey": key}
        if how == "preferred":
            term = {"weight": 100, "podAffinityTerm": term}
        spec["affinity"] = {
            "podAntiAffinity": {f"{how}DuringSchedulingIgnoredDuringExecution": [term]}
        }
    return spec
