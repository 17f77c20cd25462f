"""The contract of a pipeline step.

A step is a class with a ``Params`` model, registered under the entry point group ``rebalancer.steps``, and loaded
only when a policy names it. It runs in its own thread, which is abandoned once its part of the time is over: no step
uses another's time. A step may be called again, by a process that continues after this one was killed.
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


def fail_step(why: str) -> StepOutcome:
    """Return the outcome of a failed step; ``why``: one line without secrets."""
    return StepOutcome(StepStatus.FAILED, why)


def skip_step(why: str) -> StepOutcome:
    """Return the outcome of a step that had nothing to do, with the reason."""
    return StepOutcome(StepStatus.SKIPPED, why)


def time_out_step(why: str) -> StepOutcome:
    """Return the outcome of a step whose time was over, and what remained undone."""
    return StepOutcome(StepStatus.TIMED_OUT, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """The input of a step."""

    interruption: Interruption
    """The most urgent one of this machine; its token is of no use here."""
    node: str
    """Name of the Node; empty where the machine is none."""
    instance: str
    """Name of the machine at its provider; empty where that is not known."""
    deadline: float | None
    """Unix seconds at which the machine ends; None: not known."""
    stop: Stop
    """Comes when the step's part of the time is over, the interruption is cancelled, or the process ends."""
    client: Client
    """The client of the API server; its calls end with ``stop``."""
    environ: Mapping[str, str]
    unix: Callable[[], float]
    """Returns the time in Unix seconds."""
    outcomes: Mapping[str, StepOutcome]
    """The outcomes of the steps before this one, by their names in the policy."""
    left: str
    """The text that this step has stored by :attr:`keep` or :attr:`change`, possibly in an earlier process; or empty.

    Other clients, such as the kubelet, may write the node: its content is read only for a step whose ``Params`` have
    ``changes_node``. Everything else was stored by :attr:`keep`, where others cannot write.
    """
    keep: Callable[[str], None]
    """Stores a text of the step, before it does what :meth:`Undoing.undo` needs it for.

    It is stored where only this process writes, beside the progress of the steps; with ``Params.keeps`` under the machine's name
    at its provider, and for longer.

    It may be some hundred characters, and 8 KiB at most (SignalError). Raises ClusterReadError. Without a node it is kept only in memory.
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
    """Call it to make the planner run soon, before its next run is due."""


@runtime_checkable
class Step(Protocol):
    """A plug-in of the entry point group ``rebalancer.steps``; the first docstring line is its description.

    Several threads call it concurrently for several machines: it must lock its own data.
    """

    Params: ClassVar[type[StepParams]]

    def act(self, context: StepContext, params: Any) -> StepOutcome:
        """Run the step and return its outcome. Must be idempotent.

        An exception counts as a failure: of ClusterReadError and SignalError the message is shown, of others the
        name.
        """


@runtime_checkable
class Undoing(Protocol):
    """A step that can be undone if the interruption is cancelled."""

    def undo(self, context: StepContext, params: Any) -> None:
        """Undo what this step did, but nothing that others did. The step may not have completed.

        Raises:
            ClusterReadError or SignalError: it could not be undone now; it is tried again.
        """


@runtime_checkable
class Permitted(Protocol):
    """A step that needs rights in the cluster other than reading and changing nodes."""

    def rules(self, params: Any) -> tuple[AccessRule, ...]:
        """Return the rights that the step needs."""
