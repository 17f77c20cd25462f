"""What a strategy hands over: terms of the cost, and what it is given to make them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from rebalancer.cost.crowding import Crowding
from rebalancer.cost.streaks import Streaks
from rebalancer.plan.plan import Cause
from rebalancer.policy.values import Params
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints
from rebalancer.snapshot.marks import to_be_empty
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.snapshot.selected import Selected
from rebalancer.snapshot.state import ClusterState


class Entry(enum.IntEnum):
    """Which entry of the cost a term belongs to; earlier entries always win."""

    HARD = 0
    SOFT = 1
    IMBALANCE = 2


@dataclass(frozen=True, slots=True)
class Candidates:
    """Where pods stand that a term would rather see elsewhere: parallel arrays; rows of the same pair add up."""

    cls: Int32s
    node: Int32s
    gain: Floats
    """At most so much of the potential goes away when one pod of this class leaves this node."""

    @staticmethod
    def none() -> Candidates:
        """Return no candidates."""
        return _NO_CANDIDATES

    @staticmethod
    def all_of(parts: Sequence[Candidates]) -> Candidates:
        """Return the rows of all ``parts`` that gain anything, in one."""
        if not parts:
            return _NO_CANDIDATES
        gain = np.concatenate([part.gain for part in parts])
        gains = gain > 0
        return Candidates(
            np.concatenate([part.cls for part in parts])[gains],
            np.concatenate([part.node for part in parts])[gains],
            gain[gains],
        )

    @staticmethod
    def of(rows: Sequence[tuple[int, int, float]]) -> Candidates:
        """Return (class, node, gain) rows as columns."""
        if not rows:
            return Candidates.none()
        cls, node, gain = zip(*rows, strict=True)
        return Candidates(np.array(cls, np.int32), np.array(node, np.int32), np.array(gain, float))


_NO_CANDIDATES = Candidates(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))


@dataclass(frozen=True, slots=True)
class Bound:
    """What it takes to fix one group."""

    moves: float
    """The fewest, in the present state; one move lowers it by at most one."""
    classes: Int32s
    """Only pods of these classes can fix it."""
    weight: float


@dataclass(frozen=True, slots=True)
class _Mobility:
    """Of which classes living pods can be moved, and of which some cannot."""

    movable: Bools
    """(P,) what it is made of: its identity names it, and it is kept for that."""
    some_movable: Bools
    """(C,)"""
    some_fixed: list[bool]
    """Per class."""

    @staticmethod
    def of(snapshot: Snapshot, movable: Bools) -> _Mobility:
        pods, classes = snapshot.pods, len(snapshot.classes)
        living = pods.living
        some_movable, some_fixed = (
            np.bincount(pods.cls[living & of], minlength=classes) > 0 for of in (movable, ~movable)
        )
        return _Mobility(movable, some_movable, some_fixed.tolist())


@dataclass(frozen=True, slots=True)
class View:
    """What a strategy sees: the snapshot, the state as planned so far, and the scheduler model."""

    snapshot: Snapshot
    state: ClusterState
    scheduler: SchedulerModel
    movable: Bools
    """(P,) pods that no protection holds."""
    streaks: Streaks | None = None
    """What the strategy itself has seen in earlier runs (:class:`CountingRuns`); None if nothing is remembered."""
    selected: Selected | None = None
    """The pods that the strategy may move by its ``select``; None: all. All pods count."""
    unready: Bools | None = None
    """(P,) pods that are not Ready, and that may move where they are judged by their state; None: none of them."""
    kept_by: Callable[[Int32s], Mapping[str, int]] = field(
        default=lambda _: {}, repr=False, compare=False
    )
    """What keeps pods in place, as a sentence -> how many of them; of a pod that nothing but a rule keeps, nothing."""
    made: dict[object, object] = field(default_factory=dict, repr=False, compare=False)
    """What groups share: made once, under a key of their own choosing."""

    def shared(self, nodes: Bools) -> Bools:
        """Return one array, not to be written into, for all nodes (N,) that are equal to these.

        Thousands of rules are about the same nodes, and identity is then enough to distinguish them.
        """
        made = self.made.get(identity := ("nodes", nodes.tobytes()))
        if not isinstance(made, np.ndarray):
            made = nodes.copy()
            made.setflags(write=False)
            self.made[identity] = made
        return made

    def eligible(self, cls: int, *, affinity: bool = True, taints: bool = True) -> Bools:
        """Return the nodes (N,) that node affinity and taints, as far as asked for, leave to a class; shared."""
        masks: list[Bools] = []
        if affinity:
            masks.append(self.scheduler.node_affinity_mask(cls))
        if taints:
            masks.append(self.scheduler.taint_mask(cls))
        # By identity: the scheduler model gives classes that say the same one array; all are kept here.
        made = self.made.get(identity := ("eligible", *map(id, masks)))
        if not isinstance(made, tuple):
            allowed = np.ones(len(self.snapshot.nodes), bool)
            for mask in masks:
                allowed &= mask
            made = self.made[identity] = self.shared(allowed), masks
        eligible: Bools = made[0]
        return eligible

    def immobile(self, classes: Int32s, movers: Int32s) -> Int32s:
        """Return the living pods of ``classes``, on nodes, that cannot be moved.

        Movable are only pods of ``movers`` that no protection holds. This is of the snapshot: a pod moved
        by the plan stays movable in principle.
        """
        mine, fixed = set(movers.tolist()), self._of_classes.some_fixed
        pods = self.snapshot.pods
        parts = [
            living[~self.movable[living]] if cls in mine else living
            for cls in classes.tolist()
            if (fixed[cls] or cls not in mine) and len(living := self.state.living_of(cls))
        ]
        kept = np.concatenate(parts).astype(np.int32) if parts else np.zeros(0, np.int32)
        return kept[pods.node[kept] >= 0]

    @property
    def _of_classes(self) -> _Mobility:
        """Made once for all views with the same movable pods."""
        made = self.made.get(identity := ("mobility", id(self.movable)))
        if not isinstance(made, _Mobility):
            made = self.made[identity] = _Mobility.of(self.snapshot, self.movable)
        return made

    def any_selected(self, classes: Int32s) -> bool:
        """Return whether the strategy may move pods of any of these classes, by its ``select``."""
        return self.selected is None or bool(self.selected.classes[classes].any())

    def any_movable(self, classes: Int32s) -> bool:
        """Return whether any living pod of ``classes`` may be moved."""
        return bool(self._of_classes.some_movable[classes].any())

    def replaceable(self) -> Iterator[tuple[int, PodClass]]:
        """Yield index and class of the pods whose replacements may land on another node.

        Not pods without a controller, and not those that belong to their node (``PodClass.per_node``).
        """
        for cls, of_class in enumerate(self.snapshot.classes):
            if of_class.owner >= 0 and not of_class.per_node:
                yield cls, of_class

    def replaceable_by(
        self, rule: Callable[[PodClass], Hashable]
    ) -> Iterator[tuple[str, list[int]]]:
        """Yield (owner's ref, classes) for each owner and each value of ``rule``; None leaves a class out."""
        grouped: dict[tuple[int, Hashable], list[int]] = {}
        for cls, of_class in self.replaceable():
            if (value := rule(of_class)) is not None:
                grouped.setdefault((of_class.owner, value), []).append(cls)
        for (owner, _), classes in grouped.items():
            yield self.snapshot.owners[owner].ref, classes

    def classes_of_owner(self, owner: int) -> Int32s:
        """Return the classes of an owner's pods and of their replacements."""
        return self.state.classes_of_owner(owner)

    def crowding(self) -> Crowding:
        """Return where the snapshot's living pods of each owner stand; made once."""
        made = self.made.get("crowding")
        if not isinstance(made, Crowding):
            made = self.made["crowding"] = Crowding.of(self.snapshot)
        return made

    def least_with_room(self, classes: Sequence[int], price: Floats) -> float:
        """Return the lowest price (N,) that a replacement of ``classes``, which share one, could have now.

        A better node without room is no reason to evict a pod. Infinite if no node has room; 0 if no pod pays
        anything where it stands, so that nothing need be asked.
        """
        if not any(price[self.state.home_nodes(cls)].any() for cls in classes):
            return 0.0
        replacement = self.snapshot.classes[classes[0]].replacement
        room = self.scheduler.feasible(self.state, replacement)
        return float(price[room].min()) if room.any() else float(np.inf)

    def to_be_empty(self) -> Bools:
        """Return the nodes (N,) that are marked as to be empty; not to be written into."""
        return self.shared(to_be_empty(self.snapshot))

    def pairs_on(self, nodes: Bools, classes: Int32s | None = None) -> tuple[Int32s, Int32s]:
        """Return the distinct (class, node) pairs of unmoved, living pods on the given nodes (N,)."""
        pods = self.snapshot.pods
        here = self.state.unmoved(classes)
        here = here[nodes[pods.node[here]]]
        size = max(1, len(self.snapshot.nodes))
        pairs = np.unique(pods.cls[here].astype(np.int64) * size + pods.node[here])
        return (pairs // size).astype(np.int32), (pairs % size).astype(np.int32)


@runtime_checkable
class Term(Protocol):
    """One term of the cost over the view's state; reads the state at each call.

    All values are potentials before weighting: pods that still have to move (hard, soft) or squared
    deviation (imbalance). A term never changes the state.
    """

    entry: Entry

    def potential(self) -> float:
        """Return the term's value now."""

    def violated(self) -> int:
        """Return in how many groups something is left to fix."""

    def unsatisfiable(self) -> Sequence[str]:
        """Return, in words, what no placement of the movable pods can fix."""

    def candidates(self, classes: Int32s | None = None) -> Candidates:
        """Return the pairs that contribute; only rows of ``classes`` if given."""

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """Return the change (K,) if a pod of ``cls`` leaves ``node`` and its replacement lands there.

        ``replacement`` is the class of the replacement; negative values are better.
        """

    def related(self, cls: int) -> Int32s:
        """Return the classes whose candidates change when a pod of ``cls`` moves."""

    def bounds(self) -> Iterable[Bound]:
        """Yield what it takes to fix each group that some move can change."""

    def describe(self, cls: int, node: int) -> str:
        """Return one phrase with numbers: what is wrong with pods of ``cls`` on ``node``."""


# -- what a term may have besides --------------------------------------------------------------------------


@runtime_checkable
class Concerned(Protocol):
    """A term that knows beforehand which moves leave it as it is, and need not be asked about them."""

    def concerns(self, cls: int, replacement: int) -> bool:
        """Return whether moving a pod of ``cls`` may change anything; if not, every ``delta`` is 0."""


@runtime_checkable
class Stamped(Protocol):
    """A term that knows how long what it says of a move holds; the others are asked again after each move."""

    def stamp(self, cls: int, node: int, replacement: int, destinations: Int32s) -> int:
        """Return a number that is the same only while :meth:`Term.delta` of the same move is."""


@runtime_checkable
class Alike(Protocol):
    """A term that knows which nodes are alike for a pod that leaves: it is asked about one of them only."""

    def seen_from(self, cls: int, node: int, replacement: int) -> Hashable:
        """Return what is equal only for nodes where :meth:`Term.delta` is, if none of them is a destination."""


@runtime_checkable
class Judging(Protocol):
    """A term that judges single pods by themselves: its candidates are these pods, and not others of their pairs."""

    cause: Cause
    """What is wrong with them."""
    in_place: bool
    """Whether a replacement on the same node will do."""

    def judged(self) -> Int32s:
        """Return the pods, those that should go first first."""

    def judges(self, pod: int) -> bool:
        """Return whether ``pod`` is one of them."""

    def reason(self, pod: int) -> str:
        """Return one phrase with numbers: what is wrong with one of them."""

    def delta_of(self, pod: int, destinations: Int32s) -> Floats:
        """Return :meth:`Term.delta` (K,) of moving this very pod."""


@runtime_checkable
class Batched(Protocol):
    """A term that is asked about many moves in less time than about one after the other."""

    def deltas(
        self, cls: Int32s, node: Int32s, replacement: Int32s, destinations: Int32s, of: Ints
    ) -> Floats:
        """Return :meth:`Term.delta` of each landing (E,) of many moves.

        ``cls``, ``node`` and ``replacement`` (M,) are of the moves. ``destinations`` (E,) are those of all moves in a
        row, and ``of`` (E,), ascending, says which move each belongs to.
        """


@runtime_checkable
class CountingRuns(Protocol):
    """A term that acts only on what it has seen in several runs in a row, for measurements are restless.

    ``view.streaks`` says for how many it has; what waits for more is no candidate yet.
    """

    def streaks(self) -> Streaks | None:
        """Return ``view.streaks`` after this run, for the next one; None if this one could see nothing.

        It is of the snapshot: moves that were planned since do not change it.
        """

    def waiting(self) -> Candidates:
        """Return the pairs that are no candidates only because what is seen has not lasted; ``describe`` says for how long."""


@dataclass(frozen=True, slots=True)
class Unmet:
    """A rule with something left to fix."""

    rule: str
    """In words, with its workload."""
    classes: Int32s
    """Pods of these classes could fix it."""
    nodes: Int32s
    """If they leave one of these nodes."""


@runtime_checkable
class Naming(Protocol):
    """A term of several rules that knows by name those with something left to fix; else each of its nodes is taken for one."""

    def unmet(self) -> Sequence[Unmet]:
        """Return them, as many as :meth:`Term.violated` counts."""


@runtime_checkable
class Noting(Protocol):
    """A term that may be kept from its work."""

    def notes(self) -> Sequence[str]:
        """Return what keeps the term from its work and what to do about it, in a line each."""


@runtime_checkable
class Packing(Protocol):
    """A term that empties nodes."""

    def packed(self) -> tuple[int, int]:
        """Return how many nodes hold pods now, those that belong to their node left out, and how many have to at least."""


@runtime_checkable
class Unjudged(Protocol):
    """A term that may lack what it judges by, as one of measured usage where nothing is measured."""

    def not_judged(self) -> str | None:
        """Return what is missing, in a few words; None where the term can judge."""


# ----------------------------------------------------------------------------------------------------------


class Strategy(Protocol):
    """A plug-in, listed under the entry point group ``rebalancer.strategies``.

    The first line of the class docstring is what ``rebalancer strategies`` shows.
    """

    Params: ClassVar[type[Params]]

    def terms(self, view: View, params: Any) -> Sequence[Term]:
        """Return the strategy's terms over ``view``, given its own ``Params``.

        Pure: no I/O, no clock, no global state.
        """


@dataclass(frozen=True, slots=True)
class Emptiable:
    """Which nodes may be emptied, as far as the nodes themselves say."""

    nodes: Bools
    """(N,)"""
    kept: Mapping[int, str]
    """Node -> why it is none of them, in words."""
    counted: Bools
    """(N,) the nodes of which one is worth emptying at all: they take pods."""
    needed: int
    """At least so many nodes have to hold pods."""


@runtime_checkable
class Emptying(Protocol):
    """A strategy that empties whole nodes: the planner chooses which, and marks them before it asks for terms.

    The terms are then about the nodes that are marked, see ``View.to_be_empty``.
    """

    def emptiable(self, view: View, params: Any) -> Emptiable:
        """Return the nodes that may be emptied."""

    def marks_last(self, params: Any) -> float:
        """Return the seconds for which a node stays marked unless a run renews the mark."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Pods that have ended and should be removed."""

    pods: Int32s
    """Rows of the snapshot of finished pods, each once, those that should go first first."""
    reason: Callable[[int], str]
    """Says of one of them, in a phrase with numbers, why it should go."""


@runtime_checkable
class Removing(Protocol):
    """A strategy that removes pods that have ended; these are only read where some strategy does."""

    def phases(self, params: Any) -> frozenset[str]:
        """Return the phases, Succeeded or Failed, of the pods that it looks at with these ``Params`` of its own."""

    def ended(self, finished: Snapshot, params: Any) -> Ended:
        """Return the pods to be removed of a snapshot of finished pods (``Snapshot.finished``).

        The planner leaves out what its owner has not done with, and what is protected.
        """


@runtime_checkable
class Contradicting(Protocol):
    """A strategy that may stand twice with options that pull against each other."""

    def contradiction(self, snapshot: Snapshot, one: Any, other: Any) -> str | None:
        """Return how these ``Params`` of its own pull the same pods to different places; None if they do not."""


@runtime_checkable
class Measuring(Protocol):
    """A strategy that may want ``snapshot.usage``, which is only read where some strategy does."""

    def needs_usage(self, params: Any) -> bool:
        """Return whether it does with these ``Params`` of its own."""
