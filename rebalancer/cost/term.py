"""Terms of the cost: the base class that strategies implement, and what its methods return."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from rebalancer.core.rules import AskedRule, PodMove, Rule
from rebalancer.cost.groups import RuledGroup, set_of
from rebalancer.cost.streaks import Streaks
from rebalancer.plan.plan import Cause
from rebalancer.snapshot.columns import Floats, Int32s


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
    """The largest decrease of the potential when one pod of this class leaves this node."""

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
    """The least number of moves that fix the group, in the present state; one move lowers it by at most one."""
    classes: Int32s
    """The classes whose pods can fix the group."""
    weight: float


class Group(Protocol):
    """One rule. Values are unweighted; ``weight`` scales them in the term.

    A group may also know what the cluster lacks to satisfy it, regardless of moves: ``lack()`` returns that in words, or
    an empty text. ``without_nodes`` names the domains that have no node, and in which its pods could run if they had one.
    """

    label: str
    weight: float
    members: Int32s
    """Classes whose moves change the group."""
    movers: Int32s
    """Classes that may be moved to fix it."""

    def potential(self) -> float:
        """Return the moves still needed to fix the rule."""

    def unsatisfiable(self) -> str | None:
        """Return the violations that no placement can fix, with the reason, without the label; None if there are none."""

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
    """Whether its pods are candidates."""
    note: str
    """The consequence of its status, in a sentence."""
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Unmet:
    """A violated rule."""

    rule: str
    """The rule in words, with its workload."""
    classes: Int32s
    """The classes whose pods could fix it."""
    nodes: Int32s
    """The nodes from which these pods would have to leave."""
    of_workload: bool = True
    """Whether it is a rule of pods, and not of a node."""
    amount: float = 1.0
    """The part of the term's potential that it causes."""
    lack: str = ""
    """What is missing to satisfy it, if no move of its pods can fix any of it."""


_ANSWERS = frozenset(("delta", "delta_of", "candidates"))
"""What the rules of a term say, too."""


class Term(ABC):
    """One term of the cost. Each call reads the current state of the view; a term never changes the state.

    All values are potentials before weighting: pods that still have to move (hard, soft) or squared deviation
    (imbalance). Only the abstract methods are required: the others have neutral defaults, which a term overrides
    where it can answer better.
    """

    entry: Entry
    cause: Cause = Cause.PLACE
    """The cause of its moves. With another cause than PLACE the term judges single pods: see :meth:`judged`."""
    in_place: bool = False
    """Whether a replacement on the same node will do, if it judges single pods."""
    unseen: bool = False
    """Whether it balances measures that the scheduler does not see, such as usage: then marks may choose landings for it."""

    def __init_subclass__(cls, **given: Any) -> None:
        """Make the core call a class with methods of its own, even if its base class has rules with other results."""
        super().__init_subclass__(**given)
        own = vars(cls)
        if "rules_of_move" not in own and not _ANSWERS.isdisjoint(own):
            cls.rules_of_move = Term.rules_of_move  # type: ignore[method-assign]

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

    def rules_of_move(self, cls: int, replacement: int) -> Sequence[tuple[Rule, float]]:
        """Return the (rule, weight) pairs that a move of ``cls`` may change; the term is their weighted sum.

        They are the same in every state. By default one rule calls :meth:`delta` and :meth:`candidates`.
        A subclass of a term with rules gets that one rule, too, if it overrides these methods.
        """
        return [(AskedRule(None, AskedTerm(self)), 1.0)] if self.concerns(cls, replacement) else ()

    def value_for(self, classes: Iterable[int]) -> float:  # noqa: ARG002
        """Return a value that changes as :meth:`potential` does while only pods of ``classes`` come or leave."""
        return self.potential()

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

        :meth:`describe` returns how many runs are missing.
        """
        return Candidates.none()

    # -- explanations ----------------------------------------------------------------------------------------

    def unsatisfiable(self) -> Sequence[str]:
        """Return the violations that no placement of the movable pods can fix, as sentences."""
        return ()

    def unmet(self) -> Sequence[Unmet] | None:
        """Return the violated rules, as many as :meth:`violated`; None: each violated node counts as a rule."""
        return None

    def notes(self) -> Sequence[str]:
        """Return, one line each, what prevents the term from working and what to do about it."""
        return ()

    def not_judged(self) -> str | None:
        """Return the missing input, in a few words; None if nothing is missing."""
        return None

    def packed(self) -> tuple[int, int] | None:
        """Return (number of nodes with pods now, lower bound of that number); None: the term does not empty nodes.

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


class AskedTerm:
    """The methods that a rule calls on a term without rules."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._gains: dict[int, float] = {}

    def read(self) -> float:
        """Return a positive number: the candidates show whether anything is left to fix."""
        return 1.0

    def begin(self, cls: int) -> None:
        """Read the term's candidates of a class, for the calls of :meth:`gain_at` that follow."""
        rows = self._term.candidates(np.array([cls], np.int32))
        self._gains = {}
        for node, gain in zip(rows.node.tolist(), rows.gain.tolist(), strict=True):
            self._gains[node] = self._gains.get(node, 0.0) + gain

    def gain_at(self, node: int) -> float:
        """Return how much the cost falls if a pod of the asked class leaves ``node``."""
        return self._gains.get(node, 0.0)

    def change(self, move: PodMove) -> Floats:
        """Return the change (K,) at each landing."""
        nodes = np.asarray(move.nodes)
        if self._term.cause is not Cause.PLACE:
            changes = self._term.delta_of(move.pod, nodes)
        else:
            changes = self._term.delta(move.cls, move.node, move.replacement, nodes)
        return _one_each(changes, nodes)


def gains_at(group: Group, nodes: Int32s) -> Floats:
    """Return the maximum gain (K,) of moving one mover of ``group`` off each of the nodes."""
    of_nodes = getattr(group, "gains_at", None)
    gains: Floats = of_nodes(nodes) if of_nodes is not None else group.gains()[nodes]
    return gains


class _AskedGroup:
    """The methods that a rule calls on a group that the core does not know."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def read(self) -> float:
        return self._group.potential()

    def begin(self, cls: int) -> None:
        """Do nothing: each mover gains the same."""

    def gain_at(self, node: int) -> float:
        return float(gains_at(self._group, np.array([node], np.int32))[0])

    def change(self, move: PodMove) -> Floats:
        nodes = np.asarray(move.nodes)
        changes = self._group.delta(move.cls, move.node, move.replacement, nodes)
        return _one_each(changes, nodes)


def _one_each(changes: Floats, nodes: Int32s) -> Floats:
    """Return ``changes``, which have to be one for each landing: the core reads so many, whatever a third party gives it.

    Raises:
        ValueError: they are not.
    """
    if changes.shape != nodes.shape:
        raise ValueError(f"{changes.shape} changes of the cost for {nodes.shape} landings")
    return changes


def rule_of(group: Group) -> Rule:
    """Return the rule of a group; for a group that the core does not know, or with methods of its own, a rule that calls them."""
    if isinstance(group, RuledGroup) and not group.answers:
        return group.rule
    return AskedRule(set_of(group.movers), _AskedGroup(group))
