"""Room for pods that wait: the moves that let them in, in an order in which each lands, and why others stay outside.

:mod:`rebalancer.planner.room_search` says who has to leave and where to. Here each way is tried in a draft as a run would
go it: wave by wave, within budgets, each pod with its predicted landing while the nodes that are being made free are marked,
and with further marks where the scheduler would choose another node. What pends may take what is freed before the pod that
it was meant for: only a way at whose end that pod has its node is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

import numpy as np

from rebalancer.cost.ask import Ask
from rebalancer.cost.guards import guard_term
from rebalancer.plan.plan import Code, Skip
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.judge import Judge
from rebalancer.planner.problem import Contribution, WeightedTerm
from rebalancer.planner.quota import QuotaLedger
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.room_reasons import find_expected, why_outside
from rebalancer.planner.room_repair import RoomRepair
from rebalancer.planner.room_search import Found, Item, Placing, RoomSearch
from rebalancer.planner.verdict import Verdict
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Bools, Int32s

_SURE = 0.95
"""Least probability of landings that leave the places of others free; the more a judge lets be on nodes about to go."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """What was planned for the pods that wait."""

    chosen: tuple[Chosen, ...] = ()
    waves: int = 0
    fewest: int = 0
    """At least so many evictions let in what the moves let in."""
    skips: tuple[Skip, ...] = ()
    """The pods that stay outside, each with the reason."""
    notes: tuple[str, ...] = ()
    """Why there is no room that no pod waits for, one line each."""

    def joined(self, other: Rooms) -> Rooms:
        """Return both together."""
        return Rooms(
            (*self.chosen, *other.chosen),
            max(self.waves, other.waves),
            max(self.fewest, other.fewest),
            (*self.skips, *other.skips),
            (*self.notes, *other.notes),
        )


def make_room(
    draft: Draft,
    effort: Effort,
    stop: Callable[[], str | None],
    most_landings: int | None,
    *,
    observed: bool,
    before: Sequence[Chosen] = (),
) -> Rooms:
    """Plan the moves of the strategies that make room; ``draft`` holds them then, and the pods let in have their nodes.

    ``before``: the moves that the draft holds already.
    """
    first = before[-1].wave + 1 if before else 1
    rooms = Rooms(waves=first - 1)
    done: list[Callable[[Draft], None]] = [partial(_again, before)]
    for of in draft.problem.contributions:
        if of.asks is None or of.observed is not observed:
            continue
        if not (asks := of.asks(draft.view_of(of))) or stop() is not None:
            continue
        made = _RoomPlan(draft, of, asks, effort, stop, rooms.waves + 1, tuple(done)).made()
        made.onto(draft, reserving=False)
        done.append(made.onto)
        rooms = Rooms(
            (*rooms.chosen, *(_kept(step.chosen, most_landings) for step in made.steps)),
            made.last_wave,
            max(rooms.fewest, made.fewest),
            (*rooms.skips, *made.skips),
            (*rooms.notes, *made.notes),
        )
    return rooms


def _again(before: Sequence[Chosen], draft: Draft) -> None:
    """Make moves once more, on another draft."""
    for _, of_wave in groupby(before, key=lambda chosen: chosen.wave):
        for one in of_wave:
            ready = draft.snapshot.pods.is_ready(one.pod)
            move(draft, one, one.landings, 0, ready=ready)
        end_wave(draft)


def _kept(chosen: Chosen, most: int | None) -> Chosen:
    landings = chosen.landings
    if most is None or len(landings.nodes) <= most:
        return chosen
    nodes, probability = landings.nodes[:most].copy(), landings.probability[:most].copy()
    return replace(chosen, landings=replace(landings, nodes=nodes, probability=probability))


# -- ways that were gone ------------------------------------------------------------------------------------

Refused = tuple[Code, str]
_TAKEN: Refused = (Code.NO_ROOM, "another pod that waits would take the room")


@dataclass(frozen=True, slots=True)
class _Step:
    """A move, with the place of its landing on which the state goes on."""

    chosen: Chosen
    prediction: Prediction
    lands: int
    ready: bool
    root: int
    """For which of the asks of its way."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An ask that has its room: the pod on its node, or what is kept free there."""

    ask: Ask
    node: int
    wave: int
    """After this wave."""


