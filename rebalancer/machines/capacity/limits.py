"""Limits on the total of all machines of the cluster: ``capacity.maxNodes`` and ``capacity.total``.

Amounts are those of ``status.capacity``, and a part of a core counts as a whole one, as in Cluster Autoscaler's
``--cores-total``, ``--memory-total`` and ``--gpu-total`` (``core/utils: GetNodeCoresAndMemory``). Machines that are no
nodes yet count like a new node of their group (``core/scaleup/resource: coresMemoryTotal``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from rebalancer.machines.capacity.groups import Groups, GroupTemplate, size_of_cluster, sizes_of
from rebalancer.machines.reasons import GroupCode, NodeStays, NotIncreased, Reason, RemovalCode
from rebalancer.policy.cluster import CapacitySettings
from rebalancer.snapshot.columns import Ints
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.quantity import format_resource, parse_resource

_CORE = 1000
_Amounts = TypeVar("_Amounts", int, Ints)


class Ceiling:
    """The number of nodes that groups may still add to the cluster."""

    def __init__(
        self,
        snapshot: Snapshot,
        groups: Groups,
        templates: Mapping[str, GroupTemplate | None],
        settings: CapacitySettings,
    ) -> None:
        whole = size_of_cluster(snapshot, groups)
        most = self._most_nodes = settings.max_nodes
        self._nodes = None if most is None else most - whole.registered - whole.unregistered
        self._most = {
            name: parse_resource(name, total.max)
            for name, total in sorted(settings.total.items())
            if total.max is not None
        }
        self._templates = templates
        self._have: Counter[str] = Counter()
        self._unknown = ""
        """A group with machines that are no nodes yet, and whose resources are unknown."""
        for name in self._most:
            self._have[name] = int(_count_in_wholes(snapshot, name).sum())
        for group, sizes in sizes_of(snapshot, groups).items():
            template = templates[group]
            if template is not None:
                self._have += self._amounts(template, sizes.unregistered)
            elif sizes.unregistered:
                self._unknown = group

    def _amounts(self, template: GroupTemplate, count: int) -> Counter[str]:
        """Return what so many new nodes have of the limited resources."""
        return Counter(
            {name: count * _in_wholes(name, template.capacity.get(name, 0)) for name in self._most}
        )

    def room(self, template: GroupTemplate | None, new: Counter[str]) -> int | None:
        """Return how many more nodes there may be of a template; None: as many as one likes.

        ``new``, here and below: group -> how many nodes are to be added to it already.
        """
        rooms = [] if self._nodes is None else [self._nodes - new.total()]
        if template is not None:
            have = self._count(new)
            for name, one in self._amounts(template, 1).items():
                if one:
                    left = 0 if self._unknown else self._most[name] - have[name]
                    rooms.append(left // one)
        return max(0, min(rooms)) if rooms else None

    def allows(self, new: Counter[str]) -> bool:
        """Return whether these numbers of new nodes exceed no limit."""
        have = self._count(new)
        return (self._nodes is None or new.total() <= self._nodes) and all(
            have[name] <= most for name, most in self._most.items()
        )

    def why_not(self, template: GroupTemplate, new: Counter[str]) -> Reason[GroupCode] | None:
        """Return the limit that forbids one more node of a template; None if none does."""
        if self._nodes is not None and new.total() >= self._nodes:
            return NotIncreased.CLUSTER_FULL.of(most=self._most_nodes)
        have = self._count(new)
        for name, one in self._amounts(template, 1).items():
            if not one:
                continue
            if self._unknown:
                return NotIncreased.TOTAL_UNKNOWN.of(group=self._unknown, resource=name)
            if have[name] + one > self._most[name]:
                return NotIncreased.TOTAL_REACHED.of(
                    **_facts(name, have=have[name], most=self._most[name], own=one)
                )
        return None

    def _count(self, new: Counter[str]) -> Counter[str]:
        have = Counter(self._have)
        for group, count in new.items():
            # Only a group with a template has new nodes.
            if (template := self._templates[group]) is not None:
                have.update(self._amounts(template, count))
        return have


class Floor:
    """The nodes that may still be removed from the cluster. Leaving nodes do not count any more.

    Source: ``core/scaledown/resource: LimitsLeft``.
    """

    def __init__(self, snapshot: Snapshot, settings: CapacitySettings) -> None:
        self._amounts: dict[str, Ints] = {}
        self._least: dict[str, int] = {}
        self._have: dict[str, int] = {}
        for name, total in sorted(settings.total.items()):
            if total.min is not None:
                amounts = self._amounts[name] = _count_in_wholes(snapshot, name)
                self._least[name] = parse_resource(name, total.min)
                self._have[name] = int(amounts[~snapshot.nodes.leaving].sum())

    def why_not(self, node: int) -> Reason[RemovalCode] | None:
        """Return the limit below which the cluster would fall without a node; None if there is none."""
        for name, least in self._least.items():
            own, have = int(self._amounts[name][node]), self._have[name]
            if own and have - own < least:
                return NodeStays.MIN_TOTAL.of(**_facts(name, have=have, least=least, own=own))
        return None

    def take(self, node: int) -> None:
        """Count a node as removed."""
        for name, amounts in self._amounts.items():
            self._have[name] -= int(amounts[node])


def _facts(resource: str, **amounts: int) -> dict[str, str]:
    texts = {fact: format_resource(resource, amount) for fact, amount in amounts.items()}
    return {"resource": resource, **texts}


def _in_wholes(name: str, amount: _Amounts) -> _Amounts:
    """Return an amount, or several, in base units; cores are whole ones."""
    return -(-amount // _CORE) * _CORE if name == "cpu" else amount


def _count_in_wholes(snapshot: Snapshot, name: str) -> Ints:
    """Return what each node (N,) has of a resource, in base units; cores are whole ones."""
    if name not in snapshot.resources:
        return np.zeros(len(snapshot.nodes), np.int64)
    return _in_wholes(name, snapshot.nodes.capacity[snapshot.resources.index(name)])
