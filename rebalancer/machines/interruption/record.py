"""The progress of one machine's steps: stored where only this process writes, and shown on the node.

The stored data decide which steps run, what announced the machine, and what a step has stored itself. The annotation
on the node is a copy for people and for other components that cordon nodes. Only one part of it is read: what a
change of the node has recorded in the same write (who cordoned it). Both are read before the first write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable
from typing import TypeVar

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.machines.interruption.kept import KeptMissingError, KeptTexts
from rebalancer.node_record.protocol import Write, change_record
from rebalancer.node_record.records import INTERRUPTIONS
from rebalancer.plan.machines import StepOutcome, StepStatus
from rebalancer.signals.state import RecordedInterruption, State, StepState

_PAUSE = 0.5
"""Seconds between two attempts."""
Wanted = Callable[[NodeView], NodeChange | None]
T = TypeVar("T")


class Record:
    """The state of one machine: in memory, in the store, and on its node. Thread-safe."""

    def __init__(self, node: str, uid: str, kept: KeptTexts, changing: Container[str] = ()) -> None:
        """``node``: the Node's name; empty if the machine is not a Node.

        ``changing``: names of the steps that change the node, and record something there with the change.
        """
        self.node, self.uid, self._kept, self._changing = node, uid, kept, changing
        self.gone = False
        """Whether the Node was there no more when it was read last, or was another one of its name."""
        self.shown = False
        """Whether something stood on the Node, of whomever, when it was read last."""
        self._recalled = not uid
        """Whether what is kept has been read, or there is none."""
        self.state = State()
        self._lock = threading.RLock()

    # -- what is known -----------------------------------------------------------------------------

    def begin(self, causes: Iterable[RecordedInterruption], now: float) -> None:
        """Start with the first step; data that steps have stored stay."""
        with self._lock:
            steps = {
                name: StepState(StepStatus.RUNNING, left=step.left)
                for name, step in self.state.steps.items()
                if step.left
            }
            self.state = State(tuple(causes), now, steps)

    def causes(self, causes: Iterable[RecordedInterruption]) -> None:
        """Set the valid interruptions of the machine."""
        with self._lock:
            self.state = msgspec.structs.replace(self.state, causes=tuple(causes))

    def step(self, name: str, outcome: StepOutcome, now: float) -> None:
        """Record the outcome of a step; it is written with the next change of the node."""
        with self._lock:
            self._set(name, StepState.of(outcome, now, self.left(name)))

    def end(self, now: float) -> None:
        """Record that all steps have ended."""
        with self._lock:
            self.state = msgspec.structs.replace(self.state, ended=now)

    def undone(self, name: str) -> None:
        """Record that a step was undone; it runs again if the machine goes after all."""
        with self._lock:
            self._set(name, StepState(StepStatus.RUNNING, left=self.left(name)))

    def left(self, name: str) -> str:
        """Return the data that a step has stored."""
        step = self.state.steps.get(name)
        return "" if step is None else step.left

    def keep(self, name: str, left: str) -> None:
        """Store data for a step."""
        with self._lock:
            self.state = self._with((name, left))

    def _set(self, name: str, step: StepState) -> None:
        steps = {**self.state.steps, name: step}
        self.state = msgspec.structs.replace(self.state, steps=steps)

    def assume(self) -> None:
        """Use the stored data as last read if they cannot be read now, so that no finished step runs again."""
        there = self._kept.known_states().get(self.uid)
        with self._lock:
            if not self._recalled and there is not None:
                self.state = self._joined(there)

    def outcome(self, name: str) -> StepOutcome | None:
        """Return the outcome of a step; None if it has not ended."""
        step = self.state.steps.get(name)
        return None if step is None or step.status is StepStatus.RUNNING else step.outcome

    # -- the node ----------------------------------------------------------------------------------

    def write(self, client: Client) -> None:
        """Store the state, and show it on the node; first read what was stored before, if necessary.

        Raises:
            ClusterReadError: it could not be written.
        """
        try:
            self._keep_state(client)
        finally:
            self.change(client, None, lambda _: NodeChange())

    def _keep_state(self, client: Client) -> None:
        if self.uid:
            self._recall(client)
            self._kept.keep_state(client, self.uid, self._with(None))

    def change(
        self, client: Client, kept: tuple[str, str] | None, wanted: Wanted
    ) -> NodeView | None:
        """Change the node and show the state on it; return its new version, or None if it is gone.

        ``kept``: a step, and the data that it stores with this change; nothing is stored if ``wanted`` returns None.

        Raises:
            ClusterReadError: the node could not be read or written.
        """
        if not self.node:
            return None
        changed = False

        def decide(node: NodeView, there: State | None) -> Write[State] | None:
            nonlocal changed
            self.shown = there is not None
            if there is not None:
                self._take_left(there, self._changing)
            change = wanted(node)
            changed = change is not None
            return None if change is None else Write(self._with(kept), change)

        node = change_record(client, self.node, INTERRUPTIONS, decide, uid=self.uid)
        self.gone = node is None
        if kept is not None and changed:
            self.keep(*kept)
        return node

    def clear(self, client: Client) -> None:
        """Remove the state from the node and from the store.

        Raises:
            ClusterReadError: it could not be written.
        """
        if self.node:
            change_record(
                client,
                self.node,
                INTERRUPTIONS,
                lambda _, there: None if there is None else Write(None),
                uid=self.uid,
            )
        self._kept.forget(client, self.uid)

    def withdraw(self, client: Client, now: float) -> None:
        """Reduce the state to what announced the machine, to recognise it when it is received again.

        Raises:
            ClusterReadError: it could not be written.
        """

        def wanted(_: NodeView) -> NodeChange:
            with self._lock:
                self.state = msgspec.structs.replace(self.state, steps={}, ended=now)
            return NodeChange()

        self.change(client, None, wanted)
        self._keep_state(client)

    def read(self, client: Client) -> None:
        """Read the stored state, and the annotation on the node.

        Raises:
            ClusterReadError: one of them could not be read.
        """
        self._recall(client)
        self.change(client, None, lambda _: None)

    def _recall(self, client: Client) -> None:
        """Continue from the stored state: another process has written it, or a response to us was lost."""
        if self._recalled:
            return
        there = self._kept.states(client).get(self.uid)
        with self._lock:
            self._recalled = True
            if there is not None and self._is_same_run(there):
                self.state = self._joined(there)
            elif there is not None:
                self._take_left(there)

    def _with(self, kept: tuple[str, str] | None) -> State:
        """Return the state with ``kept`` included."""
        if kept is None:
            return msgspec.structs.replace(self.state, uid=self.uid)
        step = self.state.steps.get(kept[0], StepState(StepStatus.RUNNING))
        steps = {**self.state.steps, kept[0]: msgspec.structs.replace(step, left=kept[1])}
        return msgspec.structs.replace(self.state, steps=steps, uid=self.uid)

    def _take_left(self, there: State, names: Container[str] | None = None) -> None:
        """Copy the data that steps (``names``; None: all) have stored, where none are known here."""
        with self._lock:
            for name, step in there.steps.items():
                if step.left and not self.left(name) and (names is None or name in names):
                    self.keep(name, step.left)

    def _is_same_run(self, there: State) -> bool:
        """Return whether the stored state belongs to the pipeline run that has started here, or none has started."""
        ours = self.state
        new = {cause.id for cause in ours.causes} - {cause.id for cause in there.causes}
        return not (ours.begun and there.ended and new)

    def _joined(self, there: State) -> State:
        """Return the stored state merged with what was done here without knowing it; finished steps stay finished."""
        steps = dict(there.steps)
        for name, step in self.state.steps.items():
            if name not in steps or step.status is not StepStatus.RUNNING:
                steps[name] = step
        begun = there.begun or self.state.begun
        return State(there.causes, begun, steps, there.ended, self.uid)


def patiently(act: Callable[[], T], stop: Stop) -> T:
    """Return the result of ``act``; while the API server does not answer, try again until ``stop``.

    Raises:
        ClusterReadError: it did not succeed until then, or never can.
    """
    while True:
        try:
            return act()
        except (ForbiddenError, KeptMissingError):
            raise
        except ClusterReadError:
            if stop.wait(_PAUSE) is not None:
                raise