@dataclass(slots=True)
class _Made:
    """What is planned so far, to be done again on another draft of the same problem."""

    first_wave: int = 1
    steps: list[_Step] = field(default_factory=list)
    entries: list[_Entry] = field(default_factory=list)
    fewest: int = 0
    skips: tuple[Skip, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def last_wave(self) -> int:
        """The newest wave, 0 if there is none yet."""
        return max((step.chosen.wave for step in self.steps), default=self.first_wave - 1)

    def onto(self, draft: Draft, *, ended: bool = True, reserving: bool = True) -> None:
        """Do it all on ``draft``; the last wave is at its end then, or (not ``ended``) its moves are in flight.

        ``reserving``: what no pod waits for takes its room, so that the search keeps off it. In the state of the plan it is
        free, as it will be, and the term of its strategy keeps others off.
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

    def open_rooms(self) -> set[int]:
        """Return the nodes that stay marked after the last move, as its wave is in flight."""
        return set(self.steps[-1].chosen.room or ()) if self.steps else set()


def end_wave(draft: Draft) -> None:
    """Let the victims of a wave be gone, and its replacements Ready."""
    draft.state.reap()
    draft.allowance.next_wave()


def move(draft: Draft, chosen: Chosen, prediction: Prediction, lands: int, *, ready: bool) -> None:
    """Move a pod in the state, and count it."""
    draft.move(chosen.pod, chosen.cls, prediction, lands)
    draft.allowance.spend(chosen.cls, chosen.node, chosen.strategy, ready=ready)


def enter(draft: Draft, ask: Ask, node: int) -> None:
    """Let an ask have its room: the pod stands on its node, if no eviction has fed it before."""
    if ask.counted:
        return
    if ask.pod < 0:
        draft.state.reserve(ask.requests, ask.places, node)
    elif ask.cls < 0:
        draft.state.reserve(ask.requests, 0, node)
    elif draft.state.node_of[ask.pod] < 0:
        draft.state.place(ask.pod, ask.cls, node)


# -- the plan ---------------------------------------------------------------------------------------------


class _RoomPlan:
    """The plan of one strategy: one ask after the other, in all orders that may let more of them in."""

    def __init__(
        self,
        draft: Draft,
        of: Contribution,
        asks: Sequence[Ask],
        effort: Effort,
        stop: Callable[[], str | None],
        first_wave: int,
        before: Sequence[Callable[[Draft], None]],
    ) -> None:
        self._before = before
        self._draft, self._of, self._effort, self._stop = draft, of, effort, stop
        self.stop, self.steps = stop, effort.room_in_all
        """What the searches of this plan have left."""
        self._asks, self._first_wave = list(asks), first_wave
        self._held = find_expected(draft, asks)
        """The numbers of the asks for which nothing is to leave now, and why."""
        nodes, problem = draft.snapshot.nodes, draft.problem
        mine = (
            np.ones(len(draft.snapshot.pods), bool)
            if of.selected is None
            else of.selected.pods(draft.snapshot)
        )
        self._evictable: Bools = problem.movable & (problem.protected == 0) & mine
        for ask in asks:
            if (pod := max(ask.pod, ask.about)) >= 0:
                self._evictable[pod] = False
        self._closed: Bools = nodes.leaving | draft.view.to_be_empty()
        if nodes.avoided is not None:
            self._closed = self._closed | nodes.avoided

    def made(self) -> _Made:
        best, outside = self._in_order(self._asks)
        for order in self._orders(outside.keys() - self._held.keys()):
            tried, left = self._in_order(order)
            if _rank(tried) < _rank(best):
                best, outside = tried, left
            if outside.keys() == self._held.keys() or self._stop() is not None:
                break
        best, outside = self._together(best, outside)
        best = self._with_fewer(best)
        best.skips = tuple(self._skips(outside))
        best.notes = tuple(self._notes(outside))
        return best

    def _orders(self, outside: Collection[int]) -> Iterator[list[Ask]]:
        """Yield other orders of the asks: those that stayed outside first, then each first once."""
        numbers = [number for number in range(len(self._asks)) if number not in self._held]
        if not outside or len(numbers) == 1:
            return
        firsts = [sorted(outside), *([number] for number in numbers if number not in outside)]
        for first in firsts[: self._effort.room_orders]:
            order = [*first, *(number for number in numbers if number not in first)]
            if order != numbers:
                yield [self._asks[number] for number in order]

    def _together(
        self, made: _Made, outside: dict[int, Refused]
    ) -> tuple[_Made, dict[int, Refused]]:
        """Return a plan that lets in one more at a time with those that it lets in, as far as a search for all at once can."""
        alike: set[object] = set()
        for number in sorted(outside.keys() - self._held.keys()) if made.entries else ():
            ask = self._asks[number]
            if _kind(ask) in alike or self._stop() is not None:
                continue
            again = _Made(self._first_wave)
            asks = [ask, *(entry.ask for entry in made.entries)]
            if _Way(self, again, asks).find(least=made.fewest).placing is None:
                alike.add(_kind(ask))
                continue
            made = again
            outside = {n: why for n, why in outside.items() if n != number}
        return made, outside

    def _in_order(self, asks: Sequence[Ask]) -> tuple[_Made, dict[int, Refused]]:
        """Return what lets in one of ``asks`` after the other, and why the others stay outside, by their number."""
        made = _Made(self._first_wave)
        outside: dict[int, Refused] = dict(self._held)
        alike: dict[object, Refused] = {}
        for ask in asks:
            number = self._asks.index(ask)
            if number in self._held:
                continue
            kind = _kind(ask)
            if kind in alike:
                outside[number] = alike[kind]
                continue
            if self._stop() is not None:
                outside[number] = (Code.NOT_EXAMINED, "planning ended before it was looked at")
                continue
            way = _Way(self, made, [ask])
            if (node := way.free_node()) is not None:
                made.entries.append(_Entry(ask, node, made.last_wave))
                continue
            found = way.find()
            if found.placing is None:
                outside[number] = alike[kind] = way.refused or way.why(found)
        return made, outside

    def _with_fewer(self, made: _Made) -> _Made:
        """Return a plan that lets the same asks in together with fewer evictions, if there is one."""
        entered = [entry.ask for entry in made.entries]
        if len(entered) < 2 or len(made.steps) <= max(1, made.fewest):
            return made
        again = _Made(self._first_wave)
        way = _Way(self, again, entered)
        found = way.find(least=made.fewest, most=len(made.steps) - 1)
        if found.placing is not None:
            return again
        made.fewest = min(len(made.steps), max(made.fewest, way.fewest))
        return made

    def _skips(self, outside: Mapping[int, Refused]) -> Iterator[Skip]:
        snapshot = self._draft.snapshot
        for number, refused in sorted(outside.items()):
            ask = self._asks[number]
            if (pod := max(ask.pod, ask.about)) < 0:
                continue
            node = int(snapshot.pods.node[pod])
            yield Skip(
                namespace=snapshot.classes[int(snapshot.pods.cls[pod])].namespace,
                pod=snapshot.pods.name[pod],
                node=snapshot.nodes.names[node] if node >= 0 else "",
                strategy=self._of.strategy,
                code=refused[0],
                message=refused[1],
            )

    def _notes(self, outside: Mapping[int, Refused]) -> Iterator[str]:
        """Yield why there is no room for what no pod waits for, the same text once with its number."""
        texts = Counter(
            f"{self._asks[number].text}: {refused[1]}"
            for number, refused in sorted(outside.items())
            if max(self._asks[number].pod, self._asks[number].about) < 0
        )
        for text, number in texts.items():
            times = f" ({number} of them)" if number > 1 else ""
            yield f"{self._of.strategy}: no room for {text}{times}"

    # -- asked by ways ---------------------------------------------------------------------------------

    def fresh(self, made: _Made, *, ended: bool = True) -> Draft:
        """Return a draft in which ``made`` is done, see there."""
        draft = Draft(self._draft.problem, self._draft.settings)
        for done in self._before:
            done(draft)
        made.onto(draft, ended=ended)
        return draft

    @property
    def strategy(self) -> str:
        return self._of.strategy

    @property
    def observed(self) -> bool:
        return self._of.observed

    @property
    def evictable(self) -> Bools:
        """(P,) the pods that may leave for others."""
        return self._evictable

    @property
    def closed(self) -> Bools:
        """(N,) the nodes on which nothing should land."""
        return self._closed

    @property
    def effort(self) -> Effort:
        return self._effort

    @property
    def of(self) -> Contribution:
        return self._of


def _kind(ask: Ask) -> object:
    """Return what is equal for asks that are let in by the same moves."""
    return ask.cls, ask.priority, ask.requests.tobytes(), ask.nodes.tobytes()


def _rank(made: _Made) -> tuple[object, ...]:
    """Return what is smaller for the better plan: more of the highest priority in, then fewer evictions."""
    priorities = sorted((entry.ask.priority for entry in made.entries), reverse=True)
    return tuple([-priority for priority in priorities] + [np.inf]), len(made.steps)


class _Way:
    """Looks for the way to let some asks in behind what is made, and goes it."""

    def __init__(self, plan: _RoomPlan, made: _Made, asks: Sequence[Ask]) -> None:
        self._plan, self._made, self._asks = plan, made, asks
        self._draft = plan.fresh(made)
        self._search = RoomSearch(self._draft, plan.evictable, plan.closed, plan.effort, plan.stop)
        self._items = [self._search.item_of(number, ask) for number, ask in enumerate(asks)]
        self._first = 0
        self._walk: _Walk | None = None
        self._tries = plan.effort.room_tries
        """So many ways may still be gone to see whether they can be."""
        self._known: set[frozenset[tuple[int, int]]] = set()
        self.refused: Refused | None = None
        """Why the ways that were found could not be gone."""

    def find(self, least: int = 0, most: int = 0) -> Found:
        """Return what was found; a way that can be gone is added to what is made.

        Few evictions are tried first. Where that does not come to an end, a repair of the cluster with the asks in it gives a
        way of more, and the search goes on for one of fewer.
        """
        effort, plan = self._plan.effort, self._plan
        single = len(self._asks) == 1
        steps = max(1, min(effort.room if single else effort.room_together, plan.steps))
        most = most or effort.room_moves
        result = self._search.find(
            self._items, self._accept, max(1, steps // 4), max(1, least), most
        )
        if result.placing is None and not result.exhaustive:
            result = self._by_repair(result, steps, most)
        plan.steps -= self._search.used
        if self._walk is not None:
            if not self._made.steps:
                self._made.fewest = result.fewest
            self._made.steps += self._walk.steps
            self._made.entries += self._walk.entries
        if not self._first and result.placing is None:
            self._first = result.fewest
        return result

    def _by_repair(self, result: Found, steps: int, most: int) -> Found:
        """Return what a repair finds, or a search for fewer evictions after it."""
        effort, plan = self._plan.effort, self._plan
        repair = RoomRepair(self._search, self._items, plan.stop)
        repaired = effort.room_repair if len(self._asks) == 1 else effort.room_repair_together
        self._tries = effort.room_tries
        placing = repair.best(self._accept, min(repaired, max(0, plan.steps)), most)
        plan.steps -= repair.used
        if placing is not None:
            most = len(placing.moves) - 1
        if most < result.fewest:
            return replace(result, placing=placing)
        self._tries = effort.room_tries
        fewer = self._search.find(self._items, self._accept, steps, result.fewest, most)
        return replace(fewer, placing=fewer.placing or placing)

    def free_node(self) -> int | None:
        """Return the node on which the one ask has room as it is, if there is one."""
        ask, item = self._asks[0], self._items[0]
        if ask.cls >= 0:
            nodes = self._draft.scheduler.predict(self._draft.state, ask.cls).nodes
        else:
            free = item.nodes & ~self._search.lacking(item).any(axis=0)
            nodes = np.flatnonzero(free).astype(np.int32)
        return int(nodes[0]) if len(nodes) else None

    @property
    def fewest(self) -> int:
        """It takes so many evictions at least, whatever order they would go in."""
        return self._first

    def why(self, found: Found) -> Refused:
        """Return why an ask stays outside."""
        return why_outside(
            self._draft, self._plan.of, self._search, self._asks[0], self._items[0], found
        )

    def _accept(self, placing: Placing) -> bool:
        """Go a way on a fresh draft; if it can be gone, add it to what is made."""
        name = frozenset((item.pod, node) for item, node in placing.nodes)
        if name in self._known:
            return False
        self._known.add(name)
        self._tries -= 1
        if self._tries < 0:
            self._search.give_up()
            return False
        walk = _Walk(self._plan, self._made, self._asks, placing)
        refused = walk.go()
        for backwards in (False, True) if refused == _TAKEN and len(self._asks) > 1 else ():
            # With one room after the other each is there alone for the pod that it is meant for.
            walk = _Walk(self._plan, self._made, self._asks, placing)
            walk.open_one_by_one(backwards=backwards)
            if (refused := walk.go()) is None:
                break
        if refused is not None:
            self.refused = self.refused or refused
            return False
        self._walk = walk
        self.refused = None
        return True


# -- one way, gone ------------------------------------------------------------------------------------------


class _Walk:
    """Goes one way: each pod with its predicted landing."""

    def __init__(self, plan: _RoomPlan, made: _Made, asks: Sequence[Ask], placing: Placing) -> None:
        self._plan, self._made, self._asks = plan, made, asks
        self._draft = draft = plan.fresh(made, ended=False)
        self._judge = Judge(
            draft.view, _terms(draft, plan), guard_term(draft.view), draft.settings.threshold
        )
        self._targets = {item.pod: node for item, node in placing.nodes}
        self._left = [item for item, _ in placing.moves]
        self._left.sort(key=lambda item: (-_size(draft, item), item.pod))
        self._waiting = [item for item, _ in placing.nodes if item.source < 0]
        self._sources = {item.source for item in self._left}
        self._open = made.open_rooms()
        """The nodes that are being made free for others in the wave that is in flight."""
        self._most_marks = draft.settings.budgets.marks_of(len(draft.snapshot.nodes))
        self._quota = QuotaLedger(draft.snapshot)
        for step in made.steps:
            if step.chosen.wave == made.last_wave and not draft.snapshot.waits(step.chosen.cls):
                self._quota.take(step.chosen.cls)
        self.steps: list[_Step] = []
        self.entries: list[_Entry] = []
        self._ask_of = dict(enumerate(asks))

    def open_one_by_one(self, *, backwards: bool) -> None:
        """Make the moves for one ask after the other, in the order of the asks or backwards."""
        sign = -1 if backwards else 1
        self._left.sort(key=lambda item: sign * item.root)

    def go(self) -> Refused | None:
        """Make all moves, beginning with the wave that is in flight; return why it cannot be done."""
        wave, of_wave = max(self._made.last_wave, self._made.first_wave), len(self._made.steps)
        why: Refused = Code.NO_ROOM, "its moves have no order in which each lands"
        while self._left:
            step, why = self._next(wave, why)
            if step is not None:
                self.steps.append(step)
                of_wave += 1
                continue
            if not of_wave:
                return why
            self._end_wave(wave)
            wave, of_wave = wave + 1, 0
        self._end_wave(wave)
        self._assign()
        return self._enter(wave)

    def _assign(self) -> None:
        """Say of rooms for pods that are alike whom each is for: the room that is there first is for the pod that is first."""
        created = self._draft.snapshot.pods.created
        complete = dict.fromkeys(range(len(self._asks)), 0)
        for step in self.steps:
            complete[step.root] = step.chosen.wave
        alike: dict[object, list[int]] = {}
        for root, ask in enumerate(self._asks):
            if ask.pod >= 0:
                alike.setdefault(_kind(ask), []).append(root)
        for roots in alike.values():
            asks = sorted(
                (self._asks[root] for root in roots),
                key=lambda ask: (float(created[ask.pod]), ask.pod),
            )
            for root, ask in zip(sorted(roots, key=lambda r: (complete[r], r)), asks, strict=True):
                self._ask_of[root] = ask
        last = {step.root: place for place, step in enumerate(self.steps)}
        for place, step in enumerate(self.steps):
            ask = self._ask_of[step.root]
            reason = f"makes room for {ask.text} on {self._node_of(step.root)}"
            hard, soft, balance = step.chosen.gain
            # With the last of its moves an ask has its room.
            if ask.pod >= 0:
                soft += self._plan.of.weight * (place == last[step.root])
            chosen = replace(
                step.chosen,
                makes_way_for=ask.pod,
                reason=reason,
                gain=(hard, soft, balance),
                unit=self._unit_of(ask, step.root),
            )
            self.steps[place] = replace(step, chosen=chosen)

    def _unit_of(self, ask: Ask, root: int) -> str:
        """Return the name of the moves for one ask: its pod's uid, or what is to be free and where."""
        if ask.pod >= 0:
            return self._draft.snapshot.pods.uid[ask.pod]
        return f"{self._plan.strategy}: {ask.text} on {self._node_of(root)}"

    def _next(self, wave: int, why: Refused) -> tuple[_Step | None, Refused]:
        """Make the first move that can be made now; if none can, return why the last one cannot."""
        for item in self._left:
            result = self._step(item, wave)
            if isinstance(result, _Step):
                self._left.remove(item)
                return result, why
            why = result
        return None, why

    def _end_wave(self, wave: int) -> None:
        end_wave(self._draft)
        self._quota.reset()
        if wave == self._made.last_wave:
            self._open = set()
            for entry in self._made.entries:
                if entry.wave == wave:
                    enter(self._draft, entry.ask, entry.node)

    def _enter(self, wave: int) -> Refused | None:
        """Let the asks in; return why one of them has no room in the end."""
        draft = self._draft
        for item in self._waiting:
            ask = self._asks[item.root]
            node = self._targets[item.pod]
            if ask.pod >= 0 and ask.cls >= 0:
                taken = int(draft.state.node_of[ask.pod])
                nodes = (
                    draft.scheduler.predict(draft.state, ask.cls).nodes if taken < 0 else [taken]
                )
                if not len(nodes):
                    return _TAKEN
                node = int(nodes[0])
            enter(draft, ask, node)
            self.entries.append(_Entry(ask, node, wave))
        return None

    def _step(self, item: Item, wave: int) -> _Step | Refused:
        """Move a pod in the draft, or return why it cannot go now."""
        draft, snapshot = self._draft, self._draft.snapshot
        cls, ready = int(snapshot.pods.cls[item.pod]), snapshot.pods.is_ready(item.pod)
        strategy = self._plan.strategy
        limit = draft.allowance.over(strategy, cls)
        limit = limit or draft.allowance.waits(cls, item.source, strategy, ready=ready)
        ref = snapshot.pod_ref(item.pod)
        if limit is not None:
            return Code.BUDGET, f"{ref} would have to leave: {limit}"
        if not snapshot.waits(cls) and (lack := self._quota.lacks(cls)) is not None:
            return Code.QUOTA, f"{ref} would have to leave: {lack}"
        verdict = self._verdict(item)
        if isinstance(verdict, tuple):
            return verdict[0], f"{ref} would have to leave: {verdict[1]}"
        target, prediction = self._targets[item.pod], verdict.prediction
        at = np.flatnonzero(prediction.nodes == target)
        lands = int(at[0]) if len(at) else 0
        ask = self._asks[item.root]
        chosen = Chosen(
            item.pod,
            cls,
            item.source,
            verdict.gain,
            prediction,
            strategy,
            f"makes room for {ask.text}",
            wave,
            self._plan.observed,
            makes_way_for=ask.pod,
            marks=verdict.marks,
            room=tuple(sorted(self._open_without(item))),
        )
        if not snapshot.waits(cls):
            self._quota.take(cls)
        move(draft, chosen, prediction, lands, ready=ready)
        return _Step(chosen, prediction, lands, ready, item.root)

    def _node_of(self, root: int) -> str:
        item = next(one for one in self._waiting if one.root == root)
        return self._draft.snapshot.nodes.names[self._targets[item.pod]]

    def _open_without(self, item: Item) -> set[int]:
        """Return the nodes that are being made free, and still wait for what they are meant for, once ``item`` has landed."""
        waiting = [one for one in self._left if one is not item] + self._waiting
        return self._open | (self._sources & {self._targets[one.pod] for one in waiting})

    # -- where it lands --------------------------------------------------------------------------------------

    def _verdict(self, item: Item) -> Verdict | Refused:
        """Return the verdict on moving a pod, with the marks that it takes."""
        target = self._targets[item.pod]
        marks = (self._open_without(item) | {item.source}) - {target}
        rooms = np.array(sorted(marks), np.int32)
        verdict = self._harmless(item, rooms)
        refused = verdict.refused or self._disturbs(item, verdict.prediction)
        if refused is None:
            return verdict
        return self._steered(item, target, rooms) or refused

    def _harmless(self, item: Item, marks: Int32s) -> Verdict:
        with self._draft.scheduler.marking(marks):
            verdict = self._judge.harmless(item.pod, item.source)
        return replace(verdict, marks=tuple(marks.tolist()))

    def _disturbs(self, item: Item, prediction: Prediction) -> Refused | None:
        """Return that a pod may land where another one needs the place, if that is not rare."""
        target = self._targets[item.pod]
        others = {
            self._targets[one.pod] for one in [*self._left, *self._waiting] if one is not item
        }
        bad = [
            node in others and node != target and not self._has_spare(item, node)
            for node in prediction.nodes.tolist()
        ]
        share = float(prediction.probability[np.array(bad, bool)].sum())
        if share > 1 - _SURE:
            return Code.UNSURE, f"{share:.0%} of its landings are where others need the place"
        return None

    def _has_spare(self, item: Item, node: int) -> bool:
        """Return whether a node would hold all that is meant for it beside ``item``."""
        nodes, state = self._draft.snapshot.nodes, self._draft.state
        meant = [one for one in [*self._left, *self._waiting] if self._targets[one.pod] == node]
        going = [one for one in self._left if one.source == node]
        requests = self._draft.snapshot.requests
        free = nodes.allocatable[:, node] - state.lasting[:, node] - item.requests
        for one in meant:
            free = free - one.requests
        for one in going:
            free = free + requests[:, self._draft.snapshot.pods.cls[one.pod]]
        return bool((free[item.requests > 0] >= 0).all())

    def _steered(self, item: Item, target: int, rooms: Int32s) -> Verdict | None:
        """Return the verdict on a landing on ``target`` that further marks choose; None if they cannot."""
        if not self._draft.settings.steer:
            return None
        view = self._draft.view
        with view.scheduler.pending.before_landing(view.state, item.pod):
            steering = view.scheduler.steering(view.state, item.cls)
        if steering is None:
            return None
        place = np.flatnonzero(steering.nodes == target)
        if not len(place) or steering.marks[place[0]] > self._most_marks:
            return None
        marks = np.union1d(steering.to_mark(int(place[0])), rooms).astype(np.int32)
        if target in marks or len(marks) > self._most_marks:
            return None
        verdict = self._harmless(item, marks)
        if verdict.refused is not None or self._disturbs(item, verdict.prediction) is not None:
            return None
        return verdict


def _terms(draft: Draft, plan: _RoomPlan) -> Sequence[WeightedTerm]:
    return draft.terms if plan.observed else draft.enforced


def _size(draft: Draft, item: Item) -> float:
    """Return the largest share of the largest node that an item asks."""
    most = np.maximum(1, draft.snapshot.nodes.allocatable.max(axis=1, initial=1))
    return float((item.requests / most).max(initial=0.0))
