"""Node columns: from Node objects, and with additional nodes that do not exist yet."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rebalancer.snapshot.columns import Bools, Int32s, Interner, Ints, freeze
from rebalancer.snapshot.labels import NodeLabels
from rebalancer.snapshot.leaving import is_leaving, notices_of
from rebalancer.snapshot.model import Nodes, Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.objects import Container, SchedulingSpec
from rebalancer.wire.quantity import parse, parse_resource
from rebalancer.wire.times import unix_seconds

Amounts = dict[str, int]

MAX_AMOUNT = 2**52
"""More than any node has of anything (4 PiB of memory). Larger amounts count as this one.

The API admits quantities up to 2^63, and sums beyond: such a pod fits on no node, but must not prevent a run from
handling all others. Sums over the pods of a node stay within int64, and whole numbers within float64.
"""

# k8s.io/kubernetes/pkg/scheduler/util: what a container without a request counts for when scored.
DEFAULT_SCORED: Mapping[str, int] = {"cpu": 100, "memory": 200 * 1024 * 1024}
# KEP-2837: the resources that may be set at pod level.
_POD_LEVEL = ("cpu", "memory")


_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def version_numbers_of(text: str) -> tuple[int, int, int] | None:
    """Parse a kubelet's version, such as ``v1.36.3-eks-1234``, without its suffix; None if the text is not a version."""
    match = _VERSION.match(text)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3] or 0))


def is_extended(resource: str) -> bool:
    """Return whether device plug-ins can offer a resource (``IsExtendedResourceName``)."""
    return (
        "/" in resource
        and "kubernetes.io/" not in resource
        and not resource.startswith("requests.")
    )


def pod_requests(spec: SchedulingSpec, defaults: Mapping[str, int] | None = None) -> Amounts:
    """Return the effective request of a pod, per resource, in base units.

    Containers add up; init containers run one by one beside the sidecars started before them, so the
    larger of both phases counts (KEP-753); pod-level requests replace the sums (KEP-2837); overhead
    comes on top. ``defaults`` replace missing container requests, as in the scheduler's
    scoring (``DEFAULT_SCORED``). Source: ``k8s.io/component-helpers/resource.PodRequests``.

    Raises:
        ValueError: a quantity cannot be parsed.
    """
    total: Amounts = {}
    for container in spec.containers:
        _add(total, _container(container, defaults))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers or ():
        amounts = _container(container, defaults)
        if container.restart_policy == "Always":
            _add(total, amounts)
            _add(sidecars, amounts)
            amounts = dict(sidecars)
        else:
            _add(amounts, sidecars)
        _raise_to(peak, amounts)
    _raise_to(total, peak)
    if spec.resources is not None:
        for name, text in (spec.resources.requests or spec.resources.limits or {}).items():
            if name in _POD_LEVEL or name.startswith("hugepages-"):
                total[name] = _amount(name, text)
    _add(total, {name: _amount(name, text) for name, text in (spec.overhead or {}).items()})
    return total


def score_requests(spec: SchedulingSpec) -> Amounts:
    """Return the requests of a running pod for scoring nodes: defaults replace missing requests.

    With pod-level requests, the defaults replace only what these lack
    (``pkg/scheduler/framework.PodInfo.CalculateResource``). Raises as :func:`pod_requests`.
    """
    defaults = DEFAULT_SCORED
    if spec.resources is not None and spec.resources.requests:
        asked = pod_requests(spec)
        defaults = {name: amount for name, amount in defaults.items() if name not in asked}
    return pod_requests(spec, defaults)


def _container(container: Container, defaults: Mapping[str, int] | None) -> Amounts:
    amounts: Amounts = dict(defaults or {})
    if container.resources is not None:
        # The API server defaults requests to limits on pods, not on the templates we also read.
        for source in (container.resources.limits, container.resources.requests):
            for name, text in (source or {}).items():
                amounts[name] = _amount(name, text)
    return amounts


def _amount(name: str, text: str | float) -> int:
    # A negative amount, which only a file can have, is left to be seen: nothing is predicted of such a pod.
    return max(-MAX_AMOUNT, min(MAX_AMOUNT, parse_resource(name, text)))


