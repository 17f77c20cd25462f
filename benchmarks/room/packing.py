"""Make room beside a constraint solver, on clusters that a greedy scheduler has filled too early.

python -m benchmarks.room.packing --clusters 40 --seed 5000

The clusters have the shape of arXiv 2511.08373: equal nodes, ReplicaSets of random size, one to four priorities, requests of 90 to
105 % of what the nodes have, and pods that the scheduler could not place. OR-Tools' CP-SAT places as many pods of the highest
priority as can be, then of the next, then with the fewest moves. It binds every pod itself, at once; make-room evicts pods one wave after
the other, and the scheduler chooses their nodes. CP-SAT is asked twice: for anything, and with what the default policy keeps where it is:
the only pod of a workload, pods of a workload of which others wait, and pods of a higher priority than all that wait. Its seconds are
of CPU, so that other work beside it takes none.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from benchmarks.alone import UNBOUNDED
from benchmarks.room.__main__ import end_of, planned
from benchmarks.room.clusters import Machine, RoomCluster, Work

_NODES = (4, 8, 16, 32)
_PODS_A_NODE = (4, 8)
_PRIORITIES = (1, 2, 4)
_ASKED = (0.90, 0.95, 1.0, 1.05)
_LEAST, _MOST = 100, 1000
_LOOK = 0.02


def packed(seed: int) -> RoomCluster:
    """Return the cluster of a seed, its pods placed in the order of their priority, each on the emptiest node that takes it."""
    draw = random.Random(seed)
    nodes, priorities = draw.choice(_NODES), draw.choice(_PRIORITIES)
    left = nodes * draw.choice(_PODS_A_NODE)
    drawn: list[tuple[Work, int]] = []
    while left:
        replicas = min(left, draw.randint(1, 4))
        left -= replicas
        asks = draw.randint(_LEAST, _MOST), draw.randint(_LEAST, _MOST), 0
        drawn.append((Work(f"w{len(drawn)}", asks, priority=draw.randrange(priorities)), replicas))
    asked = draw.choice(_ASKED)
    cpu, memory = (
        round(sum(work.asks[row] * replicas for work, replicas in drawn) / asked / nodes)
        for row in range(2)
    )
    machines = [Machine(f"n{n:02}", "a", (cpu, memory, 0, 110)) for n in range(nodes)]
    made = RoomCluster(seed, machines, [work for work, _ in drawn])
    pods = [work for work, replicas in drawn for _ in range(replicas)]
    draw.shuffle(pods)
    for work in sorted(pods, key=lambda one: -one.priority):
        able = [n for n in range(nodes) if made.takes(work, n)]
        if not able:
            work.waiting += 1
            continue
        work.on.append(min(able, key=lambda n: (_use(made, n), n)))
    return made


def _use(made: RoomCluster, n: int) -> float:
    """Return which share of a node's CPU and memory is requested, as the scheduler's LeastAllocated counts."""
    return -sum(
        left / room for left, room in zip(made.free(n)[:2], made.machines[n].room[:2], strict=True)
    )


@dataclass(frozen=True, slots=True)
class Packing:
    """What a solver found in its time."""

    let_in: tuple[int, ...]
    moves: int
    proven: bool


def solve(made: RoomCluster, seconds: float, *, kept: bool) -> Packing:
    """Return the best end that CP-SAT finds in this time, by one worker; pods that run have a node in it.

    ``kept``: what the default policy protects stays where it is.
    """
    until = time.process_time() + seconds
    model = cp_model.CpModel()
    nodes = range(len(made.machines))
    there = [
        [model.new_int_var(0, len(work.on) + work.waiting, f"{work.name}-{n}") for n in nodes]
        for work in made.works
    ]
    left = []
    priorities = _waiting(made)
    for work, at in zip(made.works, there, strict=True):
        single = len(work.on) + work.waiting < 2
        stays = kept and (single or bool(work.waiting) or work.priority > priorities[0])
        model.add_linear_constraint(sum(at), len(work.on), len(work.on) + work.waiting)
        for n in set(work.on):
            gone = model.new_int_var(0, work.on.count(n), f"{work.name}-{n}-left")
            model.add(gone >= work.on.count(n) - at[n])
            left.append(gone)
            if stays:
                model.add(gone == 0)
        for n in nodes:
            model.add_hint(at[n], work.on.count(n))
    for n, machine in enumerate(made.machines):
        for row in range(2):
            asked = [work.asks[row] * at[n] for work, at in zip(made.works, there, strict=True)]
            model.add(sum(asked) <= machine.room[row])
    let_in, proven = [0] * len(priorities), True
    for place, priority in enumerate(priorities):
        mine = [
            sum(at) - len(work.on)
            for work, at in zip(made.works, there, strict=True)
            if work.priority == priority and work.waiting
        ]
        model.maximize(sum(mine))
        found, best = _solve(model, there, until)
        proven &= best
        if found is None:
            return Packing(tuple(let_in), 0, proven=False)
        let_in[place] = round(found)
        model.add(sum(mine) >= let_in[place])
    model.minimize(sum(left))
    found, best = _solve(model, there, until)
    return Packing(tuple(let_in), -1 if found is None else round(found), proven and best)


def _solve(
    model: cp_model.CpModel, there: Sequence[Sequence[cp_model.IntVar]], until: float
) -> tuple[float | None, bool]:
    """Return the objective of the best end, None without one, and whether it is proven; the end is the hint of the next call."""
    solver, ended = cp_model.CpSolver(), threading.Event()
    solver.parameters.num_workers = 1
    watch = threading.Thread(target=_stop_at, args=(solver, until, ended), daemon=True)
    watch.start()
    status = solver.solve(model)
    ended.set()
    watch.join()
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, False
    values = [(one, solver.value(one)) for at in there for one in at]
    model.clear_hints()
    for one, value in values:
        model.add_hint(one, value)
    return solver.objective_value, status == cp_model.OPTIMAL


def _stop_at(solver: cp_model.CpSolver, until: float, ended: threading.Event) -> None:
    """Stop a search when the process has used so much CPU: CP-SAT itself knows a limit of wall time only."""
    while not ended.wait(_LOOK):
        if time.process_time() >= until:
            solver.stop_search()


def _waiting(made: RoomCluster) -> list[int]:
    return sorted({one.priority for one in made.works if one.waiting}, reverse=True)


def _clusters(first: int, number: int) -> Iterator[RoomCluster]:
    """Yield so many clusters, from a seed on, in which a pod waits."""
    seed = first
    while number:
        made = packed(seed)
        if any(work.waiting for work in made.works):
            number -= 1
            yield made
        seed += 1


def main() -> None:
    """Print a line for each cluster, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=40)
    parser.add_argument("--seed", type=int, default=5000)
    options = parser.parse_args()
    asked = [(kept, seconds) for kept in (False, True) for seconds in (1.0, 10.0)]
    rows = []
    for made in _clusters(options.seed, options.clusters):
        solved = [solve(made, seconds, kept=kept) for kept, seconds in asked]
        plan, seconds = planned(made, budgets=UNBOUNDED)
        let_in, wrong = end_of(made, plan)
        rows.append((let_in, len(plan.moves), seconds, solved))
        others = "\t".join(f"{one.let_in}\t{one.moves}" for one in solved)
        print(
            f"{made.seed}\t{let_in}\t{len(plan.moves)}\t{seconds:.1f}\t{others}\t{wrong}",
            flush=True,
        )
    for place, (kept, limit) in enumerate(asked):
        pairs = [(let_in, moves, solved[place]) for let_in, moves, _, solved in rows]
        same = [(moves, one.moves) for let_in, moves, one in pairs if let_in == one.let_in]
        fewest = [(mine, its) for mine, its in same if its >= 0]
        print(
            f"beside {limit:g} s of CP-SAT{' with what is kept' if kept else ''}, clusters {len(pairs)}:"
            f" the same {len(same)}, better {sum(let_in > one.let_in for let_in, _, one in pairs)};"
            f" pods {sum(sum(let_in) for let_in, _, _ in pairs)} of {sum(sum(one.let_in) for *_, one in pairs)};"
            f" evictions where the same {sum(mine for mine, _ in fewest)} of {sum(its for _, its in fewest)}"
        )
    spent = sorted(seconds for _, _, seconds, _ in rows)
    print(f"seconds of CPU: median {spent[len(spent) // 2]:.2f}, most {spent[-1]:.2f}")


if __name__ == "__main__":
    main()
