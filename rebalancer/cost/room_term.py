"""The term of strategies that make room: it counts the rooms that are still missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.core.room import Capacity, RoomRule
from rebalancer.core.rules import read
from rebalancer.core.views import view_of
from rebalancer.cost.balance import amounts_of
from rebalancer.cost.groups import changes_of
from rebalancer.cost.term import Candidates, Entry, Term, Unmet
from rebalancer.cost.view import View
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A request for room on one node. Pods may have to leave that node for it."""

    pod: int
    """The pod that waits for it, -1: none does yet."""
    cls: int
    """The class to be scheduled there; -1: there is no pod, and only the fields below count."""
    nodes: Bools
    """(N,) the nodes on which it may be."""
    priority: int
    """The highest priority of pods that may be evicted for it."""
    requests: Ints
    """(R,) the amounts that must be spare there; for a pod to be scheduled, its requests."""
    places: int = 1
    """The number of pods for which the room is."""
    text: str = ""
    """What the room is for, in words."""
    about: int = -1
    """The pod that it is for, where none waits for a node; -1: none yet."""
    counted: bool = False
    """Whether its node counts ``requests`` as taken already, and has too little: of a pod that is resized there."""
    held: str = ""
    """Why no pod may be evicted for it now; empty: pods may be."""
    patient: bool = False
    """Whether no pod is evicted for it if a starting node will have room for it."""


class RoomTerm(Term):
    """Soft cost 1 for each pod that waits for room, and 1 for each room that should be kept spare and is not.

    No single move is a candidate: the planner searches for several together (``rebalancer.planner.room.plan``). A move
    that lands where room must be kept spare costs more, whichever strategy plans it.
    """

    entry = Entry.SOFT

    def __init__(self, view: View, asks: Sequence[Ask]) -> None:
        self._view = view
        self._pods = np.array([ask.pod for ask in asks if ask.pod >= 0], np.int32)
        kinds: dict[object, list[Ask]] = {}
        for ask in asks:
            if ask.pod < 0:
                key = ask.nodes.tobytes(), ask.requests.tobytes(), ask.about
                kinds.setdefault(key, []).append(ask)
        self._kinds = [_Kind.of(view, alike[0], len(alike)) for alike in kinds.values()]

    def _find_left(self) -> Int32s:
        return self._pods[self._view.state.node_of[self._pods] < 0]

    def potential(self) -> float:
        """Return the number of missing rooms."""
        return float(self.violated())

    def violated(self) -> int:
        """Return the number of missing rooms."""
        return len(self._find_left()) + sum(kind.lacking() for kind in self._kinds)

    def candidates(self, classes: Int32s | None = None) -> Candidates:  # noqa: ARG002
        """Return no candidates: the planner searches for several moves together."""
        return Candidates.none()

    def concerns(self, cls: int, replacement: int) -> bool:  # noqa: ARG002
        """Return whether some room is kept free for future pods."""
        return bool(self._kinds)

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """Return the change in the number of missing rooms (K,), see Term."""
        change = np.zeros(len(destinations))
        for kind in self._kinds:
            change += changes_of(kind.rule, cls, node, replacement, destinations)
        return change

    def rules_of_move(self, cls: int, replacement: int) -> Sequence[tuple[RoomRule, float]]:  # noqa: ARG002  # every move
        """Return the rules of the rooms."""
        return [(kind.rule, 1.0) for kind in self._kinds]

    def describe(self, cls: int, node: int) -> str:  # noqa: ARG002
        """Return nothing: there are no candidates."""
        return ""

    def unmet(self) -> Sequence[Unmet]:
        """Return one unmet rule for each missing room."""
        snapshot, nowhere = self._view.snapshot, np.array([-1], np.int32)
        none = np.zeros(0, np.int32)
        waiting = [
            Unmet(f"{snapshot.pod_ref(pod)} waits for room", snapshot.pods.cls[[pod]], nowhere)
            for pod in self._find_left().tolist()
        ]
        lacking = [
            Unmet(f"there is no room for {kind.ask.text}", none, none, of_workload=False)
            for kind in self._kinds
            for _ in range(kind.lacking())
        ]
        return [*waiting, *lacking]

    def kept(self) -> Bools:
        """Return the first nodes (N,) that have the rooms which are kept free for future pods."""
        kept = np.zeros(len(self._view.snapshot.nodes), bool)
        for kind in self._kinds:
            rooms = kind.rooms()
            kept |= (rooms > 0) & (np.cumsum(rooms) - rooms < kind.wanted)
        return kept


KEPT_FREE = "kept free for pods to come"


def kept_free(terms: Iterable[Term], nodes: int) -> Bools:
    """Return the nodes (N,) where some term of this kind keeps room free for future pods."""
    kept = np.zeros(nodes, bool)
    for term in terms:
        if isinstance(term, RoomTerm):
            kept |= term.kept()
    return kept


@dataclass(frozen=True, slots=True)
class _Kind:
    ask: Ask
    wanted: int

    rule: RoomRule

    @staticmethod
    def of(view: View, ask: Ask, wanted: int) -> _Kind:
        """Return the rooms for ``wanted`` equal asks."""
        nodes, needed = view.snapshot.nodes, np.flatnonzero(ask.requests > 0)
        capacity = Capacity(
            view_of(nodes.allocatable),
            view_of(nodes.max_pods.astype(np.int64)),
            view_of(view.snapshot.requests),
        )
        rule = RoomRule(
            amounts_of(view),
            capacity,
            view_of(ask.nodes),
            view_of(needed.astype(np.int64)),
            view_of(ask.requests[needed].astype(np.int64)),
            ask.places,
            wanted,
            counted=ask.counted,
        )
        return _Kind(ask, wanted, rule)

    def rooms(self) -> Ints:
        """Return how many rooms each node (N,) has now."""
        read(self.rule)
        return np.asarray(self.rule.rooms)

    def lacking(self) -> int:
        return int(read(self.rule))
