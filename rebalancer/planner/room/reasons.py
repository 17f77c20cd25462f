"""Explain why a pending pod cannot get room: the scarce resource, the node that lacks least, and the obstacles there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rebalancer.cost.room_term import Ask
from rebalancer.plan.plan import Code
from rebalancer.planner.draft import Draft
from rebalancer.planner.gangs import RoomGangs, missing_of
from rebalancer.planner.karpenter import list_ordered_nodes
from rebalancer.planner.problem import Contribution
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.room.items import Item
from rebalancer.planner.room.made import gang_of
from rebalancer.planner.room.search import RoomSearch, RoomSearchResult
from rebalancer.scheduler.explain import unschedulable_message
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.columns import Ints
from rebalancer.snapshot.nodes import as_started, find_starting, with_nodes
from rebalancer.snapshot.state import ClusterState
from rebalancer.wire.quantity import format_resource

_PODS = "places for pods"


def why_outside(
    draft: Draft,
    of: Contribution,
    search: RoomSearch,
    ask: Ask,
    item: Item,
    found: RoomSearchResult,
) -> Refusal:
    """Return why the search ``found`` no room for ``ask``."""
    if not item.nodes.any():
        said = "" if ask.cls < 0 else unschedulable_message(draft.scheduler, draft.state, ask.cls)
        return Refusal.of(Why.NO_NODE_EVER, scheduler=said)
    lacking = search.trial.lacking(item)
    nearest = _nearest(draft, item, lacking)
    if (short := _short_of_all(draft, item)) is not None:
        return Refusal.of(Why.SHORT_OF_ALL, nearest=nearest, **short)
    if (held := _held(draft, of, search, ask, item, lacking)) is not None:
        return held
    if found.exhaustive:
        return Refusal.of(Why.ALL_WAYS_TRIED, tried=found.fewest - 1, nearest=nearest)
    return Refusal.of(Why.NO_TIME, fewest=found.fewest, nearest=nearest)


def find_expected(draft: Draft, asks: Sequence[Ask]) -> dict[int, Refusal]:
    """Return index of a request -> why no pod should leave for it now: it is impossible, or a machine for its pod is coming or starting.

    Pods take the starting nodes in the order of the requests. Requests without room there are not in the result.
    """
    held = {
        number: Refusal.of(
            Why.HELD,
            code=Code.MACHINE_COMES if ask.nodes.any() else Code.UNSATISFIABLE,
            text=ask.held,
        )
        for number, ask in enumerate(asks)
        if ask.held
    }
    snapshot = draft.snapshot
    for number, ask in enumerate(asks):
        if (gang := gang_of(draft, ask)) and (why := missing_of(snapshot, gang)):
            held.setdefault(number, Refusal.of(Why.NOT_WHOLE, gang=gang[1], why=why))
    keys = draft.settings.startup_taints
    nodes = find_starting(snapshot.nodes, snapshot.captured_at, keys)
    patient = [n for n, ask in enumerate(asks) if ask.patient and n not in held]
    ordered = list_ordered_nodes(snapshot)
    if not patient or not (nodes.any() or ordered):
        return held
    nodes = np.concatenate([nodes, np.ones(len(ordered), bool)])
    started = with_nodes(snapshot, ordered)
    started = replace(started, nodes=as_started(started.nodes, nodes, keys))
    model, state = SchedulerModel(started, draft.scheduler.profile), ClusterState(started)
    for number in patient:
        ask = asks[number]
        feasible = started.without_foreign(model.feasible(state, ask.cls), ask.cls)
        able = np.flatnonzero(feasible & nodes)
        if len(able):
            held[number] = Refusal.of(Why.STARTING, name=started.nodes.names[able[0]])
            state.place(ask.pod, ask.cls, int(able[0]))
    return held


def why_not_asked(draft: Draft, strategy: str, pod: int) -> Refusal:
    """Return why a strategy requests no room for a waiting pod of a gang, although it does for other pods of that gang."""
    pods, scheduler = draft.snapshot.pods, draft.scheduler
    cls, state = int(pods.cls[pod]), pods.states[int(pods.state[pod])]
    if unknown := scheduler.find_unmodelled(cls):
        return Refusal.of(Why.HELD, code=Code.UNPREDICTED, text="; ".join(unknown))
    if rejection := scheduler.rejection(cls):
        return Refusal.of(Why.HELD, code=Code.GANG, text=rejection)
    if state.nominated:
        return Refusal.of(Why.NOMINATED, node=state.nominated)
    if state.unschedulable_since() is None:
        return Refusal.of(Why.NOT_REFUSED_YET)
    return Refusal.of(Why.WAITS_TOO_SHORT, strategy=strategy)


def _short_of_all(draft: Draft, item: Item) -> dict[str, str] | None:
    """Return what all nodes together have too little of, in words."""
    snapshot, state = draft.snapshot, draft.state
    open_ = ~snapshot.nodes.leaving & (snapshot.nodes.ready | item.nodes)
    free = np.maximum(0, snapshot.nodes.allocatable - state.lasting)[:, open_].sum(axis=1)
    for row in np.flatnonzero(item.requests > free).tolist():
        name = snapshot.resources[row]
        return {
            "free": _amount(name, int(free[row])),
            "asked": _amount(name, int(item.requests[row])),
        }
    return None


def _nearest(draft: Draft, item: Item, lacking: Ints) -> str:
    """Return on which node what is short is least, and what it is, in words; empty where no node lacks anything."""
    node = _least_short(item, lacking)
    short = _short(draft, lacking[:, node])
    if not short:
        return f"; {draft.snapshot.nodes.names[node]} has the room, and a rule between pods keeps it away"
    return f"; short by least on {draft.snapshot.nodes.names[node]}: {short}"


def _least_short(item: Item, lacking: Ints) -> int:
    asked = np.maximum(1, np.append(item.requests, 1))[:, None]
    share = (lacking / asked).max(axis=0)
    share[~item.nodes] = np.inf
    return int(share.argmin())


def _short(draft: Draft, lacking: Ints) -> str:
    names = [*draft.snapshot.resources, _PODS]
    return ", ".join(
        _amount(names[row], int(lacking[row])) for row in np.flatnonzero(lacking).tolist()
    )


def _amount(name: str, amount: int) -> str:
    return f"{name} {format_resource(name, amount)}"


def _held(
    draft: Draft, of: Contribution, search: RoomSearch, ask: Ask, item: Item, lacking: Ints
) -> Refusal | None:
    """Return what keeps so much in place that no node could be made free enough, if that is so.

    Of the node where what is short is least, once all has left that may.
    """
    snapshot, pods = draft.snapshot, draft.snapshot.pods
    here = draft.state.unmoved()
    movable = here[search.victims.may_leave(here, item.limit)]
    gives = np.zeros_like(lacking)
    np.add.at(gives[:-1].T, pods.node[movable], snapshot.requests[:, pods.cls[movable]].T)
    np.add.at(gives[-1], pods.node[movable], 1)
    left = np.maximum(0, lacking - gives)
    if not left[:, item.nodes].any(axis=0).all():
        return None
    node = _least_short(item, left)
    staying = here[(pods.node[here] == node) & ~np.isin(here, movable)]
    row = int((left[:, node] / np.maximum(1, np.append(item.requests, 1))).argmax())
    asks = np.vstack([snapshot.requests, np.ones((1, len(snapshot.classes)), np.int64)])
    staying = staying[asks[row, pods.cls[staying]] > 0]
    why = Counter(
        _stays(draft, of, search.gangs, ask, pod).shown(snapshot) for pod in staying.tolist()
    )
    facts = {"node": node, "short": _short(draft, left[:, node])}
    if not why:
        return Refusal.of(Why.SHORT_WERE_ALL_GONE, **facts)
    most, number = min(why.items(), key=lambda one: (-one[1], one[0]))
    more = f"; {len(staying) - number} more stay for other reasons" if len(staying) > number else ""
    facts |= {"code": most.code, "stays": most.message, "number": number, "more": more}
    return Refusal.of(Why.SHORT_WITHOUT_MOVABLE, **facts)


def _stays(draft: Draft, of: Contribution, gangs: RoomGangs, ask: Ask, pod: int) -> Refusal:
    cls = int(draft.snapshot.pods.cls[pod])
    if (keeps := draft.forbidden(pod) if gangs.unit_of(pod) else draft.keeps(pod)) is not None:
        return keeps
    if of.selected is not None and not of.selected.pods(draft.snapshot)[pod]:
        return Refusal.of(Why.NOT_SELECTED, strategy=of.strategy)
    if draft.snapshot.classes[cls].priority > ask.priority:
        return Refusal.of(Why.HIGHER_PRIORITY)
    return Refusal.of(Why.WAITS_ITSELF)
