"""Ways that the repair makes, against all placements there are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.planner.room.items import Placing
from rebalancer.planner.room.repair import RoomRepair
from rebalancer.testing.snapshots import node, workload
from tests.unit.planner.room.test_search import (
    CPUS,
    ask_of,
    clusters,
    fewest,
    objects_of,
    search_of,
)


@settings(max_examples=60, deadline=None)
@given(clusters(), st.integers(2, CPUS))
def test_each_way_has_room_for_all_and_takes_no_fewer_moves_than_there_must_be(cluster, wanted):
    nodes, pods = cluster
    search = search_of(objects_of(nodes, pods))
    seen: list[Placing] = []

    def accept(placing: Placing) -> bool:
        seen.append(placing)
        return True

    best = RoomRepair(search, [ask_of(search, wanted, nodes)], lambda: None).best(
        accept, 300, most=6
    )
    for placing in seen:
        places = {item.pod: on for item, on in placing.nodes}
        used = [0] * nodes
        for row, (cpu, on) in enumerate(pods):
            used[places.get(row, on)] += cpu
        used[places[-1]] += wanted
        assert max(used) <= CPUS
        assert all(item.source != on for item, on in placing.moves)
    assert [len(placing.moves) for placing in seen] == sorted(
        {len(placing.moves) for placing in seen}, reverse=True
    )
    least = fewest(nodes, pods, wanted)
    if best is None or least is None:
        assert not seen
    else:
        assert len(best.moves) == len(seen[-1].moves) >= least


def test_it_reaches_ways_of_many_moves():
    # A pod of 7 waits; node by node the hole of 1 has to be carried on: three pods change places.
    pods = [(4, 0), (3, 1), (2, 2), (1, 3)]
    objects = [node(f"n{i}", cpu=str(cpu)) for i, cpu in enumerate((7, 4, 3, 2, 1))]
    for number, (cpu, on) in enumerate(pods):
        objects += workload(f"w{number}", [f"n{on}"], cpu=str(cpu))
    search = search_of(objects)
    best = RoomRepair(search, [ask_of(search, 7, 5)], lambda: None).best(
        lambda _: True, 300, most=6
    )
    assert best is not None
    assert sorted((item.source, on) for item, on in best.moves) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert (
        RoomRepair(search, [ask_of(search, 7, 5)], lambda: None).best(lambda _: True, 300, most=3)
        is None
    )
