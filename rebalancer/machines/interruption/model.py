"""The contract of a step of the pipeline.

A step is a class with a ``Params`` model, registered under the entry point group ``rebalancer.steps``, and loaded
only when a policy names it. It runs in a thread of its own, which is left alone once its part of the time is over: no
step takes another's. What it does, it may be asked to do again, by a process that goes on after this one was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from rebalancer.base.stop import Stop
from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.kube.resources import AccessRule
from rebalancer.plan.machines import StepOutcome, StepStatus
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.model import Interruption

DONE = StepOutcome(StepStatus.DONE)


def failed(why: str) -> StepOutcome:
    """Return the outcome of a step that could not do it, and why, in one line without secrets."""
    return StepOutcome(StepStatus.FAILED, why)


def skipped(why: str) -> StepOutcome:
    """Return the outcome of a step that had nothing to do, and why."""
    return StepOutcome(StepStatus.SKIPPED, why)


def timed_out(why: str) -> StepOutcome:
    """Return the outcome of a step whose part of the time was over, and what was not done by then."""
    return StepOutcome(StepStatus.TIMED_OUT, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a step is given."""

    interruption: Interruption
    """The most urgent one of this machine; its token is of no use here."""
    node: str
    """Name of the Node; empty where the machine is none."""
    instance: str
    """Name of the machine at its provider; empty where that is not known."""
    deadline: float | None
    """Unix seconds at which the machine goes; None: not known."""
    stop: Stop
    """Comes when the step's part of the time is over, the interruption is cancelled, or the process ends."""
    client: Client
    """Of the API server; its calls end with ``stop``."""
    environ: Mapping[str, str]
    unix: Callable[[], float]
    """Returns Unix seconds."""
    outcomes: Mapping[str, StepOutcome]
    """Of the steps before this one, by their names in the policy."""
    left: str
    """What this step has kept by :attr:`keep` or :attr:`change` so far, also in a process before this one; or empty.

    What stands on the node may be written by others, its own kubelet among them: it is read only for a step whose ``Params`` say
    ``changes_node``. All else is what :attr:`keep` has kept, which others cannot write.
    """
    keep: Callable[[str], None]
    """Writes a text of the step's own, before it does what :meth:`Undoing.undo` needs it for.

    It stands where only this process writes, with how far the steps are; with ``Params.keeps`` under the machine's name at its
    provider, for longer than that.

    It may be some hundred characters, and 8 KiB at most (SignalError). Raises ClusterReadError. Without a node it is kept in the process alone.
    """
    change: Callable[[Callable[[NodeView], NodeChange | None], str], NodeView | None]
    """Changes the node as ``rebalancer.kube.nodes.change_node`` does, and keeps a text there with the very same write.

    For steps whose ``Params`` say ``changes_node``.

    Returns the node as it is then, None if there is none. Where nothing is to be changed, nothing is kept.
    """
    idempotency_key: str
    """A UUID for receivers outside the cluster: the same for each attempt of this step in this pipeline run, and no other.

    A process that continues after a kill may send a request again; by the key its receiver knows that it had it before.
    Another announcement of the machine, after the end of this pipeline run, makes another key.
    """
    plan: Callable[[], None]
    """Has the planner look at the cluster soon, and not only when its next run is due."""


@runtime_checkable
class Step(Protocol):
    """A plug-in, listed under the entry point group ``rebalancer.steps``; the first line of its docstring says what it does.

    Called by several threads at once for several machines: what it keeps in itself, it locks.
    """

    Params: ClassVar[type[StepParams]]

    def act(self, context: StepContext, params: Any) -> StepOutcome:
        """Do it, and return the outcome of it; doing it twice does what doing it once does.

        What it raises counts as a failure: ClusterReadError and SignalError with their messages, all else by its name.
        """


@runtime_checkable
class Undoing(Protocol):
    """A step that can be undone, for a machine that stays after all."""

    def undo(self, context: StepContext, params: Any) -> None:
        """Undo what this step did, and nothing that others did; it may not have come to its end.

        Raises:
            ClusterReadError or SignalError: it could not be undone now; it is tried again.
        """


@runtime_checkable
class Permitted(Protocol):
    """A step that needs rights in the cluster beside those to read and change nodes."""

    def rules(self, params: Any) -> tuple[AccessRule, ...]:
        """Return these rights."""
