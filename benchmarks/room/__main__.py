"""Room for pods that wait on random clusters, beside an integer programme.

python -m benchmarks.room --clusters 300 --seed 1000
python -m benchmarks.room --slots --clusters 300 --seed 1000

With --slots the first workload that waits is none: as many slots of its size are to be free instead. With --gangs a third of the
workloads that run are gangs.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass

from benchmarks.alone import plan_alone
from benchmarks.room.clusters import RoomCluster, Work, cluster, with_gangs
from benchmarks.room.optimum import RoomOptimum, optimum
from rebalancer.plan.plan import Plan
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.registry import Registry
from rebalancer.testing.snapshots import snapshot_of


@dataclass(frozen=True, slots=True)
class Result:
    """What was planned on one cluster."""

    seed: int
    let_in: tuple[int, ...]
    evictions: int
    seconds: float
    best: RoomOptimum
    together: int
    """Evictions of pods that leave with a gang."""
    wrong: str
    """What the plan would break, if anything; empty if nothing."""


def slots_of(made: RoomCluster) -> Work:
    """Return the first workload that waits, and leave it alone with those that run."""
    first = next(work for work in made.works if work.waiting)
    made.works[:] = [work for work in made.works if work is first or not work.waiting]  # type: ignore[index]
    return first


def planned(
    made: RoomCluster, slots: Work | None = None, budgets: Budgets | None = None
) -> tuple[Plan, float]:
    """Return the plan on a cluster, and how long it took; ``slots``: what is to be free, and does not wait; ``budgets``: others than the default."""
    name = "make-room" if slots is None else "slots"
    strategy = Registry.installed().strategy(name)
    given: dict[str, object] = {}
    objects = made.objects()
    if slots is not None:
        objects = [one for one in objects if not one["metadata"]["name"].startswith(slots.name)]
        cpu, memory, gpus = slots.asks
        free = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"} | (
            {"nvidia.com/gpu": gpus} if gpus else {}
        )
        given = {"free": free, "count": slots.waiting, "priority": slots.priority}
        given |= {"nodes": {"pool": slots.pool}} if slots.pool else {}
    params = strategy.Params.model_validate(given)
    snapshot = snapshot_of(objects)
    began = time.process_time()
    settings = Settings(steer=True, budgets=budgets or Budgets())
    decided = plan_alone(snapshot, name, strategy, params, settings)
    decided.explanation.make()
    return decided, time.process_time() - began


def result(seed: int, *, of_slots: bool, gangs: bool) -> Result:
    """Return what was planned on the cluster of a seed, beside the optimum."""
    made = with_gangs(cluster(seed)) if gangs else cluster(seed)
    slots = slots_of(made) if of_slots else None
    if slots is not None:
        slots.apart = False
    best = optimum(made)
    plan, seconds = planned(made, slots)
    let_in, wrong = end_of(made, plan)
    if slots is not None:
        let_in = (slots.waiting - plan.after["slots"].violated,)
    together = sum(move.of_gang for move in plan.moves)
    return Result(seed, let_in, len(plan.moves), seconds, best, together, wrong)


def end_of(made: RoomCluster, plan: Plan) -> tuple[tuple[int, ...], str]:
    """Return how many of each priority stand in the end, by the skips of the plan, and what is wrong with its end."""
    priorities = sorted({one.priority for one in made.works if one.waiting}, reverse=True)
    by_name = {work.name: work for work in made.works}
    index = {one.name: n for n, one in enumerate(made.machines)}
    outside = Counter(skip.pod.rpartition("-")[0] for skip in plan.skips)
    let_in = Counter[int]()
    for work in made.works:
        let_in[work.priority] += max(0, work.waiting - outside[work.name])
    wrong = ""
    left = Counter(move.pod.rpartition("-")[0] for move in plan.moves)
    for name, number in left.items():
        if by_name[name].gang and number < len(by_name[name].on):
            wrong = f"{number} pods of the gang {name} leave"
    for move in plan.moves:
        work = by_name[move.pod.rpartition("-")[0]]
        work.on.remove(index[move.node])
        wrong = wrong or (f"{move.pod} is fixed" if work.fixed else "")
    # Where several landings are as likely, a pod takes what those without a choice leave.
    for move in sorted(plan.moves, key=lambda move: len(move.landings)):
        work = by_name[move.pod.rpartition("-")[0]]
        nodes = [index[landing.node] for landing in move.landings]
        fits = [n for n in nodes if made.takes(work, n)]
        if not fits:
            wrong = wrong or f"{move.pod} does not fit on {move.landings[0].node}"
        work.on.append((fits or nodes)[0])
    return tuple(let_in[priority] for priority in priorities), wrong


def main() -> None:
    """Print a line for each cluster on which the two differ, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slots", action="store_true")
    parser.add_argument("--gangs", action="store_true")
    options = parser.parse_args()
    results = []
    for seed in range(options.seed, options.seed + options.clusters):
        results.append(one := result(seed, of_slots=options.slots, gangs=options.gangs))
        if one.let_in != one.best.let_in or one.evictions != one.best.evictions or one.wrong:
            print(one, flush=True)
    possible = [one for one in results if sum(one.best.let_in)]
    same = [one for one in results if one.let_in >= one.best.let_in]
    alike = [one for one in possible if one.let_in == one.best.let_in]
    evictions = sum(one.evictions for one in alike)
    fewest = sum(one.best.evictions for one in alike)
    in_vain = sum(one.evictions for one in results if not sum(one.best.let_in))
    seconds = sorted(one.seconds for one in results)
    print(
        f"clusters {len(results)}, something can be let in {len(possible)},"
        f" proven {sum(one.best.proven for one in results)}\n"
        f"let in as the optimum: {len(same)} ({len(same) / len(results):.1%});"
        f" pods {sum(sum(o.let_in) for o in results)} of {sum(sum(o.best.let_in) for o in results)}\n"
        f"evictions where as many: {evictions} of {fewest} ({evictions / max(1, fewest):.3f});"
        f" where nothing can be let in: {in_vain}; of gangs {sum(one.together for one in results)}\n"
        f"seconds of CPU: median {seconds[len(seconds) // 2]:.2f}, most {seconds[-1]:.2f}"
    )


if __name__ == "__main__":
    main()
