"""What machines spread rules lack: a domain that they need and that has no node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.base.plain_text import and_more, count
from rebalancer.cost.spread_group import SpreadGroup
from rebalancer.planner.draft import Draft
from rebalancer.snapshot.columns import Ints

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MissingMachine:
    """What one rule lacks, and what machine it takes."""

    rule: str
    """In words, with its workload."""
    lack: str
    key: str
    """Label of the domains."""
    domains: tuple[str, ...]
    """Those that are known to have no node; empty if only their number is known."""
    nodes: int
    """So many domains lack a node."""
    pods: int
    """The most pods that come to one of them."""
    cpu: int
    """Millicores that each of the pods requests."""
    memory: int
    """Bytes."""
    moves: int
    """Moves that the rule needs once the nodes are there."""

    def __str__(self) -> str:
        where = f"in {and_more(list(self.domains), 3)}" if self.domains else "in another one"
        nodes = "a node" if self.nodes == 1 else f"{self.nodes} nodes, each"
        room = f"{self.pods * self.cpu}m cpu and {self.pods * self.memory // _MIB}Mi memory"
        return (
            f"{self.rule}: {self.lack}. It takes {nodes} {where} ({self.key}) with {room} free,"
            f" for {count(self.pods, 'pod')}; then {count(self.moves, 'move')} repair it"
        )


def find_missing(draft: Draft) -> tuple[MissingMachine, ...]:
    """Return what machines the spread rules of the policy's strategies lack, by rule."""
    return tuple(sorted(_find(draft), key=lambda one: one.rule))


def _find(draft: Draft) -> Iterator[MissingMachine]:
    snapshot = draft.snapshot
    classes = np.arange(len(snapshot.classes), dtype=np.int32)
    cpu, memory = (snapshot.resources.index(name) for name in ("cpu", "memory"))
    for one in draft.terms:
        for group in one.term.groups_of(classes):
            if not (isinstance(group, SpreadGroup) and len(group.movers) and group.lack()):
                continue
            new = max(len(group.without_nodes), group.missing_domains)
            domains = group.domains
            now = draft.state.counts_by(group.members, domains.of_node, len(domains.names))
            counts = np.append(now, np.zeros(new, np.int64))
            pods, moves = _spread_over(counts, group.max_skew, new)
            if not pods:
                continue
            asked = snapshot.requests[:, group.movers].max(axis=1)
            yield MissingMachine(
                group.label,
                group.lack(),
                group.key,
                tuple(group.without_nodes),
                new,
                pods,
                int(asked[cpu]),
                int(asked[memory]),
                moves,
            )


def _spread_over(counts: Ints, max_skew: int, new: int) -> tuple[int, int]:
    """Return (the most pods in a new domain, the fewest moves) of a spread that holds; the ``new`` ones come last."""
    best: tuple[int, Sequence[int]] = (0, ())
    for floor in range(int(counts.max(initial=0)) + 1):
        into = int(np.maximum(0, floor - counts).sum())
        out = int(np.maximum(0, counts - floor - max_skew).sum())
        moves = max(into, out)
        # What one domain lacks, another has to have above the floor.
        spare = int(np.maximum(0, counts - floor).sum())
        room = int(np.maximum(0, floor + max_skew - counts).sum())
        if spare < into or room < out or (best[1] and best[0] <= moves):
            continue
        each = max(floor, -(-(out - into) // new) + floor if out > into else floor)
        best = (moves, (each,))
    return (best[1][0] if best[1] else 0), best[0]
