"""What-if edits: add or remove a node, cordon one, lose a zone.

Source: ``pkg/controller/disruption/disruption.go``.
"""

from __future__ import annotations

import copy
import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import FEW, did_you_mean
from rebalancer.policy.values import is_label_key, is_label_value
from rebalancer.scheduler.topology import HOSTNAME
from rebalancer.snapshot.labels import ZONE_KEYS, object_selector
from rebalancer.snapshot.load import Loader, load_snapshot
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.lists import JsonDecoder
from rebalancer.wire.pods import FINISHED
from rebalancer.wire.quantity import parse, share_of

Json = dict[str, Any]


@dataclass(slots=True)
class Objects:
    """The objects of a file, mutable; ``snapshot`` folds them."""

    metadata: Mapping[str, Any]
    items: list[Json]

    def of_kind(self, *kinds: str) -> list[Json]:
        """Return the objects of these kinds, in the order of the file."""
        return [item for item in self.items if item["kind"] in kinds]

    def find(self, kind: str, name: str, namespace: str = "") -> Json | None:
        """Return one object; None if there is none. The case of the kind is ignored."""
        for item in self.items:
            metadata = item["metadata"]
            named = (metadata.get("name"), metadata.get("namespace", "")) == (name, namespace)
            if named and item["kind"].lower() == kind.lower():
                return item
        return None

    def pods_of(self, controllers: set[str]) -> list[Json]:
        """Return the active pods of the controllers with these uids."""
        return [
            pod
            for pod in self.of_kind("Pod")
            if controller(pod).get("uid") in controllers and is_active(pod)
        ]

    def snapshot(self, finished: frozenset[str] = frozenset()) -> Snapshot:
        """Return the snapshot of the current objects; ``finished``: see ``load_snapshot``."""
        text = msgspec.json.encode(
            {"kind": "List", "apiVersion": "v1", "metadata": self.metadata, "items": self.items}
        )
        return load_snapshot("-", stdin=BytesIO(text), finished=finished)


