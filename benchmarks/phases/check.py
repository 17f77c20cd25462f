"""`make bench-check`: fails when a phase grows faster than the cluster, or a move costs more where more is wrong.

It also draws ten clusters of random shapes that it has never seen: a move may not cost much more on one of them than on
most, nor on a larger one. `--first SEED` draws the same ten again. On 300 nodes a move of theirs may take 1 ms of CPU in the
median and 1.5 at worst, on a machine that needs ``REFERENCE_MS`` for a reference; that is run beside each plan, so that slow and
busy machines judge alike. No other seconds are looked at.

Two counts per phase, at one size and at four times that size. Calls of functions are the same in every run
on every machine, and grow fourfold where Python does something per pod; a loop over pairs would make it
sixteenfold. What numpy does within one call shows in CPU time only: there the growth is divided by that of
a reference, linear by construction, that is run in turn with the phase.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.phases.drift import problem_of, snapshot_of
from benchmarks.phases.families import Trace, cluster_of, family, trace_of
from benchmarks.phases.phases import PHASES, Course
from benchmarks.phases.shapes import shape
from rebalancer.base.environment import collector_paused
from rebalancer.plan.plan import Plan
from rebalancer.planner.plan import plan
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import Snapshot

TIMES = 4
SMALL = (120, 1_500)
"""(nodes, pods): as above 100 nodes, the scheduler looks at a sample of them at both sizes."""
MOST_CALLS = 1.5
"""Calls may grow to 4 x 1.5: the smaller cluster has fewer owners than moves for some phases."""
MUCH = 0.1
"""Share of the pods that stand badly in the drifts."""
MOST_PER_MOVE = 1.5
"""A move may call so many times as many functions where more is wrong, or on more nodes."""
LARGE = 100
"""Replicas of a large owner; 10 otherwise."""
MOST_OF_LARGE = 4.0
"""Of large owners, whose pods each bear on all the others, a move may call so many times as many functions."""
MOST_OF_ONE = 3.0
"""Of one owner with a pod on every node, a move may call so many times as many functions on four times as many nodes.

Each wave looks once at all its pods that stand badly, of which there are as many more; where each move does, it is 4.6.
"""
MOST_TIME = 2.5
"""CPU time may grow to 4 x 2.5 before it fails; a quadratic phase grows to 16."""
DRAWS = 10
"""So many clusters of random shapes."""
SMALL_DRAW = (30, 450)
"""(nodes, pods)."""
MOST_OF_DRAW = 3.5
"""On one of them a move may call so many times as many functions as on the median one; 2 is the aim.

Measured over 34 draws: most are between 0.4 and 1.6 times the median one, 2 of 34 above 3, none above 3.3. Of sets of ten from
these, 2 in 100 have one above 3.5; that two sets in a row have one is chance once in 2,000 times.
"""
MOST_GROWTH_OF_DRAWS = 1.5
"""On four times as many nodes and pods of the same shapes, a move may call so many times as many functions, in the mean of
all shapes; 1 is the aim.

Of one shape it is no figure: the small cluster has 16 to 130 moves, and the draws were between 0.3 and 2.8. The geometric mean of
ten is above 1.5 once in 100 times. What grows with the square makes it 4.
"""
COST_DRAW = (300, 4_500)
"""(nodes, pods) of the draws whose CPU time is looked at."""
MEDIAN_MS, WORST_MS = 1.0, 1.5
"""Of CPU, for each move on one of them."""
REFERENCE_MS = 15.0
"""What the reference of 20,000 needs on two quiet cores of an AMD EPYC."""
_LOOKED_AT = 50
"""One pod of so many counts as a move beside the moves: a plan looks at the others as well."""
_ROUNDS = 3
_ATTEMPTS = 3
_LEAST_SECONDS = 0.02
"""What takes less at the larger size has not grown to anything; its time counts as 0."""
SEVERITIES = ("ordinary", "label per pod", "apart in namespace", "single-pod owners", "one owner")

Run = Callable[[], object]
Prepare = Callable[[], Run]
"""Makes one run, with arguments that no other run has used up."""


@dataclass(frozen=True, slots=True)
class Growth:
    """By how much more than the cluster a phase grew."""

    calls: float
    time: float

    def complaint(self) -> str | None:
        """Say what grew too fast, if something did."""
        if self.calls > MOST_CALLS:
            return f"calls grow {self.calls:.2f} times as fast as pods, {MOST_CALLS} is allowed"
        if self.time > MOST_TIME:
            return f"CPU time grows {self.time:.2f} times as fast as a linear reference, {MOST_TIME} is allowed"
        return None


def calls(run: Run) -> int:
    """Return how many functions are called, C's included."""
    counter = cProfile.Profile()
    counter.runcall(run)
    return sum(of_function.callcount for of_function in counter.getstats())


