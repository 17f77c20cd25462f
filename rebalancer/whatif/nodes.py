"""What-if edits of nodes: add, cordon or remove nodes."""

from __future__ import annotations

import copy
import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rebalancer.base.errors import PolicyError
from rebalancer.snapshot.labels import ZONE_KEYS
from rebalancer.whatif.objects import (
    Json,
    Objects,
    controller,
    is_active,
    is_ready,
    unschedule,
)
from rebalancer.wire.label_syntax import is_label_key, is_label_value
from rebalancer.wire.quantity import parse

_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_HOSTNAME = "kubernetes.io/hostname"
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
    labels = {**(metadata.get("labels") or {}), _HOSTNAME: new.name}
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
        node = objects.find("Node", new.like)
        if node is None:
            raise PolicyError([f"--add-node {new.name}: there is no node {new.like}"])
        return node
    usable = [
        node
        for node in objects.of_kind("Node")
        if is_ready(node) and not (node.get("spec") or {}).get("taints")
    ] or objects.of_kind("Node")
    if not usable:
        raise PolicyError([f"--add-node {new.name}: there is no node to copy everything else from"])
    shapes = Counter(_shape(node) for node in usable)
    return min(usable, key=lambda node: (-shapes[_shape(node)], node["metadata"]["name"]))


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
        twin["metadata"]["uid"] = f"{pod['metadata'].get('uid')}/{target}"
        # Its affinity names the node that it was made for (matchFields metadata.name).
        twin["spec"] = {k: v for k, v in twin["spec"].items() if k != "affinity"}
        twin["spec"]["nodeName"] = target
        objects.items.append(twin)


def cordon_node(objects: Objects, name: str) -> None:
    """Cordon a node, with the taint that the node lifecycle controller adds.

    Source: ``pkg/controller/nodelifecycle/node_lifecycle_controller.go``.

    Raises:
        PolicyError: there is no such node.
    """
    node = objects.find("Node", name)
    if node is None:
        raise PolicyError([f"--cordon {name}: there is no node of this name"])
    spec = dict(node.get("spec") or {})
    others = [taint for taint in spec.get("taints") or () if taint.get("key") != _UNSCHEDULABLE]
    taints = [*others, {"key": _UNSCHEDULABLE, "effect": "NoSchedule"}]
    node["spec"] = {**spec, "unschedulable": True, "taints": taints}


def lose_zone(objects: Objects, zone: str) -> None:
    """Remove all nodes of a zone, each as :func:`remove_node` does.

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
        known = ", ".join(sorted(filter(None, zones))) or "none"
        raise PolicyError([f"--lose-zone {zone}: no node is in this zone; zones: {known}"])
    for name in zones[zone]:
        remove_node(objects, name)


def remove_node(objects: Objects, name: str) -> None:
    """Remove a node. Pods whose controller recreates them become pending, others are deleted.

    Raises:
        PolicyError: there is no such node.
    """
    if objects.find("Node", name) is None:
        raise PolicyError([f"--remove-node {name}: there is no node of this name"])
    kept: list[Json] = []
    for item in objects.items:
        if item["kind"] in ("Node", "CSINode") and item["metadata"]["name"] == name:
            continue
        if item["kind"] != "Pod" or item["spec"].get("nodeName") != name:
            kept.append(item)
        elif is_active(item) and controller(item).get("kind") not in (None, "DaemonSet", "Node"):
            again = unschedule(item)
            uid = f"{item['metadata'].get('uid')}/again"
            kept.append({**again, "metadata": {**item["metadata"], "uid": uid}})
    objects.items[:] = kept
