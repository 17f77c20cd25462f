"""Terms of the cost: the base class that strategies implement, and the view that they receive."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from rebalancer.cost.streaks import Streaks
from rebalancer.plan.plan import Cause
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints
from rebalancer.snapshot.marks import to_be_empty
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.snapshot.selected import Selected
from rebalancer.snapshot.state import ClusterState, Runs


@dataclass(frozen=True, slots=True)
class Crowding:
    """The number of living pods of each owner, and the nodes where they run."""

    pods: list[int]
    """Per owner how many."""
    fullest: list[int]
    """Per owner the most on one node."""
    _nodes: Runs
    """Per owner its nodes, ascending and once each."""

    @staticmethod
    def of(snapshot: Snapshot) -> Crowding:
        """Return the crowding of the snapshot."""
        pods, owners = snapshot.pods, len(snapshot.owners)
        owner_of = np.array([cls.owner for cls in snapshot.classes] or [-1], np.int64)
        living = pods.living
        owner = owner_of[pods.cls[living]]
        size = max(1, len(snapshot.nodes))
        places = (owner * size + pods.node[living])[owner >= 0]
        place, count = np.unique(places, return_counts=True)
        owner = place // size
        fullest = np.zeros(owners, np.int64)
        np.maximum.at(fullest, owner, count)
        return Crowding(
            np.bincount(owner, count, owners).astype(np.int64).tolist(),
            fullest.tolist(),
            Runs((place % size).astype(np.int32), owner.astype(np.int32), owners),
        )

    def crowded(self) -> list[int]:
        """Return the owners, ascending, that have two or more pods on the same node."""
        return [owner for owner, most in enumerate(self.fullest) if most > 1]

    def nodes(self, owner: int) -> Int32s:
        """Return the distinct nodes, ascending, with pods of an owner. Read-only array."""
        return self._nodes[owner]


class Entry(enum.IntEnum):
    """The entry of the cost to which a term belongs; earlier entries take precedence."""

    HARD = 0
    SOFT = 1
    IMBALANCE = 2


@dataclass(frozen=True, slots=True)
class Candidates:
    """(class, node) pairs of pods that a term wants to move: parallel arrays; gains of equal pairs add up."""

    cls: Int32s
    node: Int32s
    gain: Floats
    """At most so much of the potential goes away when one pod of this class leaves this node."""

    @staticmethod
    def none() -> Candidates:
        """Return an empty table of candidates."""
        return _NO_CANDIDATES

    @staticmethod
    def all_of(parts: Sequence[Candidates]) -> Candidates:
        """Return the rows of all ``parts`` with a positive gain, in one table."""
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
    """A lower bound on the moves that fix one group, with the classes that can be moved for it."""

    moves: float
    """The fewest, in the present state; one move lowers it by at most one."""
    classes: Int32s
    """Only pods of these classes can fix it."""
    weight: float


@dataclass(frozen=True, slots=True)
class _Mobility:
    """Which classes have living pods that can be moved, and which have some that cannot."""

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
    """The input of a strategy: the snapshot, the state as planned so far, and the scheduler model."""

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
    by_unit: Bools | None = None
    """(P,) pods that nothing holds but their gangs: they move with all of the gang or not at all; None: none of them."""
    kept_by: Callable[[Int32s], Mapping[str, int]] = field(
        default=lambda _: {}, repr=False, compare=False
    )
    """What keeps pods in place, as a sentence -> how many of them; of a pod that nothing but a rule keeps, nothing."""
    made: dict[object, object] = field(default_factory=dict, repr=False, compare=False)
    """What groups share: made once, under a key of their own choosing."""

    def shared(self, nodes: Bools) -> Bools:
        """Return one shared, read-only array for all equal masks of nodes (N,).

        Thousands of rules concern the same nodes; then comparing identities is enough.
        """
        made = self.made.get(identity := ("nodes", nodes.tobytes()))
        if not isinstance(made, np.ndarray):
            made = nodes.copy()
            made.setflags(write=False)
            self.made[identity] = made
        return made

    def eligible(self, cls: int, *, affinity: bool = True, taints: bool = True) -> Bools:
        """Return the nodes (N,) that a class may use by node affinity and taints; either check can be turned off.

        The array is shared and read-only.
        """
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

        Only pods of ``movers`` that no protection holds are movable. This refers to the snapshot: a pod that the
        plan has moved is still movable.
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
        """Computed once for all views with the same movable pods."""
        made = self.made.get(identity := ("mobility", id(self.movable)))
        if not isinstance(made, _Mobility):
            made = self.made[identity] = _Mobility.of(self.snapshot, self.movable)
        return made

    def any_selected(self, classes: Int32s) -> bool:
        """Return whether the strategy's ``select`` admits pods of any of these classes."""
        return self.selected is None or bool(self.selected.classes[classes].any())

    def any_movable(self, classes: Int32s) -> bool:
        """Return whether any living pod of ``classes`` may be moved."""
        return bool(self._of_classes.some_movable[classes].any())

    def replaceable(self) -> Iterator[tuple[int, PodClass]]:
        """Yield (index, class) of the pods whose replacements may land on another node.

        Excluded are pods without a controller, and pods that are bound to their node (``PodClass.per_node``).
        """
        for cls, of_class in enumerate(self.snapshot.classes):
            if of_class.owner >= 0 and not of_class.per_node:
                yield cls, of_class

    def replaceable_by(
        self, rule: Callable[[PodClass], Hashable]
    ) -> Iterator[tuple[str, list[int]]]:
        """Yield (owner's ref, classes) for each owner and each value of ``rule``; None excludes a class."""
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
        """Return the crowding of the snapshot; computed once."""
        made = self.made.get("crowding")
        if not isinstance(made, Crowding):
            made = self.made["crowding"] = Crowding.of(self.snapshot)
        return made

    def least_with_room(self, classes: Sequence[int], price: Floats) -> float:
        """Return the lowest ``price`` (N,) that a replacement of ``classes`` could pay now.

        A better node without room is no reason to evict a pod. The result is infinite if no node has room, and 0 if
        no pod pays a price now. ``classes`` belong to one owner.
        """
        if not any(price[self.state.home_nodes(cls)].any() for cls in classes):
            return 0.0
        replacement = self.snapshot.classes[classes[0]].replacement
        room = self.scheduler.feasible(self.state, replacement)
        return float(price[room].min()) if room.any() else float(np.inf)

    def to_be_empty(self) -> Bools:
        """Return the nodes (N,) that are marked to be emptied; read-only."""
        return self.shared(to_be_empty(self.snapshot))

    def pairs_on(self, nodes: Bools, classes: Int32s | None = None) -> tuple[Int32s, Int32s]:
        """Return the distinct (class, node) pairs of living pods that have not moved, on the given nodes (N,)."""
        pods = self.snapshot.pods
        here = self.state.unmoved(classes)
        here = here[nodes[pods.node[here]]]
        size = max(1, len(self.snapshot.nodes))
        pairs = np.unique(pods.cls[here].astype(np.int64) * size + pods.node[here])
        return (pairs // size).astype(np.int32), (pairs % size).astype(np.int32)


class Group(Protocol):
    """One rule. Values are unweighted; ``weight`` scales them in the term."""

    label: str
    weight: float
    members: Int32s
    """Classes whose moves change the group."""
    movers: Int32s
    """Classes that may be moved to fix it."""

    def potential(self) -> float:
        """Return the moves still needed to fix the rule."""

    def unsatisfiable(self) -> str | None:
        """Return what no placement can fix and why, without the label; None if everything can be fixed."""

    def gains(self) -> Floats:
        """Return per node (N,) the maximum gain of moving one mover off the node.

        A group that can compute this for a few nodes (K,) in less time also has ``gains_at(nodes)``.
        """

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """Return the change of the potential (K,) if a pod moves from ``node`` to each destination."""

    def minimum(self) -> float:
        """Return a lower bound on the number of moves that fix the group.

        If moves of classes other than its movers can fix the group, too, ``fixed_by`` holds all of these classes.
        """

    def describe(self, node: int) -> str:
        """Return a short phrase with numbers about the group, for pods on ``node``."""


@runtime_checkable
class Described(Protocol):
    """A group that can describe itself as a whole, independent of a node."""

    def requirement(self) -> str:
        """Return what the rule requires, in a few words."""

    def standing(self) -> str:
        """Return where the group's pods are now, with numbers."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """The position of a node relative to the thresholds of a term."""

    class Standing(enum.StrEnum):
        """The side of the thresholds on which a node is."""

        UNDER = "under-used"
        BETWEEN = "between"
        OVER = "over-used"

    @dataclass(frozen=True, slots=True)
    class Level:
        """The fill level of a node in one resource; all values are shares of its allocatable."""

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
    """A violated rule."""

    rule: str
    """In words, with its workload."""
    classes: Int32s
    """Pods of these classes could fix it."""
    nodes: Int32s
    """If they leave one of these nodes."""
    of_workload: bool = True
    """Whether it is a rule of pods, and not of a node."""


class Term(ABC):
    """One term of the cost. Each call reads the current state of the view; a term never changes the state.

    All values are potentials before weighting: pods that still have to move (hard, soft) or squared deviation
    (imbalance). Only the abstract methods are required: the others have neutral defaults, which a term overrides
    where it can answer better.
    """

    entry: Entry
    cause: Cause = Cause.PLACE
    """What is wrong with its pods. With another cause than PLACE the term judges single pods: see :meth:`judged`."""
    in_place: bool = False
    """Whether a replacement on the same node will do, if it judges single pods."""

    # -- the cost --------------------------------------------------------------------------------------------

    @abstractmethod
    def potential(self) -> float:
        """Return the current value of the term."""

    @abstractmethod
    def violated(self) -> int:
        """Return the number of groups with something to fix."""

    @abstractmethod
    def candidates(self, classes: Int32s | None = None) -> Candidates:
        """Return the (class, node) pairs that contribute; only rows of ``classes`` if given."""

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
        """Return :meth:`delta` for each landing (E,) of many moves; override it if one pass is faster.

        ``cls``, ``node`` and ``replacement`` (M,) describe the moves. ``destinations`` (E,) are the landings of all
        moves, concatenated; ``of`` (E,), ascending, is the move of each landing.
        """
        ends = np.searchsorted(of, np.arange(1, len(cls)))
        moves = zip(cls.tolist(), node.tolist(), replacement.tolist(), strict=True)
        parts = zip(moves, np.split(destinations, ends), strict=True)
        return np.concatenate([self.delta(*move, nodes) for move, nodes in parts])

    def related(self, cls: int) -> Int32s:
        """Return the classes whose candidates change when a pod of ``cls`` moves; by default only ``cls``."""
        return np.array([cls], np.int32)

    def bounds(self) -> Iterable[Bound]:
        """Yield a bound for each group that some move can change; by default none."""
        return ()

    # -- what spares questions -------------------------------------------------------------------------------

    def concerns(self, cls: int, replacement: int) -> bool:  # noqa: ARG002
        """Return whether moving a pod of ``cls`` may change anything; if not, every ``delta`` is 0."""
        return True

    # -- single pods -----------------------------------------------------------------------------------------

    def judged(self) -> Int32s:
        """Return the pods that the term judges one by one, in the order in which they should move.

        If ``cause`` is not PLACE, only these pods of a pair are candidates.
        """
        return np.zeros(0, np.int32)

    def judges(self, pod: int) -> bool:  # noqa: ARG002
        """Return whether ``pod`` is one of the :meth:`judged` pods."""
        return False

    def reason(self, pod: int) -> str:  # noqa: ARG002
        """Return one phrase with numbers: what is wrong with ``pod``, one of the :meth:`judged` pods."""
        return ""

    def delta_of(self, pod: int, destinations: Int32s) -> Floats:  # noqa: ARG002
        """Return :meth:`delta` (K,) for moving exactly this pod; called only if ``cause`` is not PLACE."""
        return np.zeros(len(destinations))

    # -- several runs ----------------------------------------------------------------------------------------

    def streaks(self) -> Streaks | None:
        """Return the streaks after this run, for the next run; None if this run could measure nothing.

        For terms that act only on a condition measured in several consecutive runs. The streaks refer to the
        snapshot: planned moves do not change them.
        """
        return None

    def waiting(self) -> Candidates:
        """Return the pairs that would be candidates if their streaks were long enough.

        :meth:`describe` says how many runs are missing.
        """
        return Candidates.none()

    # -- explanations ----------------------------------------------------------------------------------------

    def unsatisfiable(self) -> Sequence[str]:
        """Return, as sentences, what no placement of the movable pods can fix."""
        return ()

    def unmet(self) -> Sequence[Unmet] | None:
        """Return the violated rules, as many as :meth:`violated`; None: each violated node counts as a rule."""
        return None

    def notes(self) -> Sequence[str]:
        """Return, one line each, what prevents the term from working and what to do about it."""
        return ()

    def not_judged(self) -> str | None:
        """Return what input is missing, in a few words; None if nothing is missing."""
        return None

    def packed(self) -> tuple[int, int] | None:
        """Return (nodes that hold pods now, lower bound of that number); None: the term does not empty nodes.

        Pods that are bound to their node are not counted.
        """
        return None

    def groups_of(self, classes: Int32s) -> Sequence[Group]:  # noqa: ARG002
        """Return the groups with a member among ``classes``; decisions are not affected by the call.

        The groups follow the state: after moves they describe the new state.
        """
        return ()

    def gauge(self, node: int) -> Gauge | None:  # noqa: ARG002
        """Return the fill level of a node relative to the thresholds of the term.

        None: the term does not judge the node by its fill level.
        """
        return None


_PlugIn = TypeVar("_PlugIn")


def complete(plug_in: _PlugIn, base: type[Any]) -> _PlugIn:
    """Return ``plug_in`` with the neutral defaults of ``base``, if its class does not derive from ``base``.

    Raises:
        TypeError: the plug-in lacks a method that has no default.
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
