"""Duplicates: several replicas of one owner on one node although other nodes have room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rebalancer.api import (
    CapGroup,
    Domains,
    DomainTerm,
    Entry,
    Params,
    Strategy,
    Term,
    View,
)


class DuplicatesParams(Params):
    """Options of duplicates."""

    exclude_owner_kinds: tuple[str, ...] = Field(
        default=(), description="Kinds of owners whose replicas may share nodes, like Job."
    )


class Duplicates(Strategy):
    """Moves replicas of one owner off a node that holds more than its share of them.

    The share is ceil(replicas / feasible nodes); a node is feasible if its labels, taints, volumes and operating system
    allow the pod and it had room for one when the plan began, or holds one that need not leave it. Replicas with volumes
    of different zones have shares of their own.
    """

    Params = DuplicatesParams

    def terms(self, view: View, params: DuplicatesParams) -> Sequence[Term]:
        """Return one soft term."""
        shares = _Shares(view, params)
        # Most owners have no two pods on a node: their groups are made when a move concerns them.
        crowded = view.crowding().crowded()
        groups = [group for owner in crowded for group in shares.find_exceeded(owner)]
        return [DomainTerm(view, Entry.SOFT, groups, shares.group_of)]


@dataclass(frozen=True, slots=True)
class _Share:
    """Pods of one owner that could be on the same nodes, and how many of them one node may have."""

    classes: NDArray[np.int32]
    pods: int
    feasible: int
    """Nodes with one of them, or with room for one."""
    cap: int


class _Shares:
    """The shares of owners when the plan began.

    A group may be created after some moves. The cap on pods per node must not depend on these moves.
    """

    def __init__(self, view: View, params: DuplicatesParams) -> None:
        self._view, self._excluded = view, params.exclude_owner_kinds
        snapshot, state = view.snapshot, view.state
        self._free = snapshot.nodes.allocatable - state.used
        self._places = state.pod_count < snapshot.nodes.max_pods
        self._stay = ~snapshot.nodes.leaving
        self._known: dict[tuple[int, bytes], tuple[NDArray[np.bool_], object]] = {}

    def find_exceeded(self, owner: int) -> Iterator[CapGroup]:
        """Yield the groups of an owner of which a node has more than its share."""
        for share in self._of(owner):
            if self._fullest(owner, share) > share.cap:
                yield self._group(owner, share)

    def group_of(self, cls: int) -> CapGroup | None:
        """Return the group of a class; None if its pods may share nodes."""
        owner = self._view.snapshot.classes[cls].owner
        shares = self._of(owner) if owner >= 0 else ()
        return next((self._group(owner, of) for of in shares if cls in of.classes), None)

    def _group(self, owner: int, share: _Share) -> CapGroup:
        ref = self._view.snapshot.owners[owner].ref
        return CapGroup(
            self._view,
            label=f"{ref} ({share.pods} pods, {share.feasible} feasible nodes)",
            domains=Domains.nodes(self._view),
            counted=share.classes,
            cap=share.cap,
        )

    def _of(self, owner: int) -> Sequence[_Share]:
        """Return the shares of an owner, one per set of pods that could be on the same nodes.

        Empty if its pods may share nodes: it has an excluded kind or one pod, or its pods are bound to their nodes.
        """
        view = self._view
        crowding, of_owner = view.crowding(), view.classes_of_owner(owner)
        classes = [cls for cls in of_owner.tolist() if not view.snapshot.classes[cls].per_node]
        excluded = view.snapshot.owners[owner].kind in self._excluded
        if excluded or not classes or crowding.pods[owner] < 2:
            return ()
        parts = view.split_by_landing(classes)
        held = crowding.nodes(owner)
        if len(parts) == 1 and len(classes) == len(of_owner):
            nodes = self._feasible(classes[0], held)
            pods, feasible = crowding.pods[owner], int(np.count_nonzero(nodes))
            return (_Share(of_owner, pods, feasible, -(-pods // max(1, feasible))),)
        return [
            self._join(joined)
            for joined in _overlapping([(part, self._feasible(part[0], held)) for part in parts])
        ]

    def _join(self, parts: Sequence[_Part]) -> _Share:
        """Return one share for parts whose nodes overlap: each part, and all of them together, can keep to it."""
        pods = [sum(len(self._view.state.living_of(cls)) for cls in part) for part, _ in parts]
        nodes = [int(np.count_nonzero(feasible)) for _, feasible in parts]
        every = int(np.count_nonzero(np.any([feasible for _, feasible in parts], axis=0)))
        needed = [-(-n // max(1, of)) for n, of in zip(pods, nodes, strict=True)]
        cap = max(-(-sum(pods) // max(1, every)), *needed)
        classes = sorted(cls for part, _ in parts for cls in part)
        return _Share(np.array(classes, np.int32), sum(pods), every, cap)

    def _feasible(self, cls: int, held: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return the nodes (N,) that could take a replacement of ``cls``, and those of ``held`` that need not be left."""
        replacement = self._view.snapshot.classes[cls].replacement
        feasible = self._possible(replacement).copy()
        lasting = self._view.snapshot.without_foreign(
            self._view.scheduler.lasting_mask(replacement), replacement
        )
        feasible[held] |= (lasting & self._stay)[held]
        return feasible

    def _possible(self, cls: int) -> NDArray[np.bool_]:
        """Return the nodes (N,) that a pod of ``cls`` could use and that had room for it; shared by equal classes."""
        static = self._view.usable(cls)
        request = self._view.snapshot.requests[:, cls][:, None]
        known = self._known.get(key := (id(static), request.tobytes()))
        if known is None:
            room = ((request == 0) | (request <= self._free)).all(axis=0) & self._places
            # The array whose identity is in the key is kept beside it.
            known = self._known[key] = static & room & self._stay, static
        return known[0]

    def _fullest(self, owner: int, share: _Share) -> int:
        """Return the most pods of a share on one node."""
        view = self._view
        if len(share.classes) == len(view.classes_of_owner(owner)):
            return view.crowding().fullest[owner]
        pods = np.concatenate([view.state.living_of(cls) for cls in share.classes.tolist()])
        return int(np.bincount(view.snapshot.pods.node[pods]).max(initial=0))


_Part = tuple[list[int], NDArray[np.bool_]]
"""Classes whose replacements may use the same nodes, and these nodes (N,)."""


def _overlapping(parts: Sequence[_Part]) -> Iterator[Sequence[_Part]]:
    """Yield ``parts`` in sets; parts of different sets have no node in common."""
    set_of = np.arange(len(parts))
    of_node = np.full(len(parts[0][1]), -1)
    for index, (_, nodes) in enumerate(parts):
        met = np.unique(of_node[nodes])
        met = np.unique(set_of[met[met >= 0]])
        set_of[np.isin(set_of, met)] = index
        of_node[nodes] = index
    for number in dict.fromkeys(set_of.tolist()):
        yield [part for part, of in zip(parts, set_of.tolist(), strict=True) if of == number]
