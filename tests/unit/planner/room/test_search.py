"""The search for room against all placements there are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.cost.room_term import Ask
from rebalancer.planner.effort import Effort
from rebalancer.planner.gangs import RoomGangs
from rebalancer.planner.room.items import Item, Placing
from rebalancer.planner.room.search import RoomSearch, RoomSearchResult
from rebalancer.testing.snapshots import Manifest, node, workload
from tests.unit.planner.conftest import draft_of

CPUS = 4
KOORDINATOR = "gang.scheduling.koordinator.sh"
Gang = tuple[frozenset[int], int]
"""The pods of a gang, and how many it needs."""


def search_of(objects: list[Manifest]) -> RoomSearch:
    draft = draft_of(objects, strategies=())
    pods = draft.snapshot.pods
    closed = np.zeros(len(draft.snapshot.nodes), bool)
    may = pods.node >= 0
    return RoomSearch(draft, may, closed, Effort(), lambda: None, RoomGangs(draft, may))


def ask_of(search: RoomSearch, cpu: int, nodes: int) -> Item:
    """Room for so many CPUs, on any node."""
    requests = np.zeros(3, np.int64)
    requests[0] = cpu * 1000
    ask = Ask(-1, -1, np.ones(nodes, bool), 0, requests)
    return search.items.waiting(0, ask)


def find(search: RoomSearch, item: Item) -> RoomSearchResult:
    return search.find([item], lambda _: True, 50_000)


def objects_of(
    nodes: int, pods: list[tuple[int, int]], gangs: Sequence[Gang] = ()
) -> list[Manifest]:
    """Nodes of CPUS CPUs, and pods by (CPUs, node), each of its own workload."""
    made = [node(f"n{i}", cpu=str(CPUS)) for i in range(nodes)]
    for number, (cpu, on) in enumerate(pods):
        told = [
            {f"{KOORDINATOR}/name": f"g{of}", f"{KOORDINATOR}/min-available": str(least)}
            for of, (members, least) in enumerate(gangs)
            if number in members
        ]
        made += workload(
            f"w{number}", [f"n{on}"], cpu=str(cpu), annotations=told[0] if told else {}
        )
    return made


def fewest(
    nodes: int, pods: list[tuple[int, int]], wanted: int, gangs: Sequence[Gang] = ()
) -> int | None:
    """The fewest pods that have to be elsewhere for a node to have so much free; None: there is no way.

    With a pod of a gang all of it have to leave, which may come back, unless enough of it stay.
    """
    best: int | None = None
    for places in product(range(nodes), repeat=len(pods)):
        used = [0] * nodes
        for (cpu, _), place in zip(pods, places, strict=True):
            used[place] += cpu
        if max(used, default=0) <= CPUS and min(used) + wanted <= CPUS:
            moved = {
                number
                for number, ((_, on), place) in enumerate(zip(pods, places, strict=True))
                if place != on
            }
            for members, least in gangs:
                if moved & members and len(members - moved) < least:
                    moved |= members
            best = len(moved) if best is None else min(best, len(moved))
    return best


@st.composite
def clusters(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    nodes = draw(st.integers(2, 4))
    used = [0] * nodes
    pods: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(1, 6))):
        cpu, on = draw(st.integers(1, 3)), draw(st.integers(0, nodes - 1))
        if used[on] + cpu <= CPUS:
            used[on] += cpu
            pods.append((cpu, on))
    return nodes, pods


@settings(max_examples=60, deadline=None)
@given(clusters(), st.integers(2, CPUS))
def test_it_is_as_good_as_trying_all_placements(cluster, wanted):
    nodes, pods = cluster
    search = search_of(objects_of(nodes, pods))
    before = search.trial.lacking(ask_of(search, wanted, nodes))
    found, best = find(search, ask_of(search, wanted, nodes)), fewest(nodes, pods, wanted)
    if best is None:
        assert found.placing is None
        assert found.exhaustive
    else:
        assert found.placing is not None
        assert len(found.placing.moves) == found.fewest == best
    # The state is as it was.
    assert (search.trial.lacking(ask_of(search, wanted, nodes)) == before).all()


@settings(max_examples=80, deadline=None)
@given(clusters(), st.integers(2, CPUS), st.data())
def test_with_gangs_it_is_as_good_as_trying_all_placements(cluster, wanted, data):
    nodes, pods = cluster
    of = data.draw(st.lists(st.integers(0, 2), min_size=len(pods), max_size=len(pods)))
    members = [frozenset(n for n, number in enumerate(of) if number == g) for g in (1, 2)]
    gangs = [
        (pods_of, data.draw(st.integers(2, len(pods_of))))
        for pods_of in members
        if len(pods_of) > 1
    ]
    search = search_of(objects_of(nodes, pods, gangs))
    before = search.trial.lacking(ask_of(search, wanted, nodes))
    found, best = find(search, ask_of(search, wanted, nodes)), fewest(nodes, pods, wanted, gangs)
    if best is None:
        assert found.placing is None
        assert found.exhaustive
    else:
        assert found.placing is not None
        assert len(found.placing.moves) == found.fewest == best
        left = {item.pod for item, _ in found.placing.moves}
        names = {search.snapshot.pods.name[pod] for pod in left}
        for pods_of, least in gangs:
            gone = {number for number in pods_of if f"w{number}-0" in names}
            assert not gone or gone == pods_of or len(pods_of - gone) >= least
    assert (search.trial.lacking(ask_of(search, wanted, nodes)) == before).all()


def test_what_is_refused_is_not_the_answer_and_no_bound_rests_on_it():
    search = search_of(objects_of(2, [(2, 0), (1, 0), (2, 1)]))
    seen: list[Placing] = []

    def accept(placing: Placing) -> bool:
        seen.append(placing)
        return len(placing.moves) > 1

    found = search.find([ask_of(search, 3, 2)], accept, 50_000)
    assert len(seen[0].moves) == 1
    assert found.placing is None or len(found.placing.moves) > 1
    assert found.fewest == 1


@pytest.mark.parametrize("steps", [1, 5])
def test_it_ends_when_its_steps_are_used_up(steps):
    search = search_of(objects_of(3, [(2, 0), (1, 0), (3, 1), (3, 2)]))
    found = search.find([ask_of(search, 4, 3)], lambda _: True, steps)
    assert found.placing is None
    assert not found.exhaustive
    assert search.used <= 2 * steps
