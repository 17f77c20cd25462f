"""The state of the interruption pipeline on a Node, from which another process can continue."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rebalancer.plan.machines import PipelineOutcome, Result, StepOutcome, StepStatus
from rebalancer.signals.model import Interruption, latest_end

STATE = "rebalancer/interruption"
"""The annotation's name; its value is a :class:`PipelineState` in JSON."""

_MAX_TEXT = 300
"""Characters of a reason: the annotations of a node may have 256 KiB in all, and most of that is for others."""
_MAX_VALUE = 64 * 1024
"""Characters of the annotation's value; what is longer is not ours."""


class RecordedInterruption(msgspec.Struct, frozen=True, omit_defaults=True):
    """One interruption of the machine, as recorded."""

    id: str
    kind: str
    source: str
    deadline: float | None = None
    """Unix seconds at which the machine ends; None: not known."""
    reason: str = ""
    until: float | None = None
    """Unix seconds at which the window ends that begins at ``deadline``; None: there is none."""
    held: bool = False

    @classmethod
    def of(cls, interruption: Interruption) -> RecordedInterruption:
        """Return the record of an interruption."""
        one = interruption
        reason = one.reason[:_MAX_TEXT]
        return cls(one.id, one.kind, one.source, one.deadline, reason, one.until, one.held)


class StepState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of one step."""

    status: StepStatus
    at: float = 0.0
    """Unix seconds when it got there."""
    why: str = ""
    left: str = ""
    """The text that the step has stored, in order to undo its change."""

    @classmethod
    def of(cls, outcome: StepOutcome, at: float, left: str) -> StepState:
        """Return the record of a step's outcome."""
        return cls(outcome.status, at, outcome.why[:_MAX_TEXT], left)

    @property
    def outcome(self) -> StepOutcome:
        """The outcome of the step."""
        return StepOutcome(self.status, self.why)


class PipelineState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of the pipeline on one node."""

    causes: tuple[RecordedInterruption, ...] = ()
    begun: float = 0.0
    """Start of the steps, in Unix seconds."""
    steps: dict[str, StepState] = {}
    """Name of the step in the policy -> its state, in order."""
    ended: float = 0.0
    """Unix seconds; 0: it has not."""
    uid: str = ""
    """Uid of the Node: another Node with its name is another machine."""

    def goes_by(self, cause: RecordedInterruption) -> float:
        """Return the latest time at which the machine ends (Unix seconds); the start of the steps if it is unknown.

        A machine held by its source ends when the steps have ended.
        """
        latest = latest_end(cause.deadline, cause.until)
        if latest is None:
            latest = max(self.begun, self.ended) if cause.held else self.begun
        return latest

    @property
    def outcome(self) -> PipelineOutcome:
        """The result of the pipeline, once it has ended."""
        steps = {name: step.outcome for name, step in self.steps.items()}
        whole = all(outcome.is_good for outcome in steps.values())
        return PipelineOutcome(Result.DONE if whole else Result.INCOMPLETE, steps)


_decoder = msgspec.json.Decoder(PipelineState)


def read(text: str) -> PipelineState | None:
    """Parse an annotation value; return None if it is malformed or names no Node."""
    try:
        state = None if len(text) > _MAX_VALUE else _decoder.decode(text)
    except (ValueError, RecursionError):
        return None
    return state if state is not None and state.uid else None


def state_in(annotations: Mapping[str, str] | None, uid: str) -> PipelineState | None:
    """Return the state recorded in the annotations of the Node ``uid``.

    None if there is no state, it is malformed, or it belongs to another Node.
    """
    state = read((annotations or {}).get(STATE, ""))
    return None if state is None or state.uid != uid else state


def encode_state(state: PipelineState) -> str:
    """Return the state as an annotation value."""
    return msgspec.json.encode(state).decode()
