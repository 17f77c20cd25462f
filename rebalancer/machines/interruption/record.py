"""The progress of one machine's steps: stored where only this process writes, and shown on the node.

The stored data decide which steps run, what announced the machine, and what a step has stored itself. The annotation
on the node is a copy for people and for other components that cordon nodes. Only one part of it is read: what a
change of the node has recorded in the same write (who cordoned it). Both are read before the first write.

Stored under the uid of a Node: what announced the interruption, and the progress of its steps, for a later process.
Stored under the machine's name at its provider: data that decide over a call to a cloud (the security groups and
targets to restore). Both are in a ConfigMap that only this process may write; the record on the node is a copy for
people.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import MAX_BYTES, ConfigMapMissingError, ConfigMapStore
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.node_record.protocol import Write, change_record
from rebalancer.node_record.records import INTERRUPTIONS
from rebalancer.plan.machines import StepOutcome, StepStatus
from rebalancer.signals.state import PipelineState, RecordedInterruption, StepState

_LASTS = 90 * 86400.0
"""Seconds after which what is kept of a machine is dropped, if others are kept: it was not given back, and has gone."""
_MAX_MACHINES = 300
"""Maximum number of machines in the record: the oldest are removed first."""
_MAX_STORED_BYTES = MAX_BYTES * 9 // 10
_MAX_TURN = 1.0
"""Seconds for which a write waits for that of another machine's run: a write without an answer must not delay the others."""
_KEY = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,250}")


class KeptOfMachine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data that the steps store about one machine."""

    machine: str
    at: float
    """Unix seconds of the last change."""
    steps: dict[str, str] = {}
    """Name of the step in the policy -> its text."""
    state: PipelineState | None = None
    """How far its steps have come; ``machine`` is the uid of its Node then."""


_decoder = msgspec.json.Decoder(KeptOfMachine)


@dataclass
class KeptTexts:
    """The texts that steps store in the ConfigMap ``where`` (namespace, name); without one, in memory. Thread-safe."""

    where: tuple[str, str] | None
    unix: Callable[[], float]
    """Returns the time in Unix seconds."""
    _own: Mapping[str, str] = field(default_factory=dict)
    """What is kept, as it was read or written last; never changed in place."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Spares the runs of this process conflicts; that nothing is lost is the object's version's matter."""

    def of(self, client: Client, machine: str, step: str) -> str:
        """Return the text that a step has stored about a machine; empty if there is none.

        Raises:
            ClusterReadError: it could not be read.
        """
        if not machine:
            return ""
        kept = _decode(self._read(client, after_stop=True).get(_key(machine)))
        return "" if kept is None or kept.machine != machine else kept.steps.get(step, "")

    def keep(self, client: Client, machine: str, step: str, text: str) -> None:
        """Store a text for a step.

        Raises:
            ClusterReadError: it could not be written.
        """

        def keep_text(before: KeptOfMachine) -> KeptOfMachine:
            return msgspec.structs.replace(before, steps={**before.steps, step: text})

        self._keep(client, machine, keep_text, after_stop=True)

    def keep_state(self, client: Client, uid: str, state: PipelineState) -> None:
        """Store the announcements of the interruption of the Node ``uid``, and the progress of its steps.

        Raises:
            ClusterReadError: it could not be written.
        """

        def keep_text(before: KeptOfMachine) -> KeptOfMachine:
            return msgspec.structs.replace(before, state=state)

        self._keep(client, uid, keep_text, after_stop=False)

    def states(self, client: Client) -> Mapping[str, PipelineState]:
        """Return uid -> stored state of each Node, also those of an earlier process.

        Raises:
            ClusterReadError: it could not be read.
        """
        self._read(client, after_stop=False)
        return self.known_states()

    def known_states(self) -> Mapping[str, PipelineState]:
        """Return :meth:`states` as last read or written: only the leading process writes it."""
        every = [_decode(text) for text in self._own.values()]
        return {one.machine: one.state for one in every if one is not None and one.state}

    def forget(self, client: Client, *machines: str) -> None:
        """Drop the data of machines or Nodes: everything was restored, or they are gone.

        Raises:
            ClusterReadError: it could not be written.
        """
        keys = {_key(machine) for machine in machines if machine}

        def without(data: Mapping[str, str]) -> dict[str, str]:
            return {key: text for key, text in data.items() if key not in keys}

        if keys:
            self._change(client, without, after_stop=True)

    def _keep(
        self,
        client: Client,
        machine: str,
        kept: Callable[[KeptOfMachine], KeptOfMachine],
        *,
        after_stop: bool,
    ) -> None:
        now = self.unix()

        def change(data: Mapping[str, str]) -> dict[str, str]:
            before = _decode(data.get(_key(machine)))
            if before is None or before.machine != machine:
                before = KeptOfMachine(machine, now)
            after = kept(before)
            if after == before and _key(machine) in data:
                return dict(data)
            text = msgspec.json.encode(msgspec.structs.replace(after, at=now)).decode()
            return _shorten({**data, _key(machine): text}, now)

        self._change(client, change, after_stop=after_stop)

    def _read(self, client: Client, *, after_stop: bool) -> Mapping[str, str]:
        if self.where is not None:
            self._own = self._store(client, self.where, after_stop=after_stop).require().data
        return self._own

    def _store(self, client: Client, where: tuple[str, str], *, after_stop: bool) -> ConfigMapStore:
        # Runs of several machines write at once, and so does another process.
        return ConfigMapStore(
            client, *where, advice="see --machine-state", after_stop=after_stop, attempts=5
        )

    def _change(
        self,
        client: Client,
        changed: Callable[[Mapping[str, str]], dict[str, str]],
        *,
        after_stop: bool,
    ) -> None:
        alone = self._lock.acquire(timeout=_MAX_TURN)
        try:
            if self.where is None:
                self._own = changed(self._own)
            else:
                store = self._store(client, self.where, after_stop=after_stop)
                self._own = store.update(changed).data
        finally:
            if alone:
                self._lock.release()


