"""The base class of strategies: plug-ins that return terms, empty nodes or delete finished pods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rebalancer.cost.room_term import Ask, RoomTerm
from rebalancer.cost.term import Term
from rebalancer.cost.view import View
from rebalancer.policy.values import Params
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.prices import NodePrices


@dataclass(frozen=True, slots=True)
class Emptiable:
    """Which nodes may be emptied, judged by the nodes alone."""

    nodes: Bools
    """(N,) the nodes that may be emptied."""
    kept: Mapping[int, str]
    """Node -> why it is not one of them, in words."""
    counted: Bools
    """(N,) the nodes that count as in use: they accept pods."""
    needed: int
    """The least number of nodes that must have pods."""
    prices: NodePrices | None = None
    """The prices of nodes; None: capacity is saved, not money."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Finished pods that should be deleted."""

    pods: Int32s
    """Rows of finished pods in the snapshot, each once, in the order in which they should be deleted."""
    reason: Callable[[int], str]
    """Returns why one of them should be deleted, in a phrase with numbers."""


class Strategy(ABC):
    """A plug-in, registered under the entry point group ``rebalancer.strategies``.

    ``rebalancer policy strategies`` shows the first line of the class docstring. All methods are pure: no I/O, no clock, no
    global state. ``params`` is an instance of the strategy's ``Params``. Only :meth:`terms` is required: the other
    methods have neutral defaults.
    """

    Params: ClassVar[type[Params]]
    makes_room: ClassVar[bool] = False
    """Whether pods are moved off nodes to make room for others: see :meth:`asks`."""

    @abstractmethod
    def terms(self, view: View, params: Any) -> Sequence[Term]:
        """Return the strategy's terms over ``view``."""

    def needs_usage(self, params: Any) -> bool:  # noqa: ARG002
        """Return whether the strategy needs ``snapshot.usage``, which is read only if some strategy needs it."""
        return False

    def contradiction(self, snapshot: Snapshot, one: Any, other: Any) -> str | None:  # noqa: ARG002
        """Return how two ``Params`` of a policy pull the same pods to different places; None if they do not."""
        return None

    # -- strategies that empty whole nodes -------------------------------------------------------------------

    def marks_last(self, params: Any) -> float | None:  # noqa: ARG002
        """Return the seconds after which a mark on a node expires unless a run renews it.

        None: the strategy does not empty nodes. Otherwise the planner chooses nodes from :meth:`emptiable` and marks
        them before it calls :meth:`terms`. The terms are then about the marked nodes, see ``View.to_be_empty``.
        """
        return None

    def emptiable(self, view: View, params: Any) -> Emptiable:
        """Return the nodes that may be emptied."""
        raise NotImplementedError

    # -- strategies that make room ---------------------------------------------------------------------------

    def asks(self, view: View, params: Any) -> Sequence[Ask]:  # noqa: ARG002
        """Return the requests for room, most important first. The planner searches for the fewest moves that make this room.

        The terms of such a strategy are :meth:`room_terms`.
        """
        return ()

    def room_terms(self, view: View, params: Any) -> Sequence[Term]:
        """Return the term that counts the missing rooms of :meth:`asks`."""
        return [RoomTerm(view, self.asks(view, params))]

    def room_after(self, params: Any) -> float | None:  # noqa: ARG002
        """Return after how many seconds room is made for a pending pod; None if the strategy makes no room for pending pods."""
        return None

    # -- strategies that remove pods that have ended ---------------------------------------------------------

    def phases(self, params: Any) -> frozenset[str]:  # noqa: ARG002
        """Return the pod phases (Succeeded, Failed) of the pods that the strategy may delete.

        Finished pods are read only if some strategy returns a phase.
        """
        return frozenset()

    def ended(self, finished: Snapshot, params: Any) -> Ended:
        """Return the pods to delete from a snapshot of finished pods (``Snapshot.finished``).

        The planner then excludes protected pods, and pods that their controller still needs.
        """
        raise NotImplementedError
