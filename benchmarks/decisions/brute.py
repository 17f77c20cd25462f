"""The optimum by trying every placement: what the integer programme is checked against."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.decisions.instance import Instance, counted, hard, soft
from benchmarks.decisions.loop import as_objects
from benchmarks.decisions.optimum import Band, optimum
from benchmarks.decisions.reading import placement, read
from benchmarks.decisions.rules import Ints
from benchmarks.decisions.world import RECORDED_WISHES, World, draw

_MOST = 20_000
"""Placements worth trying."""
Best = tuple[float, float, float]


def best_of_all(instance: Instance, start: Ints, band: Band | None) -> Best | None:
    """Return least hard, then soft violations, then moves; None if no placement keeps the limits."""
    best: list[Best] = []
    rows = [list(_rows(instance, start, w)) for w in range(len(start))]
    for chosen in itertools.product(*rows):
        counts = np.array(chosen, np.int64)
        used = instance.used(counts)
        if (used > instance.capacity + 1e-6).any():
            continue
        share = used[0] / instance.capacity[0]
        if band is not None and not (
            (share > band[0] - 1e-6).all() and (share < band[1] + 1e-6).all()
        ):
            continue
        left = instance.violations(counts)
        best.append((hard(left), soft(left), float(np.maximum(0, start - counts).sum())))
    return min(best, default=None)


def _rows(instance: Instance, start: Ints, workload: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways in which the pods of a workload may stand."""
    here, allowed = start[workload], instance.allowed[workload]
    if instance.workloads[workload].held:
        yield tuple(here.tolist())
        return
    total = int(here.sum())
    for bars in itertools.combinations(range(total + len(here) - 1), len(here) - 1):
        edges = (-1, *bars, total + len(here) - 1)
        row = tuple(b - a - 1 for a, b in itertools.pairwise(edges))
        if all(n <= s or ok for n, s, ok in zip(row, here.tolist(), allowed, strict=True)):
            yield row


def check(examples: int, seed: int, say: Callable[[str], None]) -> int:
    """Compare the programme with all placements on so many tiny worlds; return 1 if they differ.

    Two worlds of three are made up, one has nodes of many sizes and caps per node as recorded clusters do.
    """
    rng = random.Random(seed)
    wrong = done = 0
    while done < examples:
        world = _recorded(rng) if done % 3 == 2 else draw(rng)
        objects = as_objects(world.objects())
        instance = read(objects)
        start = counted(instance, placement(objects))
        if not world.apps or _size(instance, start) > _MOST:
            continue
        done += 1
        band = rng.choice((None, (0.0, 0.6), (0.1, 0.9)))
        expected, solved = best_of_all(instance, start, band), optimum(instance, start, band)
        got = None if solved.counts is None else (solved.hard, solved.soft, solved.moves)
        if not _same(expected, got):
            wrong += 1
            say(f"all placements: {expected}, programme: {got} ({solved.status}), {band}\n{world}")
    say(f"{done} worlds, {wrong} differences")
    return 1 if wrong else 0


def _recorded(rng: random.Random) -> World:
    # The smallest nodes do not hold the largest pods even when empty.
    return draw(rng, RECORDED_WISHES, cpus=(400, 1000, 2000, 4000))


def _same(expected: Best | None, got: Best | None) -> bool:
    if expected is None or got is None:
        return expected is got
    return bool(np.allclose(expected, got, atol=1e-5))


def _size(instance: Instance, start: Ints) -> float:
    size = 1.0
    for workload, row in zip(instance.workloads, start, strict=True):
        total, nodes = int(row.sum()), len(row)
        ways = np.prod([(total + i) / i for i in range(1, nodes)])
        size *= 1.0 if workload.held else float(ways)
    return size
