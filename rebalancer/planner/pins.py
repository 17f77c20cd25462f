"""Pins: nodes that only a few protected pods keep in use, and the fewest nodes on which all of these pods would fit.

The search returns the fewest nodes, or the cheapest, with room for all of these pods beside the pods bound to each node;
the result is exact if its step limit suffices. Other pods on these nodes leave if necessary, and need landings elsewhere.
The scheduler's filters decide what fits on a node: requests, affinity, taints, volumes, and hard rules between pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.planner.draft import Draft
from rebalancer.planner.problem import Problem
from rebalancer.planner.room.free import FreeRoom
from rebalancer.planner.room.items import Item, Items
from rebalancer.planner.trial import Trial
from rebalancer.scheduler.topology import HOSTNAME
from rebalancer.snapshot.columns import Bools, Floats
from rebalancer.snapshot.prices import NodePrices
from rebalancer.snapshot.protect import PASSING, bits_of, names_of

_STEPS = 4_000
"""Of a search: as many placements are tried."""
_EQUAL = 1e-9
_PINNING = ~(PASSING | bits_of("notSelected", "selector"))
"""The protections by which a pod pins its node: not those that end, nor what the policy or the command leaves out."""
_ANNOTATED = bits_of("safeToEvict", "doNotDisrupt", "preferNoEviction", "optedOut")
_BUDGET = "PDB"
_IN_WORDS = {
    "safeToEvict": "safe-to-evict false",
    "doNotDisrupt": "do-not-disrupt",
    "preferNoEviction": "prefer-no-eviction",
    "optedOut": "opted out",
    "noController": "bare",
    "localStorage": "local data",
    "volumes": "volumes",
    "singleReplica": "single replica",
    "cannotSurge": "single replica",
    "systemCritical": "system-critical",
    "notRecreated": "not recreated",
    "job": "Job",
    "pods": "protect.pods",
    "gang": "gang",
}
"""Protection -> how it is named in a line."""
_CURES = {
    "safeToEvict": "take the annotation off once they may move, or let a person drain the node in a window",
    "doNotDisrupt": "take the annotation off once they may move, or let a person drain the node in a window",
    "preferNoEviction": "take the annotation off once they may move",
    "optedOut": "`rebalancer/evict` may name a time, after which they move",
    "noController": "create them by a Deployment or StatefulSet: nothing would replace them",
    "localStorage": "`protect.localStorage.except` names those whose local data may be lost",
    "volumes": "`protect.volumes.except` names those whose volumes follow them",
    "singleReplica": "`method: {singleReplicas: restart}` moves them by a rollout without a gap, or two replicas",
    "cannotSurge": "a rollout that surges, or two replicas",
    "systemCritical": "`protect.systemCritical.except` names those that may move",
    "notRecreated": "`protect.recreatedBy` names the kinds that recreate a pod",
    "job": "they end by themselves; `protect.jobs.except` names those that may start again",
    "pods": "the policy's `protect.pods` names them",
    "gang": "their gang moves as a whole or not at all",
    _BUDGET: "a PodDisruptionBudget that allows an eviction, or `method: {unevictable: restart}`",
}
"""Protection -> what may be done about it."""


@dataclass(frozen=True, slots=True)
class PinCause:
    """Why pods pin nodes, and what may be done about it."""

    name: str
    """A protection, or ``PDB``. Stable."""
    pods: int
    cure: str

    @property
    def words(self) -> str:
        """The cause in a line of the report."""
        return _IN_WORDS.get(self.name, self.name)


@dataclass(frozen=True, slots=True)
class Pins:
    """The pods that pin nodes, and the nodes that they would need together."""

    nodes: tuple[int, ...]
    """The nodes that the pods pin."""
    pods: tuple[int, ...]
    causes: tuple[PinCause, ...]
    """The most frequent first; of a pod with several causes the first protection."""
    together: tuple[int, ...]
    """The nodes that the pods would need together."""
    proven: bool
    """Whether fewer nodes cannot do."""
    hourly: float | None = None
    """The price for an hour of the nodes that would be without them; None: no price is known."""
    placing: Mapping[int, int] = field(default_factory=dict)
    """Pod -> its node in the best placing; empty if the present placing cannot be improved."""

    @property
    def saved(self) -> int:
        """How many nodes would no longer be pinned if the pods were placed together."""
        return len(self.nodes) - len(self.together)

    @property
    def line(self) -> str:
        """The line of a report about the pins."""
        causes = ", ".join(f"{one.words} {one.pods}" for one in self.causes)
        fit = f"on {len(self.together)}" if self.proven else f"on {len(self.together)} or fewer"
        held = "is" if len(self.nodes) == 1 else "are"
        text = f"{count(len(self.nodes), 'node')} {held} held by {count(len(self.pods), 'pod')} ({causes})"
        if self.saved:
            text += f": together they fit {fit}"
            text += f", {self.hourly:.2f} an hour less" if self.hourly else ""
        return text


def find_pins(draft: Draft, nodes: Sequence[int], prices: NodePrices | None = None) -> Pins | None:
    """Return the pods that pin some of ``nodes``, which cannot be emptied because of their pods; None if none does for good.

    What ends by itself, as the youth of a pod, pins nothing. The state of the draft is the same afterwards.
    """
    pods = _pins_on(draft, nodes)
    held = sorted({int(draft.snapshot.pods.node[pod]) for pod in pods})
    if not held:
        return None
    weights = np.ones(len(draft.snapshot.nodes))
    if prices is not None and not np.isnan(prices.hourly[held]).any():
        weights = prices.known
    search = _Search(draft, pods, held, weights)
    search.run()
    with Trial(draft.state) as trial:
        surplus = sorted(set(held) - search.best)
        left = stand_together(draft, trial, search.placing, surplus)
    return Pins(
        tuple(held),
        tuple(pods),
        tuple(_causes(draft, pods)),
        tuple(node for node in held if node not in left),
        proven=search.left > 0 and left == surplus,
        hourly=None if prices is None else round(float(prices.known[left].sum()), 9),
        placing=search.placing,
    )


def stand_together(
    draft: Draft, trial: Trial, placing: Mapping[int, int], surplus: Sequence[int]
) -> list[int]:
    """Place pods together in the state; return the nodes of ``surplus`` that they leave by that.

    Pods that must leave for them need a landing elsewhere. If some have none, as many nodes as possible are left, those
    with the fewest other pods first.
    """
    home, start = draft.snapshot.pods.node, trial.here()
    others = _others(draft, list(placing), range(len(draft.snapshot.nodes)))
    if _settle(draft, trial, placing, others, surplus):
        return list(surplus)
    trial.undo(start)
    number = Counter(home[others].tolist())
    left = []
    for node in sorted(surplus, key=lambda node: (number[node], node)):
        before = trial.here()
        mine = {pod: to for pod, to in placing.items() if home[pod] == node}
        if _settle(draft, trial, mine, others, surplus):
            left.append(node)
        else:
            trial.undo(before)
    return sorted(left)


def _settle(
    draft: Draft,
    trial: Trial,
    placing: Mapping[int, int],
    others: Sequence[int],
    surplus: Sequence[int],
) -> bool:
    """Place pods in the state, and those of ``others`` that must make way off ``surplus``; return whether all have a place."""
    snapshot, scheduler, state = draft.snapshot, draft.scheduler, draft.state
    home, cls_of = snapshot.pods.node, snapshot.pods.cls
    most = np.maximum(1, snapshot.nodes.allocatable.max(axis=1, initial=1))
    size = (snapshot.requests / most[:, None]).max(axis=0, initial=0.0)
    for pod in placing:
        trial.evict(pod, gone=True)
    away: list[int] = []
    for pod, node in placing.items():
        cls = snapshot.classes[int(cls_of[pod])].replacement
        if not scheduler.feasible(state, cls)[node]:
            beside = [one for one in others if state.node_of[one] == node == home[one]]
            for one in beside:
                trial.evict(one, gone=True)
            away += beside
            if not scheduler.feasible(state, cls)[node]:
                return False
        trial.place(pod, node)
    leaving = [
        pod
        for pod in sorted(away, key=lambda pod: (-size[cls_of[pod]], pod))
        if not _return_home(draft, trial, pod, placing)
    ]
    with scheduler.removing(np.array(surplus, np.int32)):
        for pod in leaving:
            landing = scheduler.predict(state, snapshot.classes[int(cls_of[pod])].replacement)
            if not len(landing.nodes):
                return False
            trial.place(pod, int(landing.nodes[0]))
    return True


def _return_home(draft: Draft, trial: Trial, pod: int, placing: Mapping[int, int]) -> bool:
    """Put an evicted pod back, unless one of those that are placed has no place beside it then; return whether it is back.

    Whether its own node would still take it does not count: it may have stood there against a rule before.
    """
    scheduler, state, of = draft.scheduler, draft.state, draft.snapshot.pods
    start = trial.here()
    state.restore(pod)
    for one, node in placing.items():
        if node == of.node[pod]:
            with state.evicted(one, gone=True):
                stands = scheduler.feasible(
                    state, draft.snapshot.classes[int(of.cls[one])].replacement
                )[node]
            if not stands:
                trial.undo(start)
                return False
    return True


def _others(draft: Draft, pods: Sequence[int], nodes: Sequence[int]) -> list[int]:
    """Return the other pods of ``nodes`` that may leave them."""
    of = draft.snapshot.pods
    mine = of.living & np.isin(of.node, nodes) & ~draft.snapshot.per_node
    mine[list(pods)] = False
    return np.flatnonzero(mine).tolist()


def _pins_on(draft: Draft, nodes: Sequence[int]) -> list[int]:
    """Return the pods on ``nodes`` that something keeps there which does not end by itself."""
    snapshot = draft.snapshot
    pods = snapshot.pods
    inside = np.zeros(len(snapshot.nodes) + 1, bool)
    inside[list(nodes)] = True
    kept = (draft.problem.protected & _PINNING) != 0
    kept |= draft.problem.disruptions.unevictable_pods()
    mine = pods.living & inside[pods.node] & kept & ~snapshot.per_node
    return np.flatnonzero(mine).tolist()


def find_annotated(problem: Problem) -> Bools:
    """Return the pods (P,) that an annotation of their own keeps on their nodes."""
    annotated: Bools = (problem.protected & _ANNOTATED) != 0
    return annotated


def _causes(draft: Draft, pods: Sequence[int]) -> Iterator[PinCause]:
    """Yield why pods pin nodes, the most frequent cause first."""
    numbers: dict[str, int] = {}
    for pod in pods:
        names = names_of(int(draft.problem.protected[pod]) & _PINNING)
        name = names[0] if names else _BUDGET
        numbers[name] = numbers.get(name, 0) + 1
    for name, number in sorted(numbers.items(), key=lambda of: (-of[1], of[0])):
        yield PinCause(name, number, _CURES.get(name, "the policy's `protect` says what may move"))


@dataclass(slots=True)
class _Search:
    """Searches for the nodes of least total weight on which all pods fit together: depth first, with bounds."""

    draft: Draft
    pods: Sequence[int]
    held: Sequence[int]
    weights: Floats
    """(N,) 1, or the price of each node where all are known."""
    best: set[int] = field(default_factory=set)
    """The nodes of the best placing so far; at first the present ones."""
    placing: dict[int, int] = field(default_factory=dict)
    """Pod -> its node, of the best placing."""
    left: int = _STEPS
    _room: FreeRoom = field(init=False)
    _items: list[Item] = field(init=False)
    _ruled: bool = field(init=False)
    """Rules between pods count."""
    _inside: Bools = field(init=False)
    """(N,) the nodes that are held."""
    _order: list[int] = field(init=False)
    """The pinned nodes: those first from which most pods would have to leave, then those with most of ``pods``."""
    _kinds: dict[int, int] = field(init=False)
    _needs: list[tuple[Bools, Floats]] = field(init=False)
    _apart: int = field(init=False)
    """Number of nodes that pods need which must not share a node."""
    _seen: set[object] = field(default_factory=set)
    """The states that were searched."""

    def run(self) -> None:
        snapshot = self.draft.snapshot
        self.best = set(self.held)
        self._inside = np.zeros(len(snapshot.nodes), bool)
        self._inside[list(self.held)] = True
        self._room = FreeRoom(self.draft)
        items = Items(self.draft, ~self._inside)
        away = _others(self.draft, self.pods, self.held)
        on = snapshot.pods.node
        moving, staying = Counter(on[away].tolist()), Counter(on[list(self.pods)].tolist())
        self._order = sorted(self.held, key=lambda node: (-moving[node], -staying[node], node))
        with ExitStack() as stack:
            for pod in (*self.pods, *away):
                stack.enter_context(self._room.without(items.standing(pod)))
            self._items = sorted(map(items.standing, self.pods), key=self._rank)
            self._ruled = any(item.ruled for item in self._items)
            self._kinds, self._needs = self._number_kinds(), self._sum_needs()
            self._apart = self._count_apart()
            self._place(0, [])

    def _rank(self, item: Item) -> tuple[float, int, bytes, int]:
        """Return the rank of a pod: the largest first, those that are alike one after the other."""
        most = self.draft.snapshot.nodes.allocatable[:, list(self.held)].max(axis=1)
        share = float((item.requests / np.maximum(1, most)).max(initial=0.0))
        return -share, item.cls, item.nodes.tobytes(), item.pod

    def _place(self, place: int, used: list[int]) -> None:
        """Place all items from ``place`` on, on ``used`` nodes and as few more as possible."""
        if place == len(self._items):
            self.best = set(used)
            self.placing = {pod: node for pod, (_, node) in self._room.placed.items()}
            return
        if (state := self._state(place, used)) in self._seen:
            return
        self._seen.add(state)
        self.left -= 1
        item = self._items[place]
        for node in self._to_try(self._room.fitting(item), used):
            more = used if node in used else [*used, node]
            if self.left <= 0:
                return
            with self._room.standing(item, node):
                if self._least_weight(place + 1, more) < self._weigh(self.best) - _EQUAL:
                    self._place(place + 1, more)

    def _state(self, place: int, used: Sequence[int]) -> object:
        """Return what the rest of the search depends on: the kind of each used node, its room, and the items on it."""
        on: dict[int, list[int]] = {node: [] for node in used}
        for item, node in self._room.placed.values() if self._ruled else ():
            on[node].append(item.cls)
        free = self._room.free
        rooms = ((self._kinds[n], free[:, n].tobytes(), tuple(sorted(on[n]))) for n in used)
        return place, tuple(sorted(rooms))

    def _to_try(self, fits: Bools, used: Sequence[int]) -> list[int]:
        """Return the nodes to try for an item that fits on these: used ones first, and one of those that are alike."""
        order = [node for node in self._order if fits[node]]
        fresh = {self._kinds[node]: node for node in reversed(order) if node not in used}
        free = self._room.free
        roomy = sorted(
            (node for node in order if node in fresh.values()),
            key=lambda node: (self.weights[node], -int(free[:, node].sum())),
        )
        return [*(node for node in order if node in used), *roomy]

    def _number_kinds(self) -> dict[int, int]:
        """Return node -> a number that is equal for nodes which are equivalent for the items while they are unused."""
        snapshot, room = self.draft.snapshot, self._room
        pods, numbers = snapshot.pods, dict[object, int]()
        own = pods.living & snapshot.per_node
        kinds: dict[int, int] = {}
        for node in self.held:
            key: list[object] = [
                bytes(bool(item.nodes[node]) for item in self._items),
                room.free[:, node].tobytes(),
                int(room.places[node]),
                float(self.weights[node]),
            ]
            if self._ruled:
                labels = snapshot.nodes.labels.of(node)
                key.append(tuple(sorted(of for of in labels.items() if of[0] != HOSTNAME)))
                key.append(tuple(sorted(pods.cls[own & (pods.node == node)].tolist())))
            kinds[node] = numbers.setdefault(tuple(key), len(numbers))
        return kinds

    def _weigh(self, nodes: Collection[int]) -> float:
        return float(self.weights[list(nodes)].sum())

    def _least_weight(self, place: int, used: Sequence[int]) -> float:
        """Return a lower bound of the weight of all nodes that a placement uses.

        It is the weight of the ``used`` nodes and of the lightest others, as many as the items from ``place`` on need.
        """
        others = np.sort([self.weights[node] for node in self.held if node not in used])
        return self._weigh(used) + float(others[: self._at_least(place, used)].sum())

    def _at_least(self, place: int, used: Sequence[int]) -> int:
        """Return how many more nodes the items from ``place`` on need at least, by what they request together.

        Items that may use the same few nodes alone need some of these.
        """
        free = np.maximum(0, np.vstack([self._room.free, self._room.places]))
        inside = np.zeros(free.shape[1], bool)
        inside[list(used)] = True
        most = self._apart - len(used)
        for mask, needs in self._needs:
            lacking = needs[place] - free[:, mask & inside].sum(axis=1)
            if (lacking <= 0).all():
                continue
            others = np.sort(free[:, mask & ~inside & self._inside], axis=1)[:, ::-1]
            number = int(
                ((others.cumsum(axis=1) < lacking[:, None]).sum(axis=1) + 1)[lacking > 0].max()
            )
            most = max(most, number)
        return max(0, most)

    def _count_apart(self) -> int:
        """Return a lower bound of the number of items of which, by the rules between pods, no two may share a node."""
        numbers = Counter(item.cls for item in self._items if item.ruled)
        examples = {item.cls: item for item in self._items if item.ruled}
        repels = {
            one: {two for two in examples if self._repels(examples[one], examples[two])}
            for one in examples
        }
        largest = 0
        for first in examples:
            group: list[int] = []
            for cls in (first, *sorted(examples, key=lambda cls: (-numbers[cls], cls))):
                if cls not in group and all(cls in repels[other] for other in group):
                    group.append(cls)
            sizes = (numbers[cls] if cls in repels[cls] else 1 for cls in group)
            largest = max(largest, sum(sizes))
        return largest

    def _repels(self, one: Item, other: Item) -> bool:
        """Return whether ``other`` must not share a node with ``one``, on any node that accepts both."""
        nodes = np.flatnonzero(
            self._room.fitting(one) & self._room.passing(other, spread=False)
        ).tolist()
        for node in nodes:
            with self._room.standing(one, node):
                if self._room.passing(other, spread=False)[node]:
                    return False
        return True

    def _sum_needs(self) -> list[tuple[Bools, Floats]]:
        """Return (nodes, what the items from each place on that may use these alone request together), all nodes first."""
        asked = np.array([[*one.requests, one.places] for one in self._items], float)
        masks = {self._inside.tobytes(): self._inside}
        for item in self._items:
            mask = item.nodes & self._inside
            masks.setdefault(mask.tobytes(), mask)
        needs = []
        for mask in masks.values():
            alone = [not (item.nodes & self._inside & ~mask).any() for item in self._items]
            mine = asked * np.array(alone)[:, None]
            sums = np.vstack([mine[::-1].cumsum(axis=0)[::-1], np.zeros(asked.shape[1])])
            needs.append((mask, sums))
        return needs
