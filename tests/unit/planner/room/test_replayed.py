"""Plans that make room, played with drawn landings and sums of requests alone: no two moves of a wave need the same room."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import pytest

from rebalancer.plan.plan import Move, Plan
from rebalancer.testing.snapshots import Manifest, node, workload
from tests.unit.planner.room.test_plan import room, waiting

SEEDS = (1, 3)
_SIZE = 4000
_RARE = 0.05


def crowded(seed: int) -> tuple[list[Manifest], dict[str, int], dict[str, int]]:
    """Return objects, node -> free millicores, and pod -> millicores: free room in pieces, and pods that no piece takes."""
    draw = Random(seed)
    free = {f"n{i:02}": _SIZE for i in range(draw.randint(5, 10))}
    objects: list[Manifest] = [node(name, cpu=f"{_SIZE}m") for name in free]
    pods: dict[str, int] = {}
    for number in range(60):
        size, where = draw.choice([300, 500, 700, 1100, 1500]), draw.choice(sorted(free))
        other = draw.choice(sorted(free))
        if other == where or min(free[where], free[other]) - size < draw.choice([300, 700, 1200]):
            continue
        for index, name in enumerate((where, other)):
            free[name] -= size
            pods[f"w{number}-{index}"] = size
        objects += workload(f"w{number}", [where, other], cpu=f"{size}m", memory="1Mi")
    for number in range(4):
        size = max(free.values()) + draw.choice([100, 400, 900])
        if size <= _SIZE - 600:
            objects += waiting(f"big{number}", cpu=f"{size}m", memory="1Mi")
    return objects, free, pods


def courses(moves: list[Move]) -> Iterator[tuple[str, ...]]:
    """Yield where the moves of a wave may land together, but for what is rare."""
    likely = [
        [one.node for one in move.landings if one.probability > _RARE] or [move.landings[0].node]
        for move in moves
    ]
    number = 1
    for of in likely:
        number *= len(of)
    if number <= 4096:
        yield from product(*likely)


def overfull(plan: Plan, free: dict[str, int], pods: dict[str, int]) -> list[str]:
    """Return the nodes that would hold too much in some course of the first wave; victims hold their room until its end."""
    wave = [move for move in plan.moves if move.wave == plan.moves[0].wave] if plan.moves else []
    found = set()
    for course in courses(wave):
        left = dict(free)
        for move, name in zip(wave, course, strict=True):
            left[name] -= pods[move.pod]
        found |= {name for name, rest in left.items() if rest < 0}
    return sorted(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_its_ties_come_to_a_wave_has_the_room_that_it_takes(seed):
    objects, free, pods = crowded(seed)
    assert overfull(room(objects), free, pods) == []


def test_a_pod_with_one_place_goes_in_the_wave_after_one_that_may_take_it():
    """ "any" may land on m2 or m3, and "ssd" on m3 only; each node has room for one of them."""
    nodes = [
        node(f"m{i}", cpu="8", labels={"disk": "ssd"} if i in (1, 3) else {}) for i in range(4)
    ]
    fixed = [
        *workload("left", ["m0", "m2"], cpu="5500m", annotations={"rebalancer/evict": "false"}),
        *workload("right", ["m1", "m3"], cpu="5500m", annotations={"rebalancer/evict": "false"}),
    ]
    # The other replica of each is where nothing else is.
    spare = [
        node(f"s{i}", cpu="2", taints=[{"key": "own", "effect": "NoSchedule"}]) for i in range(2)
    ]
    movers = [
        *workload("any", ["m0", "s0"], cpu="2"),
        *workload("ssd", ["m1", "s1"], cpu="2", spec={"nodeSelector": {"disk": "ssd"}}),
    ]
    waits = [
        *waiting("first", cpu="2500m", spec={"nodeSelector": {"kubernetes.io/hostname": "m0"}}),
        *waiting("second", cpu="2500m", spec={"nodeSelector": {"kubernetes.io/hostname": "m1"}}),
    ]
    made = room([*nodes, *spare, *fixed, *movers, *waits])
    free = {"m0": 500, "m1": 500, "m2": 2500, "m3": 2500, "s0": 0, "s1": 0}
    pods = {"any-0": 2000, "ssd-0": 2000}
    assert {move.pod for move in made.moves} == set(pods)
    assert overfull(made, free, pods) == []
