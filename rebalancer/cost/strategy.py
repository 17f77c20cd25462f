"""A strategy: the plug-in that hands over terms, empties nodes or removes pods that have ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rebalancer.cost.term import Term, View
from rebalancer.policy.values import Params
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.model import Snapshot


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


@dataclass(frozen=True, slots=True)
class Ended:
    """Pods that have ended and should be removed."""

    pods: Int32s
    """Rows of the snapshot of finished pods, each once, those that should go first first."""
    reason: Callable[[int], str]
    """Says of one of them, in a phrase with numbers, why it should go."""


class Strategy(ABC):
    """A plug-in, listed under the entry point group ``rebalancer.strategies``.

    The first line of the class docstring is what ``rebalancer strategies`` shows. All methods are pure: no I/O, no
    clock, no global state. ``params`` are of the strategy's own ``Params``. Methods that have a body hold a neutral answer.
    """

    Params: ClassVar[type[Params]]

    @abstractmethod
    def terms(self, view: View, params: Any) -> Sequence[Term]:
        """Return the strategy's terms over ``view``."""

    def needs_usage(self, params: Any) -> bool:  # noqa: ARG002
        """Return whether it wants ``snapshot.usage``, which is only read where some strategy does."""
        return False

    def contradiction(self, snapshot: Snapshot, one: Any, other: Any) -> str | None:  # noqa: ARG002
        """Return how two ``Params`` of a policy pull the same pods to different places; None if they do not."""
        return None

    # -- strategies that empty whole nodes -------------------------------------------------------------------

    def marks_last(self, params: Any) -> float | None:  # noqa: ARG002
        """Return the seconds for which a node stays marked unless a run renews the mark; None: it empties no nodes.

        Of a strategy that does, the planner chooses the nodes among those that are :meth:`emptiable`, and marks them before it
        asks for terms. The terms are then about the nodes that are marked, see ``View.to_be_empty``.
        """
        return None

    def emptiable(self, view: View, params: Any) -> Emptiable:
        """Return the nodes that may be emptied."""
        raise NotImplementedError

    # -- strategies that remove pods that have ended ---------------------------------------------------------

    def phases(self, params: Any) -> frozenset[str]:  # noqa: ARG002
        """Return the phases, Succeeded or Failed, of the pods that it may remove; these are only read where asked for."""
        return frozenset()

    def ended(self, finished: Snapshot, params: Any) -> Ended:
        """Return the pods to be removed of a snapshot of finished pods (``Snapshot.finished``).

        The planner leaves out pods that their owner still needs, and those that are protected.
        """
        raise NotImplementedError
