"""How far the steps of one machine have come: kept where only this process writes, and shown on the node.

What is kept decides which steps are run, what announced the machine, and what a step of its own has kept. The annotation on the
node is a copy for people and for the others who close nodes; of it only that is read which a change of the node has kept there
in the very same write (whose a cordon is), and may be handed over there. Both are read before the first write.
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
    """The state of one machine, here, where it is kept, and on its node. Thread-safe."""

    def __init__(self, node: str, uid: str, kept: KeptTexts, changing: Container[str] = ()) -> None:
        """``node``: the Node's name; empty where the machine is none.

        ``changing``: names of the steps that change the node, and keep something there with the change.
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
        """Begin with the first step; what the steps have kept for themselves stays."""
        with self._lock:
            steps = {
                name: StepState(StepStatus.RUNNING, left=step.left)
                for name, step in self.state.steps.items()
                if step.left
            }
            self.state = State(tuple(causes), now, steps)

    def causes(self, causes: Iterable[RecordedInterruption]) -> None:
        """Take the interruptions of the machine that hold now."""
        with self._lock:
            self.state = msgspec.structs.replace(self.state, causes=tuple(causes))

    def step(self, name: str, outcome: StepOutcome, now: float) -> None:
        """Take what came of a step; it is written with the next change of the node."""
        with self._lock:
            self._set(name, StepState.of(outcome, now, self.left(name)))

    def end(self, now: float) -> None:
        """All steps have come to their end."""
        with self._lock:
            self.state = msgspec.structs.replace(self.state, ended=now)

    def undone(self, name: str) -> None:
        """A step was undone: it is run again, should the machine go after all."""
        with self._lock:
            self._set(name, StepState(StepStatus.RUNNING, left=self.left(name)))

    def left(self, name: str) -> str:
        """Return what a step has kept for itself."""
        step = self.state.steps.get(name)
        return "" if step is None else step.left

    def keep(self, name: str, left: str) -> None:
        """Keep it for a step."""
        with self._lock:
            self.state = self._with((name, left))

    def _set(self, name: str, step: StepState) -> None:
        steps = {**self.state.steps, name: step}
        self.state = msgspec.structs.replace(self.state, steps=steps)

    def assume(self) -> None:
        """Go by what was kept when it was read last, where it cannot be read now: no step is run again that has ended."""
        there = self._kept.known_states().get(self.uid)
        with self._lock:
            if not self._recalled and there is not None:
                self.state = self._joined(there)

    def outcome(self, name: str) -> StepOutcome | None:
        """Return what came of a step, None if it has not ended."""
        step = self.state.steps.get(name)
        return None if step is None or step.status is StepStatus.RUNNING else step.outcome

    # -- the node ----------------------------------------------------------------------------------

    def write(self, client: Client) -> None:
        """Keep the state, and show it on the node; what was kept before is read first, if that was not done yet.

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
        """Change the node, and show the state on it; return it as it is then, None if it is gone.

        ``kept``: a step, and what it keeps with this change; nothing is kept where ``wanted`` returns None.

        Raises:
            ClusterReadError: it could not be read or written.
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
        """Take the state from the node, and from what is kept.

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
        """Leave of the state what announced the machine, so that it is known once it is received again.

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
        """Read what is kept, and what stands on the node.

        Raises:
            ClusterReadError: it could not be read.
        """
        self._recall(client)
        self.change(client, None, lambda _: None)

    def _recall(self, client: Client) -> None:
        """Go on from what is kept: another process has written it, or a reply to us was lost."""
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
        """Return the state as it is once ``kept`` is."""
        if kept is None:
            return msgspec.structs.replace(self.state, uid=self.uid)
        step = self.state.steps.get(kept[0], StepState(StepStatus.RUNNING))
        steps = {**self.state.steps, kept[0]: msgspec.structs.replace(step, left=kept[1])}
        return msgspec.structs.replace(self.state, steps=steps, uid=self.uid)

    def _take_left(self, there: State, names: Container[str] | None = None) -> None:
        """Take over what steps (``names``; None: all) have kept, where nothing is known of it here."""
        with self._lock:
            for name, step in there.steps.items():
                if step.left and not self.left(name) and (names is None or name in names):
                    self.keep(name, step.left)

    def _is_same_run(self, there: State) -> bool:
        """Return whether what is kept is of the pipeline run that has begun here; before one has, it is."""
        ours = self.state
        new = {cause.id for cause in ours.causes} - {cause.id for cause in there.causes}
        return not (ours.begun and there.ended and new)

    def _joined(self, there: State) -> State:
        """Return what is kept with what was done here without knowing it; a step that has ended stays so."""
        steps = dict(there.steps)
        for name, step in self.state.steps.items():
            if name not in steps or step.status is not StepStatus.RUNNING:
                steps[name] = step
        begun = there.begun or self.state.begun
        return State(there.causes, begun, steps, there.ended, self.uid)


def patiently(act: Callable[[], T], stop: Stop) -> T:
    """Return what ``act`` returns; while the API server does not answer, it is tried again until ``stop``.

    Raises:
        ClusterReadError: it could not be done until then, or never can.
    """
    while True:
        try:
            return act()
        except (ForbiddenError, KeptMissingError):
            raise
        except ClusterReadError:
            if stop.wait(_PAUSE) is not None:
                raise