def _add(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = min(MAX_AMOUNT, total.get(name, 0) + amount)


def _raise_to(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = max(total.get(name, 0), amount)


STARTUP = 900.0
"""Seconds for which a node that is not Ready counts as one that starts (Cluster Autoscaler: ``MaxNodeStartupTime``)."""
_STARTUP_TAINTS = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
"""Prefixes of the keys of taints that a node has until it is ready for pods (Cluster Autoscaler's FAQ)."""
UNREGISTERED = "karpenter.sh/unregistered"
"""Key of the taint of a node until Karpenter has seen that it is there."""
STATE_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""How the keys of taints begin that show a node's state: set and removed by the cluster itself, a cordon among them."""
_NOT_READY_TAINTS = frozenset(
    f"node.kubernetes.io/{key}" for key in ("not-ready", "disk-pressure", "network-unavailable")
)
"""A node that has one is not ready, whatever its condition says (Cluster Autoscaler: ``GetReadinessState``). The first one is
removed a moment after the kubelet has reported that the node is ready."""


def is_startup(taint: o.Taint, keys: Collection[str]) -> bool:
    """Return whether a taint is a startup taint, which is removed when the node is ready for pods.

    ``keys``: those of ``capacity.startupTaints``, beside the ones that always count.
    """
    known = taint.key in keys or taint.key in _NOT_READY_TAINTS or taint.key == UNREGISTERED
    return known or taint.key.startswith(_STARTUP_TAINTS)


def find_starting(nodes: Nodes, now: float, keys: Collection[str]) -> Bools:
    """Return the new nodes (N,) that are not ready for pods yet and are not cordoned; ``keys``: see :func:`is_startup`."""
    of_sets = np.array(
        [any(is_startup(one, keys) for one in of) for of in nodes.taint_sets] or [False]
    )
    young = now - nodes.created < STARTUP
    waits: Bools = young & (of_sets[nodes.taint_set] | ~nodes.ready)
    return waits & ~nodes.leaving & ~nodes.unschedulable


def as_started(nodes: Nodes, which: Bools, keys: Collection[str]) -> Nodes:
    """Return ``nodes``, with those in ``which`` (N,) changed to be ready for pods; ``keys``: see :func:`is_startup`."""
    sets = tuple(tuple(one for one in of if not is_startup(one, keys)) for of in nodes.taint_sets)
    taint_set = np.where(which, nodes.taint_set + len(sets), nodes.taint_set).astype(np.int32)
    return replace(
        nodes,
        ready=freeze(nodes.ready | which),
        taint_set=freeze(taint_set),
        taint_sets=(*nodes.taint_sets, *sets),
    )


UNSCHEDULABLE = o.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_CSI = "kubernetes.io/csi/"
"""Begins the names of attached volumes of CSI drivers (``pkg/volume/csi``)."""


def fold_nodes(
    objects: Sequence[o.Node], csi_nodes: Mapping[str, o.CSINode], resources: Sequence[str]
) -> Nodes:
    """Return the columns of ``objects``, ordered by name, with the given resource axis."""
    ordered = sorted(objects, key=lambda node: node.metadata.name)
    names = tuple(node.metadata.name for node in ordered)
    unreadable: dict[int, str] = {}
    allocatable = np.zeros((len(resources), len(names)), np.int64)
    max_pods = np.zeros(len(names), np.int32)
    for row, node in enumerate(ordered):
        try:
            max_pods[row] = fold_amounts(
                node.status.allocatable or {}, resources, allocatable[:, row]
            )
        except (ValueError, OverflowError) as error:
            allocatable[:, row] = 0
            unreadable[row] = f"allocatable: {error}"
    taint_sets, taint_set = _fold_taints(ordered)
    conditions = [_ready(node) for node in ordered]
    notices = [notices_of(node) for node in ordered]
    attach_limits = _fold_attach_limits(names, csi_nodes)
    return Nodes(
        names=names,
        uid=tuple(node.metadata.uid for node in ordered),
        labels=NodeLabels(names, [node.metadata.labels or {} for node in ordered]),
        allocatable=allocatable,
        capacity=_fold_capacity(ordered, resources, allocatable),
        max_pods=max_pods,
        taint_set=taint_set,
        taint_sets=taint_sets,
        unschedulable=np.array([node.spec.unschedulable for node in ordered], bool),
        ready=np.array([ready for ready, *_ in conditions], bool),
        leaving=np.array(list(map(is_leaving, ordered, notices)), bool),
        notices={row: of for row, of in enumerate(notices) if of},
        kubelet=tuple(
            n.status.node_info.kubelet_version if n.status.node_info else "" for n in ordered
        ),
        provider_id=tuple(node.spec.provider_id for node in ordered),
        created=np.array([unix_seconds(n.metadata.creation_timestamp) for n in ordered], float),
        ready_since=np.array([since for _, since, _ in conditions], float),
        heartbeat=np.array([heartbeat for *_, heartbeat in conditions], float),
        images=_fold_images(ordered),
        attach_limits=attach_limits,
        attached=_fold_attached(ordered, attach_limits),
        index={name: row for row, name in enumerate(names)},
        declared_features=_fold_features(ordered),
        unreadable=unreadable,
    )


def fold_amounts(
    amounts: Mapping[str, str | int | float], resources: Sequence[str], column: Ints
) -> int:
    """Write the amounts of the resources into ``column`` (R,) in base units; return the amount of pods.

    Raises:
        ValueError: an amount is not a quantity, or is negative.
        OverflowError: an amount is far too large.
    """
    for row, resource in enumerate(resources):
        amount = parse_resource(resource, amounts.get(resource, 0))
        if amount < 0:
            raise ValueError(f"{resource} is negative ({amounts[resource]})")
        column[row] = min(MAX_AMOUNT, amount)
    return min(parse(amounts.get("pods", 0)), 2**31 - 1)


def _fold_capacity(nodes: Sequence[o.Node], resources: Sequence[str], allocatable: Ints) -> Ints:
    """Return the capacity of each machine (R, N), at least its allocatable resources. An unreadable quantity counts as missing."""
    capacity = np.zeros_like(allocatable)
    for row, node in enumerate(nodes):
        try:
            fold_amounts(node.status.capacity or {}, resources, capacity[:, row])
        except (ValueError, OverflowError):
            capacity[:, row] = 0
    whole: Ints = np.maximum(capacity, allocatable)
    return whole


def _fold_taints(nodes: Sequence[o.Node]) -> tuple[tuple[tuple[o.Taint, ...], ...], Int32s]:
    ids: dict[tuple[o.Taint, ...], int] = {}
    column = np.zeros(len(nodes), np.int32)
    for row, node in enumerate(nodes):
        taints = tuple(node.spec.taints or ())
        column[row] = ids.setdefault(taints, len(ids))
    return tuple(ids), column


def _ready(node: o.Node) -> tuple[bool, float, float]:
    """Return whether a node is Ready, since when (Unix seconds), and the time of its newest heartbeat."""
    ready, since, heartbeat = False, 0.0, 0.0
    for condition in node.status.conditions or ():
        if condition.type == "Ready":
            ready = condition.status == "True"
            since = unix_seconds(condition.last_transition_time)
        heartbeat = max(heartbeat, unix_seconds(condition.last_heartbeat_time))
    return ready, since, heartbeat


def _fold_images(nodes: Sequence[o.Node]) -> dict[str, tuple[int, Int32s]]:
    names = Interner()
    sizes: list[int] = []
    holders: list[list[int]] = []
    for row, node in enumerate(nodes):
        for image in node.status.images or ():
            for name in image.names or ():
                index = names(name)
                if index == len(sizes):
                    sizes.append(image.size_bytes)
                    holders.append([])
                if not holders[index] or holders[index][-1] != row:
                    holders[index].append(row)
    return {
        name: (size, np.array(holding, np.int32))
        for name, size, holding in zip(names.values, sizes, holders, strict=True)
    }


def _fold_features(nodes: Sequence[o.Node]) -> dict[str, Bools]:
    features: dict[str, Bools] = {}
    for row, node in enumerate(nodes):
        for feature in node.status.declared_features or ():
            features.setdefault(feature, np.zeros(len(nodes), bool))[row] = True
    return features


def _fold_attach_limits(
    names: Sequence[str], csi_nodes: Mapping[str, o.CSINode]
) -> dict[str, Ints]:
    limits: dict[str, Ints] = {}
    for row, name in enumerate(names):
        csi_node = csi_nodes.get(name)
        for driver in (csi_node.spec.drivers or ()) if csi_node is not None else ():
            if driver.allocatable is not None and driver.allocatable.count is not None:
                of_driver = limits.setdefault(driver.name, np.full(len(names), -1, np.int64))
                of_driver[row] = driver.allocatable.count
    return limits


def _fold_attached(
    nodes: Sequence[o.Node], drivers: Collection[str]
) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return driver -> (volume handle, node row) pairs that node status reports as attached."""
    attached: dict[str, list[tuple[str, int]]] = {}
    for row, node in enumerate(nodes if drivers else ()):
        for volume in node.status.volumes_attached or ():
            driver, _, handle = volume.name.removeprefix(_CSI).partition("^")
            if driver in drivers:
                attached.setdefault(driver, []).append((handle, row))
    return {driver: tuple(of_driver) for driver, of_driver in attached.items()}


_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class AddedNode:
    """A Ready node without pods."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[o.Taint, ...]
    allocatable: Ints
    """(R,) over the snapshot's resources."""
    max_pods: int
    like: int | None = None
    """The node whose kubelet, attach limits and declared features it has; None: nothing is known of these."""


def with_nodes(snapshot: Snapshot, added: Sequence[AddedNode]) -> Snapshot:
    """Return ``snapshot`` with nodes appended after its own, whose rows do not change; usage is dropped.

    The new nodes have no images yet, and what is allocated already cannot be used there. A new node that is not modelled on an existing one (``like``) has no limit of
    attached volumes.
    """
    if not added:
        return snapshot
    nodes = snapshot.nodes
    names = (*nodes.names, *(node.name for node in added))
    like = np.array([-1 if node.like is None else node.like for node in added], np.int64)
    zeros, at = np.zeros(len(added), bool), np.full(len(added), snapshot.captured_at)
    labels = [nodes.labels.of(row) for row in range(len(nodes))]
    taint_sets, taint_set = _more_taints(nodes, added)
    devices = snapshot.devices
    if devices is not None:
        pinned = {cls: _longer(nodes_of, zeros) for cls, nodes_of in devices.pinned.items()}
        none = zeros.astype(np.int64)
        preferred = {cls: _longer(score, none) for cls, score in devices.preferred.items()}
        devices = replace(devices, pinned=pinned, preferred=preferred)
    return replace(
        snapshot,
        usage=None,
        devices=devices,
        nodes=replace(
            nodes,
            names=names,
            uid=(*nodes.uid, *("" for _ in added)),
            labels=NodeLabels(names, [*labels, *(node.labels for node in added)]),
            allocatable=freeze(
                np.hstack([nodes.allocatable, *(node.allocatable[:, None] for node in added)])
            ),
            capacity=freeze(
                np.hstack([nodes.capacity, *(node.allocatable[:, None] for node in added)])
            ),
            max_pods=_longer(nodes.max_pods, np.array([node.max_pods for node in added], np.int32)),
            taint_sets=taint_sets,
            taint_set=taint_set,
            unschedulable=_longer(nodes.unschedulable, zeros),
            ready=_longer(nodes.ready, ~zeros),
            leaving=_longer(nodes.leaving, zeros),
            kubelet=(*nodes.kubelet, *("" if row < 0 else nodes.kubelet[row] for row in like)),
            provider_id=(*nodes.provider_id, *("" for _ in added)),
            created=_longer(nodes.created, at),
            ready_since=_longer(nodes.ready_since, at),
            heartbeat=_longer(nodes.heartbeat, at),
            attach_limits={
                driver: _longer(limits, np.where(like >= 0, limits[like], -1))
                for driver, limits in nodes.attach_limits.items()
            },
            index={name: row for row, name in enumerate(names)},
            declared_features={
                feature: _longer(has, (like >= 0) & has[like])
                for feature, has in nodes.declared_features.items()
            },
            avoided=None if nodes.avoided is None else _longer(nodes.avoided, zeros),
        ),
    )


def _longer(column: NDArray[_Number], more: NDArray[np.generic]) -> NDArray[_Number]:
    return freeze(np.concatenate([column, more.astype(column.dtype)]))


def _more_taints(
    nodes: Nodes, added: Sequence[AddedNode]
) -> tuple[tuple[tuple[o.Taint, ...], ...], Int32s]:
    ids = {taints: number for number, taints in enumerate(nodes.taint_sets)}
    more = [ids.setdefault(node.taints, len(ids)) for node in added]
    return tuple(ids), _longer(nodes.taint_set, np.array(more, np.int32))
