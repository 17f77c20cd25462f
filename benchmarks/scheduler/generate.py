"""Random clusters and pods, the same for the same seed, so that every pair of features occurs."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.scheduler import features, storage
from benchmarks.scheduler.vocabulary import (
    APPS,
    CSI_DRIVER,
    HOSTNAME,
    IMAGES,
    NAMESPACES,
    OVERHEAD_CLASS,
    REGION,
    VERSIONS,
    ZONE,
    ZONES,
    Manifest,
)
from rebalancer.scheduler.scores import normalize_image

_ALL = (*features.PLAIN, *features.OWNERS, *features.STORAGE)
# Pairs that the API server refuses, or that one field cannot hold at once.
_IMPOSSIBLE = frozenset(
    frozenset(pair)
    for pair in (
        ("node-affinity", "node-fields"),
        ("min-domains", "hard-spread"),
        ("pod-level", "hugepages"),
        *itertools.combinations(features.OWNERS[1:], 2),
        *itertools.combinations(features.STORAGE, 2),
    )
)


_FEATURES = ["RestartAllContainersOnContainerExits"]


@dataclass
class WantedPod:
    """A pod to be created, and what it exercises."""

    manifest: Manifest
    features: tuple[str, ...]
    objects: list[Manifest] = field(default_factory=list)
    """What must exist before it: claims and volumes."""
    owner: tuple[str, str] | None = None
    """(kind, name) of the controller that it names."""


class Pairs:
    """Counts pairs of features, and proposes sets that hold rare ones."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.seen: Counter[frozenset[str]] = Counter()

    @staticmethod
    def possible() -> set[frozenset[str]]:
        """Return all pairs that can occur."""
        return {frozenset(p) for p in itertools.combinations(_ALL, 2)} - _IMPOSSIBLE

    def propose(self) -> tuple[str, ...]:
        """Return two to five features around the rarest pair of a few drawn at random."""
        drawn = self._rng.sample(sorted(map(sorted, self.possible())), 40)
        chosen = set(min(drawn, key=lambda pair: self.seen[frozenset(pair)]))
        for other in self._rng.sample(_ALL, self._rng.choice((0, 0, 1, 2, 3))):
            if all(frozenset((other, one)) not in _IMPOSSIBLE for one in chosen):
                chosen.add(other)
        return tuple(sorted(chosen))

    def count(self, chosen: tuple[str, ...]) -> None:
        """Note that a decision was compared with these features."""
        self.seen.update(map(frozenset, itertools.combinations(chosen, 2)))


def nodes(rng: random.Random, count: int) -> Iterator[Manifest]:
    """Yield nodes of different sizes, zones, taints and images; some lack a label."""
    for index in range(count):
        name = f"node-{index:04d}"
        labels = {HOSTNAME: name, REGION: "region-1", ZONE: rng.choice(ZONES)}
        labels |= {"rack": f"rack-{rng.randrange(6)}", "disk": rng.choice(("ssd", "hdd", "nvme"))}
        labels["generation"] = rng.choice(("1", "3", "5", "7", "x"))
        for key in (HOSTNAME, ZONE, "rack", "disk"):
            if rng.random() < 0.08:
                del labels[key]
        room = {"cpu": rng.choice(("4", "16", "31850m", "64"))}
        room["memory"] = rng.choice(("16Gi", "64Gi", "130000000Ki"))
        room |= {"pods": rng.choice(("12", "110")), "ephemeral-storage": "100Gi"}
        if rng.random() < 0.6:
            room |= {"example.com/gpu": "4", "hugepages-2Mi": "64Mi"}
        held = rng.sample(sorted(IMAGES), rng.randint(0, len(IMAGES)))
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": _taints(rng), "unschedulable": rng.random() < 0.05},
            "status": {
                "capacity": room,
                "allocatable": room,
                "declaredFeatures": _FEATURES if rng.random() < 0.7 else [],
                "images": [{"names": [normalize_image(i)], "sizeBytes": IMAGES[i]} for i in held],
            },
        }


def _taints(rng: random.Random) -> list[Manifest]:
    choices = (
        {"key": "dedicated", "value": "a", "effect": "NoSchedule"},
        {"key": "dedicated", "value": "b", "effect": "NoSchedule"},
        {"key": "slow", "value": "very", "effect": "PreferNoSchedule"},
        {"key": "slower", "effect": "PreferNoSchedule"},
        {"key": "drain", "value": "now", "effect": "NoExecute"},
    )
    weights = (1, 1, 4, 3, 1)
    count = rng.choice((0, 0, 0, 1, 2))
    return list({t["key"]: t for t in rng.choices(choices, weights, k=count)}.values())


def fixtures(rng: random.Random, names: list[str]) -> Iterator[Manifest]:
    """Yield what pods refer to: namespaces, a runtime class, storage classes, CSINodes, owners."""
    for name in NAMESPACES[1:]:
        labels = {"team": name[-1]}
        yield {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": labels},
        }
    for name in NAMESPACES:
        metadata = {"name": "default", "namespace": name}
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    yield {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": OVERHEAD_CLASS},
        "handler": "sandbox",
        "overhead": {"podFixed": {"cpu": "120m", "memory": "96Mi"}},
    }
    yield from storage.classes()
    for name in names:
        if rng.random() < 0.8:
            driver = {"name": CSI_DRIVER, "nodeID": name, "allocatable": {"count": 2}}
            yield {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSINode",
                "metadata": {"name": name},
                "spec": {"drivers": [driver]},
            }
    for namespace, app in itertools.product(NAMESPACES, APPS):
        yield from _owners(namespace, app)


def _owners(namespace: str, app: str) -> Iterator[Manifest]:
    metadata = {"name": app, "namespace": namespace}
    labels = {"app": app}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [_plain_container()]}}
    selector = {"matchLabels": labels}
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"selector": {**labels, "served": "yes"}, "ports": [{"port": 80}]},
    }
    body = {"replicas": 0, "selector": selector, "template": template}
    yield {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": body}
    stateful = {**body, "serviceName": app}
    yield {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": stateful}
    plain = {**body, "selector": labels}
    yield {"apiVersion": "v1", "kind": "ReplicationController", "metadata": metadata, "spec": plain}


def _plain_container() -> Manifest:
    return {"name": "main", "image": "plain:1"}


class Pods:
    """Makes pods of wanted features; names are numbered."""

    def __init__(self, rng: random.Random, prefix: str, node_names: list[str]) -> None:
        self._rng = rng
        self._prefix = prefix
        self._node_names = node_names
        self._made = 0

    def make(self, chosen: tuple[str, ...]) -> WantedPod:
        """Return a pod with these features."""
        rng = self._rng
        name = f"{self._prefix}-{self._made:05d}"
        self._made += 1
        labels = {"app": rng.choice(APPS), "version": rng.choice(VERSIONS)}
        pod: Manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": rng.choice(NAMESPACES), "labels": labels},
            "spec": {"containers": [_plain_container()]},
        }
        wanted = WantedPod(pod, chosen)
        for feature in chosen:
            if feature in features.PLAIN:
                features.PLAIN[feature](rng, pod)
            elif feature in features.RARE:
                features.RARE[feature](rng, pod)
            elif feature == "service":
                labels["served"] = "yes"
            elif feature in features.OWNERS:
                kind = "".join(part.title() for part in feature.split("-"))
                wanted.owner = (kind, labels["app"])
            else:
                wanted.objects += storage.volume(rng, feature, pod, self._node_names)
        return wanted
