"""Make room for pending pods: plan the moves after which they fit, and explain which pods still do not fit.

:mod:`rebalancer.planner.room.search` decides which pods leave, and for which nodes; :mod:`rebalancer.planner.room.walk`
whether they can, and in which order. This module tries to make room for the requests one after the other, in several
orders, and for all together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import numpy as np

from rebalancer.cost.room_term import Ask
from rebalancer.plan.plan import Skip
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.gangs import RoomGangs
from rebalancer.planner.problem import Contribution
from rebalancer.planner.reasons import skip_of
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.room.items import Placing
from rebalancer.planner.room.made import (
    MadeRooms,
    RoomEntry,
    end_wave,
    gang_of,
    kind_of,
    move,
)
from rebalancer.planner.room.reasons import find_expected, why_not_asked, why_outside
from rebalancer.planner.room.repair import RoomRepair
from rebalancer.planner.room.search import RoomSearch, RoomSearchResult
from rebalancer.planner.room.walk import RoomWalk
from rebalancer.snapshot.columns import Bools


@dataclass(frozen=True, slots=True)
class Rooms:
    """The plan for the pending pods: moves, and reasons for pods that stay pending."""

    chosen: tuple[Chosen, ...] = ()
    waves: int = 0
    fewest: int = 0
    """The least number of evictions that could make the same room."""
    skips: tuple[Skip, ...] = ()
    """The pods that get no room, each with the reason."""
    notes: tuple[str, ...] = ()
    """Why there is no room that no pod waits for, one line each."""

    def joined(self, other: Rooms) -> Rooms:
        """Return the combination of two plans."""
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
    """Plan the moves of the strategies that make room. ``draft`` then contains the moves, and the pending pods on their nodes.

    ``before``: the moves that the draft already contains.
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
        self._draft, self.of, self.effort, self.stop = draft, of, effort, stop
        self.steps = effort.room_in_all
        """What the searches of this plan have left."""
        self.walks = effort.room_walks
        """So many ways may still be gone, in all searches, to see whether they can be."""
        self._drafts: dict[bool, Draft] = {}
        """One for the searches, and one for the walks."""
        self._asks, self._first_wave = list(asks), first_wave
        self._held = find_expected(draft, asks)
        """The numbers of the asks for which no pod is to be evicted now, and why."""
        nodes, problem = draft.snapshot.nodes, draft.problem
        mine = (
            np.ones(len(draft.snapshot.pods), bool)
            if of.selected is None
            else of.selected.pods(draft.snapshot)
        )
        self.evictable: Bools = problem.movable & (problem.protected == 0) & mine
        """(P,) the pods that may leave for others."""
        self.gangs = RoomGangs(draft, mine)
        """Those of which all pods may leave for others, at once."""
        self.evictable[self.gangs.pods] = True
        for ask in asks:
            if (pod := max(ask.pod, ask.about)) >= 0:
                self.evictable[pod] = False
        self.closed: Bools = nodes.leaving | draft.view.to_be_empty()
        """(N,) the nodes on which nothing should land."""
        if nodes.avoided is not None:
            self.closed = self.closed | nodes.avoided

    def made(self) -> MadeRooms:
        best, outside = self._best()
        while broken := self._let_in_by_part(best, outside):
            self._held |= broken
            best, outside = self._best()
        best = self._with_fewer(best)
        best.skips = tuple(self._skips(outside))
        best.notes = tuple(self._notes(outside))
        return best

    def _let_in_by_part(
        self, made: MadeRooms, outside: Mapping[int, Refusal]
    ) -> dict[int, Refusal]:
        """Return the asks of gangs of which too few pods get room to be of use, and why no pod is evicted for them."""
        snapshot = self._draft.snapshot
        inside = {entry.ask.pod for entry in made.entries}
        number_of = {ask.pod: number for number, ask in enumerate(self._asks)}
        gangs = {gang_of(self._draft, ask) for ask in self._asks}
        broken: dict[int, Refusal] = {}
        for gang in sorted(filter(None, gangs)):
            pods = snapshot.gangs[gang].tolist()
            waiting = [pod for pod in pods if snapshot.pods.node[pod] < 0]
            left = [pod for pod in waiting if pod not in inside]
            enough = len(pods) - len(left) >= snapshot.gang_least.get(gang, np.inf)
            numbers = [number_of[pod] for pod in waiting if pod in number_of]
            if not left or enough or self._held.keys() >= set(numbers):
                continue
            if not inside.isdisjoint(waiting):
                refused = outside.get(number_of.get(left[0], -1)) or why_not_asked(
                    self._draft, self.of.strategy, left[0]
                )
                why = Refusal.of(
                    Why.GANG_OUTSIDE, pods=len(left), gang=gang[1], pod=left[0], why=refused
                )
                broken |= dict.fromkeys(numbers, why)
        return broken

    def _best(self) -> tuple[MadeRooms, dict[int, Refusal]]:
        """Return the plan with room for most asks, in some order or all at once, and why the others get none."""
        best, outside = self._in_order(self._asks)
        for order in self._orders(outside.keys() - self._held.keys()):
            tried, left = self._in_order(order)
            if _rank(tried) < _rank(best):
                best, outside = tried, left
            if outside.keys() == self._held.keys() or self.stop() is not None:
                break
        return self._together(best, outside)

    def _orders(self, outside: Collection[int]) -> Iterator[list[Ask]]:
        """Yield other orders of the asks: those without room first, then each first once."""
        numbers = [number for number in range(len(self._asks)) if number not in self._held]
        if not outside or len(numbers) == 1:
            return
        firsts = [sorted(outside), *([number] for number in numbers if number not in outside)]
        for first in firsts[: self.effort.room_orders]:
            order = [*first, *(number for number in numbers if number not in first)]
            if order != numbers:
                yield [self._asks[number] for number in order]

    def _together(
        self, made: MadeRooms, outside: dict[int, Refusal]
    ) -> tuple[MadeRooms, dict[int, Refusal]]:
        """Return a plan that lets in one more at a time with those that it lets in, as far as a search for all at once can."""
        alike: set[object] = set()
        for number in sorted(outside.keys() - self._held.keys()) if made.entries else ():
            ask = self._asks[number]
            if kind_of(ask) in alike or self.stop() is not None:
                continue
            again = MadeRooms(self._first_wave)
            asks = [ask, *(entry.ask for entry in made.entries)]
            if _Way(self, again, asks).find(least=made.fewest).placing is None:
                alike.add(kind_of(ask))
                continue
            made = again
            outside = {n: why for n, why in outside.items() if n != number}
        return made, outside

    def _in_order(self, asks: Sequence[Ask]) -> tuple[MadeRooms, dict[int, Refusal]]:
        """Return the plan that makes room for ``asks`` one after the other, and why the others get none, by their number."""
        made = MadeRooms(self._first_wave)
        outside: dict[int, Refusal] = dict(self._held)
        alike: dict[object, Refusal] = {}
        for ask in asks:
            number = self._asks.index(ask)
            if number in self._held:
                continue
            kind = kind_of(ask)
            if kind in alike:
                outside[number] = alike[kind]
                continue
            if self.stop() is not None:
                outside[number] = Refusal.of(Why.NOT_LOOKED_AT)
                continue
            way = _Way(self, made, [ask])
            if (node := way.free_node()) is not None:
                made.entries.append(RoomEntry(ask, node, made.last_wave))
                continue
            found = way.find()
            if found.placing is None:
                outside[number] = alike[kind] = way.refused or way.why(found)
        return made, outside

    def _with_fewer(self, made: MadeRooms) -> MadeRooms:
        """Return a plan that lets the same asks in together with fewer evictions, if there is one."""
        entered = [entry.ask for entry in made.entries]
        if len(entered) < 2 or len(made.steps) <= max(1, made.fewest):
            return made
        again = MadeRooms(self._first_wave)
        way = _Way(self, again, entered)
        found = way.find(least=made.fewest, most=len(made.steps) - 1)
        if found.placing is not None:
            return again
        made.fewest = min(len(made.steps), max(made.fewest, way.fewest))
        return made

    def _skips(self, outside: Mapping[int, Refusal]) -> Iterator[Skip]:
        for number, refused in sorted(outside.items()):
            ask = self._asks[number]
            if (pod := max(ask.pod, ask.about)) >= 0:
                reason = refused.shown(self._draft.snapshot)
                yield skip_of(self._draft, pod, self.of.strategy, reason)

    def _notes(self, outside: Mapping[int, Refusal]) -> Iterator[str]:
        """Yield why there is no room for what no pod waits for, the same text once with its number."""
        texts = Counter(
            f"{self._asks[number].text}: {refused.text(self._draft.snapshot)}"
            for number, refused in sorted(outside.items())
            if max(self._asks[number].pod, self._asks[number].about) < 0
        )
        for text, number in texts.items():
            times = f" ({number} of them)" if number > 1 else ""
            yield f"{self.of.strategy}: no room for {text}{times}"

    # -- asked by ways ---------------------------------------------------------------------------------

    def fresh(self, made: MadeRooms, *, ended: bool = True) -> Draft:
        """Return a draft in which ``made`` is done, see there; it is valid until the next one with the same ``ended``."""
        draft = self._drafts.get(ended)
        if draft is None:
            draft = self._drafts[ended] = Draft(self._draft.problem, self._draft.settings)
            draft.state.keep_inverses()
        draft.begin_again()
        draft.gangs_that_stay.update(self._draft.gangs_that_stay)
        for done in self._before:
            done(draft)
        made.onto(draft, ended=ended)
        return draft


