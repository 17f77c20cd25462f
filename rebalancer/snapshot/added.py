"""Add hypothetical nodes to a snapshot, to predict the effect of scaling up a group of machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rebalancer.snapshot.columns import Int32s, Ints, freeze
from rebalancer.snapshot.labels import NodeLabels
from rebalancer.snapshot.model import Nodes, Snapshot
from rebalancer.wire import objects as o

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

    The new nodes have no images yet. A new node that is not modelled on an existing one (``like``) has no limit of
    attached volumes.
    """
    if not added:
        return snapshot
    nodes = snapshot.nodes
    names = (*nodes.names, *(node.name for node in added))
    like = np.array([-1 if node.like is None else node.like for node in added], np.int64)
    zeros, at = np.zeros(len(added), bool), np.full(len(added), snapshot.captured_at)
    labels = [nodes.labels.of(row) for row in range(len(nodes))]
    taint_sets, taint_set = _taints(nodes, added)
    return replace(
        snapshot,
        usage=None,
        nodes=replace(
            nodes,
            names=names,
            uid=(*nodes.uid, *("" for _ in added)),
            labels=NodeLabels(names, [*labels, *(node.labels for node in added)]),
            allocatable=freeze(
                np.hstack([nodes.allocatable, *(node.allocatable[:, None] for node in added)])
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


def _taints(
    nodes: Nodes, added: Sequence[AddedNode]
) -> tuple[tuple[tuple[o.Taint, ...], ...], Int32s]:
    ids = {taints: number for number, taints in enumerate(nodes.taint_sets)}
    more = [ids.setdefault(node.taints, len(ids)) for node in added]
    return tuple(ids), _longer(nodes.taint_set, np.array(more, np.int32))