def controller(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the reference to the object's controller; empty if it has none."""
    for reference in item["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return {}


def is_active(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is running or pending: not finished, not terminating."""
    finished = (pod.get("status") or {}).get("phase") in FINISHED
    return not finished and not pod["metadata"].get("deletionTimestamp")


def is_ready(item: Mapping[str, Any]) -> bool:
    """Return whether a pod or a node has the condition Ready."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def unschedule(pod: Json) -> Json:
    """Return the pod as its controller would recreate it: without node, status and times."""
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {**pod, "spec": spec, "status": {"phase": "Pending"}}


class _Plain:
    """Keeps the objects of a file as dictionaries; a sink of ``rebalancer.snapshot.load``."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.items: list[Json] = []

    def add_json(self, kind: str, text: bytes | msgspec.Raw) -> None:
        """Add one object."""
        self.seen[kind] += 1
        self.items.append({"kind": kind, **_plain.decode(text)})

    def add_run(self, kind: str, run: bytes) -> None:
        """Add the objects of a run in protobuf, without counting them."""
        from rebalancer.wire.protobuf.lists import plain_objects  # noqa: PLC0415

        self.items += ({"kind": kind, **item} for item in plain_objects(kind, run))


_plain = JsonDecoder(Json)


def read_objects(data: bytes) -> Objects:
    """Return the objects of a snapshot file that ``load_snapshot`` could read.

    A run decodes some parts of an object only if it needs them; here all parts are decoded.

    Raises:
        PolicyError: a part is damaged.
    """
    objects = _Plain()
    loader = Loader("the snapshot cannot be edited", objects)
    loader.read(BytesIO(data), seekable=True)
    return Objects(loader.metadata, objects.items)


def read_data(path: str, stdin: BinaryIO) -> bytes:
    """Return the bytes of a file; ``-`` is ``stdin``.

    Raises:
        PolicyError: the file cannot be read.
    """
    if path == "-":
        return stdin.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise PolicyError([f"{path}: cannot be read: {error.strerror or error}"]) from None


def renew_budgets(objects: Objects) -> None:
    """Update the status of every PodDisruptionBudget whose controllers are all known; leave the others."""
    replicas = _replicas(objects)
    for budget in objects.of_kind("PodDisruptionBudget"):
        spec, namespace = budget.get("spec") or {}, budget["metadata"].get("namespace")
        selects = object_selector(spec.get("selector"))
        pods = [
            pod
            for pod in objects.of_kind("Pod")
            if pod["metadata"].get("namespace") == namespace
            and is_active(pod)
            and selects(pod["metadata"].get("labels") or {})
        ]
        expected = _count_expected(spec, pods, replicas)
        if expected is None:
            continue
        total, desired = expected
        healthy = sum(is_ready(pod) for pod in pods)
        budget["status"] = {
            **(budget.get("status") or {}),
            "expectedPods": total,
            "desiredHealthy": desired,
            "currentHealthy": healthy,
            "disruptionsAllowed": max(0, healthy - desired) if total else 0,
        }


def _replicas(objects: Objects) -> dict[str, int]:
    """Return uid -> desired replicas, for all pod controllers. A ReplicaSet gets the number of its Deployment."""
    wanted: dict[str, int] = {}
    makers = objects.of_kind("Deployment", "StatefulSet", "ReplicationController", "ReplicaSet")
    for maker in makers:
        above = wanted.get(controller(maker).get("uid", ""))
        own = (maker.get("spec") or {}).get("replicas", 1)
        wanted[maker["metadata"].get("uid", "")] = int(own) if above is None else above
    return wanted


def _count_expected(
    spec: Json, pods: list[Json], replicas: dict[str, int]
) -> tuple[int, int] | None:
    """Return (expected pods, desired healthy pods); None if unknown."""
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if most is None and not isinstance(least, str):
        return len(pods), least or 0
    uids = {controller(pod).get("uid", "") for pod in pods}
    if not uids <= replicas.keys():
        return None
    total = sum(replicas[uid] for uid in uids)
    try:
        if most is not None:
            return total, max(0, total - share_of(most, total, up=True))
        return total, share_of(least or 0, total, up=True)
    except ValueError:
        return None


_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_AMOUNTS = ("cpu", "memory", "pods")
_KEYS = ("zone", "like", *_AMOUNTS)


@dataclass(frozen=True, slots=True)
class NodeToAdd:
    """A node to add: its name, and how it differs from another node."""

    name: str
    like: str | None = None
    """Node to copy; None: the commonest shape among Ready nodes without taints."""
    zone: str | None = None
    allocatable: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> NodeToAdd:
        """Parse ``NAME[:key=value,...]``; keys are zone, like, cpu, memory, pods, or labels.

        Raises:
            PolicyError: the text has another form.
        """
        name, _, settings = text.partition(":")
        given: dict[str, str] = {}
        for part in filter(None, settings.split(",")):
            key, equals, value = part.partition("=")
            if not key or not equals:
                raise PolicyError([f"--add-node {text}: {part!r} is no key=value"])
            given[key] = value
        if not name:
            raise PolicyError([f"--add-node {text}: write NAME[:zone=ZONE,cpu=4,memory=16Gi,...]"])
        _check_labels(text, given)
        amounts = {key: given.pop(key) for key in _AMOUNTS if key in given}
        for key, value in amounts.items():
            try:
                parse(value)
            except ValueError as error:
                raise PolicyError([f"--add-node {text}: {key}: {error}"]) from None
        return NodeToAdd(name, given.pop("like", None), given.pop("zone", None), amounts, given)


def _check_labels(text: str, given: Mapping[str, str]) -> None:
    """Reject what is neither one of our keys nor a label; a label similar to one of our keys needs a prefix."""
    for key, value in given.items():
        if key in _KEYS:
            continue
        near = difflib.get_close_matches(key.lower(), _KEYS, 1, cutoff=0.75)
        if near:
            raise PolicyError([f"--add-node {text}: there is no key {key}; is {near[0]} meant?"])
        if not (is_label_key(key) and is_label_value(value)):
            keys = ", ".join(_KEYS)
            raise PolicyError([f"--add-node {text}: {key}={value} is none of {keys}, and no label"])


def add_node(objects: Objects, new: NodeToAdd) -> None:
    """Add a Ready, empty node with the DaemonSet pods of the node it is modelled on.

    Raises:
        PolicyError: the name is taken, or there is no node to copy.
    """
    if objects.find("Node", new.name) is not None:
        raise PolicyError([f"--add-node {new.name}: there is a node of this name"])
    model = _model(objects, new)
    node: Json = copy.deepcopy(model)
    metadata = node["metadata"]
    labels = {**(metadata.get("labels") or {}), HOSTNAME: new.name}
    if new.zone is not None:
        carried = [key for key in ZONE_KEYS if key in labels] or [ZONE_KEYS[0]]
        labels |= dict.fromkeys(carried, new.zone)
    node["metadata"] = {"name": new.name, "uid": new.name, "labels": {**labels, **new.labels}}
    node["spec"] = {}
    allocatable = {**(node["status"].get("allocatable") or {}), **new.allocatable}
    node["status"] = {
        "allocatable": allocatable,
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": node["status"].get("nodeInfo") or {},
    }
    objects.items.append(node)
    _copy_daemons(objects, model["metadata"]["name"], new.name)


def _model(objects: Objects, new: NodeToAdd) -> Json:
    if new.like is not None:
        return _node(objects, new.like, f"--add-node {new.name}: there is no node {new.like}")
    usable = [
        node
        for node in objects.of_kind("Node")
        if is_ready(node) and not (node.get("spec") or {}).get("taints")
    ] or objects.of_kind("Node")
    if not usable:
        raise PolicyError([f"--add-node {new.name}: there is no node to copy everything else from"])
    shapes = Counter(_shape(node) for node in usable)
    return min(usable, key=lambda node: (-shapes[_shape(node)], node["metadata"]["name"]))


def _node(objects: Objects, name: str, error: str) -> Json:
    """Return the node ``name``.

    Raises:
        PolicyError: there is none; the message begins with ``error``.
    """
    if (node := objects.find("Node", name)) is None:
        names = [one["metadata"]["name"] for one in objects.of_kind("Node")]
        raise PolicyError([f"{error}{did_you_mean(name, names, listed=FEW)}"])
    return node


def _shape(node: Json) -> tuple[str, ...]:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return tuple(str(allocatable.get(key)) for key in _AMOUNTS)


def _copy_daemons(objects: Objects, source: str, target: str) -> None:
    for pod in objects.of_kind("Pod"):
        if pod["spec"].get("nodeName") != source or not is_active(pod):
            continue
        if controller(pod).get("kind") != "DaemonSet":
            continue
        twin = copy.deepcopy(pod)
        twin["metadata"]["name"] = f"{pod['metadata']['name']}-{target}"
        twin["metadata"]["uid"] = f"{_uid(pod)}/{target}"
        # Its affinity names the node that it was made for (matchFields metadata.name).
        twin["spec"] = {k: v for k, v in twin["spec"].items() if k != "affinity"}
        twin["spec"]["nodeName"] = target
        objects.items.append(twin)


def _uid(pod: Json) -> str:
    """Return the uid of a pod; one that a generated file lacks is made of the pod's namespace and name."""
    metadata = pod["metadata"]
    return metadata.get("uid") or f"{metadata.get('namespace')}/{metadata['name']}"


def cordon_node(objects: Objects, name: str) -> None:
    """Cordon a node, with the taint that the node lifecycle controller adds.

    Source: ``pkg/controller/nodelifecycle/node_lifecycle_controller.go``.

    Raises:
        PolicyError: there is no such node.
    """
    node = _node(objects, name, f"--cordon {name}: there is no node of this name")
    spec = dict(node.get("spec") or {})
    others = [taint for taint in spec.get("taints") or () if taint.get("key") != _UNSCHEDULABLE]
    taints = [*others, {"key": _UNSCHEDULABLE, "effect": "NoSchedule"}]
    node["spec"] = {**spec, "unschedulable": True, "taints": taints}


def lose_zone(objects: Objects, zone: str) -> list[str]:
    """Remove all nodes of a zone, each as :func:`remove_node` does; return their names.

    Raises:
        PolicyError: no node is in this zone.
    """
    zones: dict[str, list[str]] = {}
    for node in objects.of_kind("Node"):
        labels = node["metadata"].get("labels") or {}
        # As on the node itself: of two labels, the one that is not deprecated.
        of_node = next((labels[key] for key in ZONE_KEYS if key in labels), "")
        zones.setdefault(of_node, []).append(node["metadata"]["name"])
    if not zone or zone not in zones:
        meant = did_you_mean(zone, list(filter(None, zones)))
        raise PolicyError([f"--lose-zone {zone}: no node is in this zone{meant}"])
    for name in zones[zone]:
        remove_node(objects, name)
    return zones[zone]


def remove_node(objects: Objects, name: str) -> None:
    """Remove a node. Pods whose controller recreates them become pending, others are deleted.

    Raises:
        PolicyError: there is no such node.
    """
    _node(objects, name, f"--remove-node {name}: there is no node of this name")
    kept: list[Json] = []
    for item in objects.items:
        if item["kind"] in ("Node", "CSINode") and item["metadata"]["name"] == name:
            continue
        if item["kind"] != "Pod" or item["spec"].get("nodeName") != name:
            kept.append(item)
        elif is_active(item) and controller(item).get("kind") not in (None, "DaemonSet", "Node"):
            again = unschedule(item)
            uid = f"{_uid(item)}/again"
            kept.append({**again, "metadata": {**item["metadata"], "uid": uid}})
    objects.items[:] = kept
