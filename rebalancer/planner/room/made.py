"""The room made so far: moves wave by wave, and which request has its room after them. It can be applied to any draft."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby

from rebalancer.cost.room_term import Ask
from rebalancer.plan.plan import Skip
from rebalancer.planner.draft import Draft
from rebalancer.planner.rendering import Chosen
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.model import GangKey
from rebalancer.snapshot.protect import BY_UNIT


@dataclass(frozen=True, slots=True)
class RoomStep:
    """A move, and the index of the landing that the state assumes."""

    chosen: Chosen
    prediction: Prediction
    lands: int
    ready: bool
    root: int
    """The ask of its way for which it is made."""


@dataclass(frozen=True, slots=True)
class RoomEntry:
    """A request for room that is fulfilled on ``node``: its pod is bound there, or the room is kept free there."""

    ask: Ask
    node: int
    wave: int
    """The wave after which the room is available."""


@dataclass(slots=True)
class MadeRooms:
    """The plan so far. It can be applied to another draft of the same problem."""

    first_wave: int = 1
    steps: list[RoomStep] = field(default_factory=list)
    entries: list[RoomEntry] = field(default_factory=list)
    fewest: int = 0
    skips: tuple[Skip, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def last_wave(self) -> int:
        """The newest wave, 0 if there is none yet."""
        return max((step.chosen.wave for step in self.steps), default=self.first_wave - 1)

    def onto(self, draft: Draft, *, ended: bool = True, reserving: bool = True) -> None:
        """Apply the plan to ``draft``. ``ended``: the last wave is over; else its moves are in flight.

        ``reserving``: reserve the room that is kept free for future pods, so that the search does not use it.
        Otherwise it is spare in the state, and the term of its strategy protects it.
        """
        last = self.last_wave
        self._enter(draft, self.first_wave - 1, reserving=reserving)
        for wave, steps in groupby(self.steps, key=lambda step: step.chosen.wave):
            for step in steps:
                move(draft, step.chosen, step.prediction, step.lands, ready=step.ready)
            if wave < last or ended:
                end_wave(draft)
                self._enter(draft, wave, reserving=reserving)

    def _enter(self, draft: Draft, wave: int, *, reserving: bool) -> None:
        for entry in self.entries:
            if entry.wave == wave and (reserving or entry.ask.pod >= 0):
                enter(draft, entry.ask, entry.node)

    @property
    def ends_with_gang(self) -> bool:
        """Whether the last wave moves a gang; such a wave has no other moves."""
        return bool(self.steps) and bool(self.steps[-1].chosen.gang)

    def open_rooms(self) -> set[int]:
        """Return the nodes that are still marked after the last move, while its wave is in flight."""
        return set(self.steps[-1].chosen.room or ()) if self.steps else set()


def end_wave(draft: Draft) -> None:
    """End a wave in the state: its victims are gone and its replacements are Ready."""
    draft.state.reap()
    draft.allowance.next_wave()


def move(draft: Draft, chosen: Chosen, prediction: Prediction, lands: int, *, ready: bool) -> None:
    """Move a pod in the state, and count it."""
    draft.move(chosen.pod, chosen.cls, prediction, lands)
    draft.allowance.spend(chosen.cls, chosen.node, chosen.strategy, ready=ready)


def enter(draft: Draft, ask: Ask, node: int) -> None:
    """Give a request its room: bind its pod to the node, unless an earlier eviction already did."""
    if ask.counted:
        return
    if ask.pod < 0:
        draft.state.reserve(ask.requests, ask.places, node)
    elif ask.cls < 0:
        draft.state.reserve(ask.requests, 0, node)
    elif draft.state.node_of[ask.pod] < 0:
        draft.expect(ask.cls)
        draft.state.place(ask.pod, ask.cls, node)


def kind_of(ask: Ask) -> object:
    """Return a key that is equal for requests which the same moves satisfy."""
    return ask.cls, ask.priority, ask.requests.tobytes(), ask.nodes.tobytes()


def gang_of(draft: Draft, ask: Ask) -> GangKey | None:
    """Return the gang of a request's pending pod, if the policy keeps gangs together; else None."""
    if ask.pod < 0 or not int(draft.problem.protected[ask.pod]) & BY_UNIT:
        return None
    of = draft.snapshot.classes[int(draft.snapshot.pods.cls[ask.pod])]
    return of.namespace, of.gang
