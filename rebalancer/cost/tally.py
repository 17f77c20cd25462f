"""Count many groups at once, to find those of thousands of rules that are satisfied for sure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rebalancer.cost.groups import Counted, Domains
from rebalancer.cost.term import View
from rebalancer.snapshot.columns import Bools, Int32s, Ints

# Up to so many counters a table is filled; above, the pairs that occur are sorted.
_TABLE = 4_000_000


def satisfied(view: View, groups: Sequence[Any]) -> Bools:
    """Return which groups (G,) certainly have a potential of 0 in the snapshot.

    Only groups that implement :class:`Counted` are judged. The state must be the snapshot's. The time is
    proportional to the pods of the groups' members, plus one call of Python per group.
    """
    holds = np.zeros(len(groups), bool)
    by_domains: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        # Not isinstance: for a protocol that takes longer than the counting.
        if hasattr(group, "satisfied"):
            by_domains.setdefault(id(group.domains), []).append(index)
    for indices in by_domains.values():
        counted: list[Counted] = [groups[index] for index in indices]
        least, most = _extremes(view, counted[0].domains, [group.members for group in counted])
        holds[indices] = [
            group.satisfied(low, high)
            for group, low, high in zip(counted, least.tolist(), most.tolist(), strict=True)
        ]
    return holds


def _extremes(view: View, domains: Domains, members: Sequence[Int32s]) -> tuple[Ints, Ints]:
    """Return the smallest and largest count of each group (G,) over its domains; 0 if it has none."""
    size = max(1, len(domains.names))
    group, cls = _pairs(members)
    place, pods = view.state.pods_of_many(cls)
    group = group[place]
    nodes = view.snapshot.pods.node[pods]
    domain = domains.of_node[nodes]
    inside = (nodes >= 0) & (domain >= 0)
    of_group, counts = _counted(group[inside].astype(np.int64) * size + domain[inside], size)
    most = np.zeros(len(members), np.int64)
    np.maximum.at(most, of_group, counts)
    least = np.full(len(members), np.iinfo(np.int64).max)
    np.minimum.at(least, of_group, counts)
    least[np.bincount(of_group, minlength=len(members)) < len(domains.names)] = 0
    return (least if len(domains.names) else np.zeros_like(least)), most


def _pairs(members: Sequence[Int32s]) -> tuple[Ints, Int32s]:
    """Return (group, class), one row per member."""
    sizes = np.array([len(of) for of in members], np.int64)
    cls = np.concatenate([np.zeros(0, np.int32), *members])
    return np.repeat(np.arange(len(members)), sizes), cls


def _counted(keys: Ints, size: int) -> tuple[NDArray[np.int64], Ints]:
    """Return the group of each distinct (group, domain) key, and the number of its occurrences."""
    if len(keys) and int(keys.max()) < _TABLE:
        table = np.bincount(keys)
        present = np.flatnonzero(table)
        return present // size, table[present]
    present, counts = np.unique(keys, return_counts=True)
    return present // size, counts
