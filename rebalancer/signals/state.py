"""What the pipeline has written on a node: by it, another process goes on where one was killed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rebalancer.plan.machines import PipelineOutcome, Result, StepOutcome, StepStatus
from rebalancer.signals.model import Interruption, latest_end

STATE = "rebalancer/interruption"
"""The annotation's name; its value is a :class:`State` in JSON."""

_LONGEST_TEXT = 300
"""Characters of a reason: the annotations of a node hold 256 KiB in all, and most of that is for others."""
_LONGEST = 64 * 1024
"""Characters of the annotation's value; what is longer is not ours."""


class RecordedInterruption(msgspec.Struct, frozen=True, omit_defaults=True):
    """One interruption of the machine."""

    id: str
    kind: str
    source: str
    deadline: float | None = None
    """Unix seconds."""
    reason: str = ""
    until: float | None = None
    """Unix seconds."""
    held: bool = False

    @classmethod
    def of(cls, interruption: Interruption) -> RecordedInterruption:
        """Return what is written of an interruption."""
        one = interruption
        reason = one.reason[:_LONGEST_TEXT]
        return cls(one.id, one.kind, one.source, one.deadline, reason, one.until, one.held)


class StepState(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far one step has come."""

    status: StepStatus
    at: float = 0.0
    """Unix seconds when it got there."""
    why: str = ""
    left: str = ""
    """What the step has kept for itself: what it needs to undo what it did."""

    @classmethod
    def of(cls, outcome: StepOutcome, at: float, left: str) -> StepState:
        """Return what is written of an outcome."""
        return cls(outcome.status, at, outcome.why[:_LONGEST_TEXT], left)

    @property
    def outcome(self) -> StepOutcome:
        """What came of it."""
        return StepOutcome(self.status, self.why)


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the pipeline has come with one node."""

    causes: tuple[RecordedInterruption, ...] = ()
    begun: float = 0.0
    """Unix seconds."""
    steps: dict[str, StepState] = {}
    """Name of the step in the policy -> its state, in order."""
    ended: float = 0.0
    """Unix seconds; 0: it has not."""
    uid: str = ""
    """Of the Node: another one of its name is another machine."""

    def goes_by(self, cause: RecordedInterruption) -> float:
        """Return the latest time at which the machine goes by a cause, or the begin of the steps where that is not known."""
        latest = latest_end(cause.deadline, cause.until)
        return self.begun if latest is None else latest

    @property
    def outcome(self) -> PipelineOutcome:
        """What came of it, once it has ended."""
        steps = {name: step.outcome for name, step in self.steps.items()}
        whole = all(outcome.is_good for outcome in steps.values())
        return PipelineOutcome(Result.DONE if whole else Result.INCOMPLETE, steps)


_decoder = msgspec.json.Decoder(State)


def read(text: str) -> State | None:
    """Return what the annotation's value says; None if it cannot be read, or names no Node."""
    try:
        state = None if len(text) > _LONGEST else _decoder.decode(text)
    except (ValueError, RecursionError):
        return None
    return state if state is not None and state.uid else None


def state_in(annotations: Mapping[str, str] | None, uid: str) -> State | None:
    """Return what the annotations of the Node ``uid`` say of it; None if that is nothing, cannot be read, or is about another."""
    state = read((annotations or {}).get(STATE, ""))
    return None if state is None or state.uid != uid else state


def written(state: State) -> str:
    """Return the annotation's value."""
    return msgspec.json.encode(state).decode()
