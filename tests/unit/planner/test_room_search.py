"""The search for room against all placements there are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.cost.room_term import Ask
from rebalancer.planner.effort import Effort
from rebalancer.planner.room_search import Item, Placing, RoomSearch, RoomSearchResult
from rebalancer.testing.snapshots import Manifest, node, workload
from tests.unit.planner.conftest import draft_of

CPUS = 4


def search_of(objects: list[Manifest]) -> RoomSearch:
    draft = draft_of(objects, strategies=())
    pods = draft.snapshot.pods
    closed = np.zeros(len(draft.snapshot.nodes), bool)
    return RoomSearch(draft, pods.node >= 0, closed, Effort(), lambda: None)


def ask_of(search: RoomSearch, cpu: int, nodes: int) -> Item:
    """Room for so many CPUs, on any node."""
    requests = np.zeros(3, np.int64)
    requests[0] = cpu * 1000
    ask = Ask(-1, -1, np.ones(nodes, bool), 0, requests)
    return search.item_of(0, ask)


def find(search: RoomSearch, item: Item) -> RoomSearchResult:
    return search.find([item], lambda _: True, 50_000)


def objects_of(nodes: int, pods: list[tuple[int, int]]) -> list[Manifest]:
    """Nodes of CPUS CPUs, and pods by (CPUs, node), each of its own workload."""
    made = [node(f"n{i}", cpu=str(CPUS)) for i in range(nodes)]
    for number, (cpu, on) in enumerate(pods):
        made += workload(f"w{number}", [f"n{on}"], cpu=str(cpu))
    return made


def fewest(nodes: int, pods: list[tuple[int, int]], wanted: int) -> int | None:
    """The fewest pods that have to be elsewhere for a node to have so much free; None: there is no way."""
    best: int | None = None
    for places in product(range(nodes), repeat=len(pods)):
        used = [0] * nodes
        for (cpu, _), place in zip(pods, places, strict=True):
            used[place] += cpu
        if max(used, default=0) <= CPUS and min(used) + wanted <= CPUS:
            moved = sum(place != on for (_, on), place in zip(pods, places, strict=True))
            best = moved if best is None else min(best, moved)
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
def test_it_is_as_good_as_trying_all_placements(
    cluster: tuple[int, list[tuple[int, int]]], wanted: int
) -> None:
    nodes, pods = cluster
    search = search_of(objects_of(nodes, pods))
    before = search.lacking(ask_of(search, wanted, nodes))
    found, best = find(search, ask_of(search, wanted, nodes)), fewest(nodes, pods, wanted)
    if best is None:
        assert found.placing is None
        assert found.exhaustive
    else:
        assert found.placing is not None
        assert len(found.placing.moves) == found.fewest == best
    # The state is as it was.
    assert (search.lacking(ask_of(search, wanted, nodes)) == before).all()


def test_what_is_refused_is_not_the_answer_and_no_bound_rests_on_it() -> None:
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
def test_it_ends_when_its_steps_are_used_up(steps: int) -> None:
    search = search_of(objects_of(3, [(2, 0), (1, 0), (3, 1), (3, 2)]))
    found = search.find([ask_of(search, 4, 3)], lambda _: True, steps)
    assert found.placing is None
    assert not found.exhaustive
    assert search.used <= 2 * steps