def _rank(made: MadeRooms) -> tuple[object, ...]:
    """Return what is smaller for the better plan: more of the highest priority in, then fewer evictions."""
    priorities = sorted((entry.ask.priority for entry in made.entries), reverse=True)
    return tuple([-priority for priority in priorities] + [np.inf]), len(made.steps)


class _Way:
    """Searches the moves that make room for some asks after the present plan, and adds them."""

    def __init__(self, plan: _RoomPlan, made: MadeRooms, asks: Sequence[Ask]) -> None:
        self._plan, self._made, self._asks = plan, made, asks
        self._draft = plan.fresh(made)
        self._search = RoomSearch(
            self._draft, plan.evictable, plan.closed, plan.effort, plan.stop, plan.gangs
        )
        self._items = [self._search.items.waiting(number, ask) for number, ask in enumerate(asks)]
        self._first = 0
        self._walk: RoomWalk | None = None
        self._tries = plan.effort.room_tries
        """So many ways may still be gone to see whether they can be."""
        self._known: set[frozenset[tuple[int, int]]] = set()
        self.refused: Refusal | None = None
        """Why the ways that were found could not be gone."""

    def find(self, least: int = 0, most: int = 0) -> RoomSearchResult:
        """Return the result of the search; moves that have an order are added to the plan.

        Few evictions are tried first. If that search does not end, a local repair returns a solution with more evictions, and
        the search continues for one with fewer.
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

    def _by_repair(self, result: RoomSearchResult, steps: int, most: int) -> RoomSearchResult:
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
        """Return the node that already has room for the only ask, if there is one."""
        ask, item = self._asks[0], self._items[0]
        if ask.pod >= 0 and not ask.counted and (node := self._draft.state.node_of[ask.pod]) >= 0:
            # It has taken room that a move for another left.
            return int(node)
        if ask.cls >= 0:
            nodes = self._draft.scheduler.predict(self._draft.state, ask.cls).nodes
        else:
            free = item.nodes & ~self._search.trial.lacking(item).any(axis=0)
            nodes = np.flatnonzero(free).astype(np.int32)
        return int(nodes[0]) if len(nodes) else None

    @property
    def fewest(self) -> int:
        """The least number of evictions, in any order."""
        return self._first

    def why(self, found: RoomSearchResult) -> Refusal:
        return why_outside(
            self._draft, self._plan.of, self._search, self._asks[0], self._items[0], found
        )

    def _accept(self, placing: Placing) -> bool:
        """Execute moves on a fresh draft; if they have an order, add them to the plan."""
        name = frozenset((item.pod, node) for item, node in placing.nodes)
        if name in self._known:
            return False
        self._known.add(name)
        self._tries -= 1
        self._plan.walks -= 1
        if self._tries < 0 or self._plan.walks < 0:
            self._search.give_up()
            return False
        draft = self._plan.fresh(self._made, ended=False)
        walk = RoomWalk(draft, self._plan.of, self._made, self._asks, placing, self._plan.gangs)
        refused = walk.go()
        if refused is not None:
            self.refused = self.refused or refused
            return False
        self._walk = walk
        self.refused = None
        return True