def _key(machine: str) -> str:
    return machine if _KEY.fullmatch(machine) else str(uuid.uuid5(uuid.NAMESPACE_OID, machine))


def _decode(text: str | None) -> KeptOfMachine | None:
    try:
        return None if text is None else _decoder.decode(text)
    except (ValueError, RecursionError):
        return None


def _shorten(data: dict[str, str], now: float) -> dict[str, str]:
    """Return the data without entries that are too old or too many; the newest entry is always kept."""
    kept = {key: one for key, text in data.items() if (one := _decode(text)) is not None}
    left: dict[str, str] = {}
    size = 0
    for key in sorted(kept, key=lambda key: -kept[key].at):
        size += len(key.encode()) + len(data[key].encode())
        is_old = now - kept[key].at > _LASTS
        if left and (is_old or len(left) >= _MAX_MACHINES or size > _MAX_STORED_BYTES):
            break
        left[key] = data[key]
    return {key: text for key, text in data.items() if key in left or key not in kept}


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
        self.state = PipelineState()
        self._lock = threading.RLock()

    # -- what is known -----------------------------------------------------------------------------

    def begin(self, causes: Iterable[RecordedInterruption], now: float) -> None:
        """Start with the first step; data that steps have stored are kept."""
        with self._lock:
            steps = {
                name: StepState(StepStatus.RUNNING, left=step.left)
                for name, step in self.state.steps.items()
                if step.left
            }
            self.state = PipelineState(tuple(causes), now, steps)

    def causes(self, causes: Iterable[RecordedInterruption]) -> None:
        """Set the valid interruptions of the machine."""
        with self._lock:
            self.state = msgspec.structs.replace(self.state, causes=tuple(causes))

    def step(self, name: str, outcome: StepOutcome, now: float) -> None:
        """Record the outcome of a step; it is written with the next change of the node."""
        with self._lock:
            self._set(name, StepState.of(outcome, now, self.kept_data(name)))

    def end(self, now: float) -> None:
        """Record that all steps have ended."""
        with self._lock:
            self.state = msgspec.structs.replace(self.state, ended=now)

    def undone(self, name: str) -> None:
        """Record that a step was undone; it runs again if the machine is interrupted again."""
        with self._lock:
            self._set(name, StepState(StepStatus.RUNNING, left=self.kept_data(name)))

    def kept_data(self, name: str) -> str:
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
                self.state = self._join(there)

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

        def decide(node: NodeView, there: PipelineState | None) -> Write[PipelineState] | None:
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
        """Reduce the state to the announcement, to recognise it when it is received again.

        Raises:
            ClusterReadError: it could not be written.
        """

        def change(_: NodeView) -> NodeChange:
            with self._lock:
                self.state = msgspec.structs.replace(self.state, steps={}, ended=now)
            return NodeChange()

        self.change(client, None, change)
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
                self.state = self._join(there)
            elif there is not None:
                self._take_left(there)

    def _with(self, kept: tuple[str, str] | None) -> PipelineState:
        if kept is None:
            return msgspec.structs.replace(self.state, uid=self.uid)
        step = self.state.steps.get(kept[0], StepState(StepStatus.RUNNING))
        steps = {**self.state.steps, kept[0]: msgspec.structs.replace(step, left=kept[1])}
        return msgspec.structs.replace(self.state, steps=steps, uid=self.uid)

    def _take_left(self, there: PipelineState, names: Container[str] | None = None) -> None:
        """Copy the data that steps (``names``; None: all) have stored, where none are known here."""
        with self._lock:
            for name, step in there.steps.items():
                if step.left and not self.kept_data(name) and (names is None or name in names):
                    self.keep(name, step.left)

    def _is_same_run(self, there: PipelineState) -> bool:
        """Return whether the stored state belongs to the pipeline run that has started here, or none has started."""
        ours = self.state
        new = {cause.id for cause in ours.causes} - {cause.id for cause in there.causes}
        return not (ours.begun and there.ended and new)

    def _join(self, there: PipelineState) -> PipelineState:
        """Return the stored state merged with what was done here before it was read; finished steps remain finished."""
        steps = dict(there.steps)
        for name, step in self.state.steps.items():
            if name not in steps or step.status is not StepStatus.RUNNING:
                steps[name] = step
        begun = there.begun or self.state.begun
        return PipelineState(there.causes, begun, steps, there.ended, self.uid)


def patiently(act: Callable[[], T], stop: Stop) -> T:
    """Return the result of ``act``; while the API server does not answer, try again until ``stop``.

    Raises:
        ClusterReadError: it did not succeed until then, or never can.
    """
    while True:
        try:
            return act()
        except (ForbiddenError, ConfigMapMissingError):
            raise
        except ClusterReadError:
            if stop.wait(_PAUSE) is not None:
                raise