def _reference(size: int) -> Run:
    values = np.arange(size * 20)
    names = [str(number) for number in range(size)]

    def run() -> object:
        return np.sort(values[::-1])[: size // 2], {name: len(name) for name in names}

    return run


def _cpu(run: Run) -> float:
    with collector_paused():
        started = time.process_time()
        run()
        return max(time.process_time() - started, 1e-6)


def growth(small: Prepare, large: Prepare) -> Growth:
    """Return how a phase grows from one size to ``TIMES`` that size; time is the least of some attempts."""
    small()()  # what is made once for all runs is made here
    counted = calls(large()) / max(1, calls(small())) / TIMES
    least = float("inf")
    for _ in range(_ATTEMPTS):
        reference, _ = _growth_of_time(lambda: _reference(5_000), lambda: _reference(5_000 * TIMES))
        ours, seconds = _growth_of_time(small, large)
        least = min(least, ours / max(reference, 1.0) if seconds >= _LEAST_SECONDS else 0.0)
        if least <= MOST_TIME:
            break
    return Growth(counted, least)


def _growth_of_time(small: Prepare, large: Prepare) -> tuple[float, float]:
    """Return the ratio of the least CPU times of runs made in turn, and the larger of the two."""
    pairs = [(_cpu(small()), _cpu(large())) for _ in range(_ROUNDS)]
    least = min(large for _, large in pairs)
    return least / min(small for small, _ in pairs), least


def _prepared(course: Course, phase: str) -> Prepare:
    prepare, run = PHASES[phase]

    def make() -> Run:
        arguments = prepare(course)
        return lambda: run(course, *arguments)

    return make


def calls_per_move(share: float, nodes: int, *, hot: bool, replicas: int = 10) -> float:
    """Return how many functions a plan calls for each of its moves where so much is wrong."""
    snapshot = snapshot_of(
        share, nodes, hot=hot, pods_of_a_node=SMALL[1] // SMALL[0], replicas=replicas
    )
    return _calls_per_move(snapshot)


def calls_per_move_of_one(nodes: int) -> float:
    """Return the same of one owner, which wants its pods evenly on all nodes, one on each."""
    return _calls_per_move(
        snapshot_of(
            MUCH, nodes, hot=False, pods_of_a_node=1, replicas=0, constraints=("host-soft",)
        )
    )


def _calls_per_move(snapshot: Snapshot) -> float:
    problem, settings = problem_of(snapshot, lifted=True)
    plans: list[Plan] = []
    count = calls(lambda: plans.append(plan(problem, settings).plan))
    return count / max(1, len(plans[0].moves))


def _calls_of_draw(seed: int, nodes: int, pods: int, trace: Trace | None) -> float:
    """Return how many functions a plan calls for each move on the cluster of a seed."""
    snapshot = load_snapshot("-", stdin=io.BytesIO(cluster_of(seed, nodes, pods, trace)))
    problem, settings = problem_of(snapshot, lifted=True)
    plans: list[Plan] = []
    count = calls(lambda: plans.append(plan(problem, settings).plan))
    return count / (len(plans[0].moves) + pods / _LOOKED_AT)


def _ms_of_draw(seed: int, trace: Trace | None) -> float:
    """Return the milliseconds of CPU that a plan takes for each move on the cluster of a seed, on the machine of the reference."""
    nodes, pods = COST_DRAW
    snapshot = load_snapshot("-", stdin=io.BytesIO(cluster_of(seed, nodes, pods, trace)))
    problem, settings = problem_of(snapshot, lifted=True)
    plans: list[Plan] = []
    ratio = min(
        _cpu(lambda: plans.append(plan(problem, settings).plan)) / _cpu(_reference(20_000))
        for _ in range(_ROUNDS)
    )
    return ratio * REFERENCE_MS / (len(plans[0].moves) + pods / _LOOKED_AT)


def check_cost(first: int, trace: Trace | None = None) -> int:
    """Check what a move costs on clusters drawn by seeds from ``first`` on; return how many checks failed."""
    costs = [_ms_of_draw(seed, trace) for seed in range(first, first + DRAWS)]
    failed = 0
    for kind, ms, most in (
        ("median", statistics.median(costs), MEDIAN_MS),
        ("worst", max(costs), WORST_MS),
    ):
        bad = ms > most
        verdict = f"TOO MUCH: {most} is allowed" if bad else "ok"
        print(f"{kind} of {DRAWS} draws on {COST_DRAW[0]} nodes: {ms:.2f} ms a move  {verdict}")
        failed += bad
    return failed


def check_draws(first: int, trace: Trace | None = None) -> int:
    """Check clusters that nothing can be tuned to, drawn by seeds from ``first`` on; return how many checks failed.

    ``trace``: see :func:`benchmarks.phases.families.cluster_of`.
    """
    nodes, pods = SMALL_DRAW
    seeds = range(first, first + DRAWS)
    small = [_calls_of_draw(seed, nodes, pods, trace) for seed in seeds]
    large = [_calls_of_draw(seed, TIMES * nodes, TIMES * pods, trace) for seed in seeds]
    failed = 0
    for seed, times in zip(seeds, of_median(large), strict=True):
        kind = f"draw {seed}, {family(seed).sizes}"
        failed += _exceeds(kind, "against the median draw", times, MOST_OF_DRAW)
    growth = mean_growth(small, large)
    return failed + _exceeds("all draws", "four times as large", growth, MOST_GROWTH_OF_DRAWS)


def of_median(costs: Sequence[float]) -> list[float]:
    """Return how many times the median each of ``costs`` is."""
    median = statistics.median(costs)
    return [cost / median for cost in costs]


def mean_growth(small: Sequence[float], large: Sequence[float]) -> float:
    """Return the geometric mean of ``large`` to ``small``, pair by pair."""
    return statistics.geometric_mean(
        after / before for before, after in zip(small, large, strict=True)
    )


def check_drifts() -> int:
    """Check that a move costs no more where more is wrong, nor on more nodes; return how many checks failed."""
    failed = 0
    of_small_owners = 0.0
    for kind, hot, replicas in (
        ("hot and cold nodes", True, 10),
        ("even nodes", False, 10),
        ("large owners", False, LARGE),
    ):
        usual = calls_per_move(MUCH, SMALL[0], hot=hot, replicas=replicas)
        for what, share, nodes in (
            ("three times as much wrong", 3 * MUCH, SMALL[0]),
            ("four times as many nodes", MUCH, TIMES * SMALL[0]),
        ):
            times = calls_per_move(share, nodes, hot=hot, replicas=replicas) / usual
            failed += _exceeds(kind, what, times, MOST_PER_MOVE)
        if replicas == LARGE:
            what = "ten times as many replicas"
            failed += _exceeds(kind, what, usual / of_small_owners, MOST_OF_LARGE)
        of_small_owners = usual
    times = calls_per_move_of_one(TIMES * SMALL[0]) / calls_per_move_of_one(SMALL[0])
    return failed + _exceeds("one owner", "four times as many nodes", times, MOST_OF_ONE)


def _exceeds(kind: str, what: str, times: float, most: float) -> bool:
    """Print by how much more a move calls; return whether that is too much."""
    bad = times > most
    verdict = f"TOO MUCH: {most} times is allowed" if bad else "ok"
    print(f"{kind:20} {what:26} calls per move {times:5.2f}  {verdict}", flush=True)
    return bad


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all phases over the severities; print the exponents; return 1 if something grows too fast."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.phases.check")
    parser.add_argument(
        "--first", type=int, help="seed of the first random shape; another one each time without it"
    )
    parser.add_argument("--draws-only", action="store_true", help="only the random shapes")
    parser.add_argument(
        "--recorded",
        type=Path,
        help="draw nodes, requests and replicas of the random shapes from the recorded clusters in this folder",
    )
    chosen = parser.parse_args(arguments)
    first = random.SystemRandom().randrange(10**6) if chosen.first is None else chosen.first
    trace = None if chosen.recorded is None else trace_of(chosen.recorded)
    failed = check_draws(first, trace) + check_cost(first, trace)
    if chosen.draws_only:
        return min(1, failed)
    failed += check_drifts()
    for severity in SEVERITIES:
        small, large = (
            Course(shape(severity, SMALL[0] * times, SMALL[1] * times)) for times in (1, TIMES)
        )
        for phase in PHASES:
            exponents = growth(_prepared(small, phase), _prepared(large, phase))
            complaint = exponents.complaint()
            failed += complaint is not None
            verdict = "ok" if complaint is None else f"TOO FAST: {complaint}"
            print(
                f"{severity:20} {phase:8} calls {exponents.calls:5.2f} time {exponents.time:5.2f}  {verdict}",
                flush=True,
            )
    return min(1, failed)


if __name__ == "__main__":
    sys.exit(main())
