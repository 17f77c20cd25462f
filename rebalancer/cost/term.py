"""What a strategy hands over: terms of the cost, and what it is given to make them."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from rebalancer.cost.crowding import Crowding
from rebalancer.cost.streaks import Streaks
from rebalancer.plan.plan import Cause
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
    """What the strategy itself has seen in earlier runs (:meth:`Term.streaks`); None if nothing is remembered."""
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


class Group(Protocol):
    """One rule. Values are unweighted; ``weight`` scales them into the term."""

    label: str
    weight: float
    members: Int32s
    """Classes whose moves change the group."""
    movers: Int32s
    """Classes that may be moved to fix it."""

    def potential(self) -> float:
        """Return what is left to fix, in moves."""

    def unsatisfiable(self) -> str | None:
        """Return what no placement can fix and why, without the label; None if there is nothing."""

    def gains(self) -> Floats:
        """Return per node (N,) the most that one mover leaving it can gain.

        A group that knows it of a few nodes (K,) in less time has ``gains_at(nodes)`` besides.
        """

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """Return the change of the potential (K,) if a pod moves from ``node`` to each destination."""

    def minimum(self) -> float:
        """Return a lower bound on the moves that fix the group.

        A group that moves of other classes than its movers fix as well, names them all in ``fixed_by``.
        """

    def describe(self, node: int) -> str:
        """Return one phrase with numbers about the group, as seen from ``node``."""


@runtime_checkable
class Described(Protocol):
    """A group that can be described as a whole, and not only as seen from a node."""

    def requirement(self) -> str:
        """Return what the rule asks for, in a few words."""

    def standing(self) -> str:
        """Return how its pods stand now, with numbers."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """How a node stands to the thresholds of a term."""

    class Standing(enum.StrEnum):
        """On which side of the thresholds it is."""

        UNDER = "under-used"
        BETWEEN = "between"
        OVER = "over-used"

    @dataclass(frozen=True, slots=True)
    class Level:
        """How full a node is of one resource, all as shares of its allocatable."""

        resource: str
        share: float
        under: float
        over: float
        what: str
        """``requested``, ``used``, or empty for pods, which are only counted."""

    standing: Standing
    gives: bool
    """Its pods are candidates."""
    note: str
    """What follows from its standing, in a sentence."""
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Unmet:
    """A rule with something left to fix."""

    rule: str
    """In words, with its workload."""
    classes: Int32s
    """Pods of these classes could fix it."""
    nodes: Int32s
    """If they leave one of these nodes."""
    of_workload: bool = True
    """Whether it is a rule of pods, and not of a node."""


class Term(ABC):
    """One term of the cost over the view's state, which it reads at each call and never changes.

    All values are potentials before weighting: pods that still have to move (hard, soft) or squared
    deviation (imbalance). Methods that have a body hold a neutral answer; a term overrides those that it knows more of.
    """

    entry: Entry
    cause: Cause = Cause.PLACE
    """What is wrong with its pods. With another cause than PLACE the term judges single pods: see :meth:`judged`."""
    in_place: bool = False
    """Whether a replacement on the same node will do, if it judges single pods."""

    # -- the cost --------------------------------------------------------------------------------------------

    @abstractmethod
    def potential(self) -> float:
        """Return the term's value now."""

    @abstractmethod
    def violated(self) -> int:
        """Return in how many groups something is left to fix."""

    @abstractmethod
    def candidates(self, classes: Int32s | None = None) -> Candidates:
        """Return the pairs that contribute; only rows of ``classes`` if given."""

    @abstractmethod
    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """Return the change (K,) if a pod of ``cls`` leaves ``node`` and its replacement lands there.

        ``replacement`` is the class of the replacement; negative values are better.
        """

    @abstractmethod
    def describe(self, cls: int, node: int) -> str:
        """Return one phrase with numbers: what is wrong with pods of ``cls`` on ``node``."""

    def deltas(
        self, cls: Int32s, node: Int32s, replacement: Int32s, destinations: Int32s, of: Ints
    ) -> Floats:
        """Return :meth:`delta` of each landing (E,) of many moves; override it where one pass is faster.

        ``cls``, ``node`` and ``replacement`` (M,) are of the moves. ``destinations`` (E,) are those of all moves in a
        row, and ``of`` (E,), ascending, says which move each belongs to.
        """
        ends = np.searchsorted(of, np.arange(1, len(cls)))
        moves = zip(cls.tolist(), node.tolist(), replacement.tolist(), strict=True)
        parts = zip(moves, np.split(destinations, ends), strict=True)
        return np.concatenate([self.delta(*move, nodes) for move, nodes in parts])

    def related(self, cls: int) -> Int32s:
        """Return the classes whose candidates change when a pod of ``cls`` moves; by default that class."""
        return np.array([cls], np.int32)

    def bounds(self) -> Iterable[Bound]:
        """Yield what it takes to fix each group that some move can change; by default nothing is known."""
        return ()

    # -- what spares questions -------------------------------------------------------------------------------

    def concerns(self, cls: int, replacement: int) -> bool:  # noqa: ARG002
        """Return whether moving a pod of ``cls`` may change anything; if not, every ``delta`` is 0."""
        return True

    def stamp(self, cls: int, node: int, replacement: int, destinations: Int32s) -> int | None:  # noqa: ARG002
        """Return a number that is the same only while :meth:`delta` of the same move is; None: it may change at any move."""
        return None

    def seen_from(self, cls: int, node: int, replacement: int) -> Hashable:  # noqa: ARG002
        """Return what is equal only for nodes where :meth:`delta` is, if none of them is a destination."""
        return node

    # -- single pods -----------------------------------------------------------------------------------------

    def judged(self) -> Int32s:
        """Return the pods that the term judges, in the order in which they should go.

        If ``cause`` is not PLACE, its candidates are these pods, and not others of their pairs.
        """
        return np.zeros(0, np.int32)

    def judges(self, pod: int) -> bool:  # noqa: ARG002
        """Return whether ``pod`` is one of :meth:`judged`."""
        return False

    def reason(self, pod: int) -> str:  # noqa: ARG002
        """Return one phrase with numbers: what is wrong with one of :meth:`judged`."""
        return ""

    def delta_of(self, pod: int, destinations: Int32s) -> Floats:  # noqa: ARG002
        """Return :meth:`delta` (K,) of moving this very pod; asked only if ``cause`` is not PLACE."""
        return np.zeros(len(destinations))

    # -- several runs ----------------------------------------------------------------------------------------

    def streaks(self) -> Streaks | None:
        """Return ``view.streaks`` after this run, for the next one; None if this run could measure nothing.

        For terms that act only on what they measured in several runs in a row. It is of the snapshot: moves that were
        planned since do not change it.
        """
        return None

    def waiting(self) -> Candidates:
        """Return the pairs that are no candidates only because the measurement has not lasted; ``describe`` says for how long."""
        return Candidates.none()

    # -- explanations ----------------------------------------------------------------------------------------

    def unsatisfiable(self) -> Sequence[str]:
        """Return, in words, what no placement of the movable pods can fix."""
        return ()

    def unmet(self) -> Sequence[Unmet] | None:
        """Return the rules with something left to fix, as many as :meth:`violated`; None: each of its nodes counts as one."""
        return None

    def notes(self) -> Sequence[str]:
        """Return what keeps the term from its work and what to do about it, in a line each."""
        return ()

    def not_judged(self) -> str | None:
        """Return, in a few words, what the term lacks to judge anything; None if it can."""
        return None

    def packed(self) -> tuple[int, int] | None:
        """Return how many nodes hold pods now, and the least number that has to; None: the term empties no nodes.

        Nodes with none but pods that belong to their node are left out.
        """
        return None

    def groups_of(self, classes: Int32s) -> Sequence[Group]:  # noqa: ARG002
        """Return the groups with a member among ``classes``; nothing that decides anything changes by it.

        The groups go with the state: asked again after moves, they are about the state then.
        """
        return ()

    def gauge(self, node: int) -> Gauge | None:  # noqa: ARG002
        """Return how full a node is now, to the thresholds of the term; None: the term does not judge it by that."""
        return None


_PlugIn = TypeVar("_PlugIn")


def complete(plug_in: _PlugIn, base: type[Any]) -> _PlugIn:
    """Return ``plug_in`` as a ``base``: a class of a third party need not derive from it, and gets its neutral answers.

    Raises:
        TypeError: it lacks a method that has none.
    """
    if isinstance(plug_in, base):
        return plug_in
    kind = type(plug_in)
    own: dict[str, object] = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    for name in (*vars(base), *base.__annotations__):
        if not name.startswith("_") and hasattr(plug_in, name):
            value = getattr(plug_in, name)
            own[name] = staticmethod(value) if callable(value) and name != "Params" else value
    completed: _PlugIn = type(kind.__name__, (base,), own)()
    return completed
