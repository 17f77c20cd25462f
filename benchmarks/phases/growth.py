"""`python -m benchmarks.phases.growth`: how each phase grows with the cluster, as tables and a chart.

CPU seconds, the least of several runs. The exponent is the slope of a line through log(seconds) over
log(pods): 1 is linear, 2 quadratic.
"""

from __future__ import annotations

import argparse
import gc
import math
import signal
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.phases.chart import chart
from benchmarks.phases.phases import PHASES, Course
from benchmarks.phases.shapes import SEVERITIES, SIZES, shape
from rebalancer.base.environment import collector_paused

_CHART = Path(__file__).parent / "growth.svg"
_PATIENCE = 60
"""Seconds after which a phase is given up; it counts as infinite."""

Size = tuple[int, int]
Measured = dict[str, list[float]]
"""Phase -> one number per size."""


@contextmanager
def _patience(seconds: int) -> Iterator[None]:
    def over(*_: object) -> None:
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def cpu(run: Callable[[], object]) -> float:
    """Return the CPU seconds of one run, infinite if it takes too long.

    With the collector of cycles held back, as a run of ours does: it looks at all objects again as their number
    grows, which made an exponent of 1.3 out of 1.0.
    """
    gc.collect()
    with collector_paused():
        started = time.process_time()
        try:
            with _patience(_PATIENCE):
                run()
        except TimeoutError:
            return math.inf
        return time.process_time() - started


def peak(run: Callable[[], object]) -> float:
    """Return the most MB that a run holds beyond what was held before."""
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def measure(
    severity: str, sizes: Sequence[Size], rounds: int, how: Callable[[Callable[[], object]], float]
) -> Measured:
    """Return what ``how`` says of each phase at each size, the least of ``rounds`` runs."""
    seconds: Measured = {phase: [] for phase in PHASES}
    for size in sizes:
        course = Course(shape(severity, *size))
        for phase, (prepare, run) in PHASES.items():
            if seconds[phase] and math.isinf(seconds[phase][-1]):
                seconds[phase].append(math.inf)
                continue
            if phase == "report" and math.isinf(seconds["plan"][-1]):
                seconds[phase].append(math.nan)
                continue
            least = math.inf
            for _ in range(rounds):
                arguments = prepare(course)
                least = min(least, how(lambda: run(course, *arguments)))  # noqa: B023  # run at once
            seconds[phase].append(least)
    return seconds


def exponent(pods: Sequence[int], values: Sequence[float]) -> float:
    """Return the slope of the line through the logarithms by least squares; infinite if a value is."""
    if any(math.isinf(value) for value in values):
        return math.inf
    x = [math.log(number) for number in pods]
    y = [math.log(max(value, 1e-6)) for value in values]
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True))
    return over / sum((a - middle_x) ** 2 for a in x)


def table(sizes: Sequence[Size], measured: Mapping[str, Sequence[float]], unit: str) -> str:
    """Return a Markdown table: a row per phase, a column per size, and the exponent."""
    heads = [f"{nodes:,} / {pods:,}" for nodes, pods in sizes]
    lines = [f"| {unit} | {' | '.join(heads)} | exponent |", "|---|" + "---|" * (len(sizes) + 1)]
    pods = [size[1] for size in sizes]
    for phase, values in measured.items():
        cells = [_cell(value) for value in values]
        lines.append(f"| {phase} | {' | '.join(cells)} | {exponent(pods, values):.2f} |")
    return "\n".join(lines)


def _cell(value: float) -> str:
    if math.isinf(value):
        return f"over {_PATIENCE}"
    return "-" if math.isnan(value) else f"{value:.3g}"


def _severities(sizes: Sequence[Size], rounds: int) -> str:
    heads = [f"all phases at {pods:,} pods" for _, pods in sizes]
    lines = [f"| severity | {' | '.join(heads)} | worst phase | its exponent |"]
    lines.append("|---|" + "---|" * (len(sizes) + 2))
    for severity in SEVERITIES:
        measured = measure(severity, sizes, rounds, cpu)
        pods = [shape(severity, *size).pods for size in sizes]
        # A phase of a few milliseconds does not tell how it grows.
        tables = {
            phase: exponent(pods, values)
            for phase, values in measured.items()
            if not math.isnan(values[-1]) and values[-1] >= 0.02
        }
        worst = max(tables, key=lambda phase: tables[phase])
        sums = [
            _cell(sum(v[i] for v in measured.values() if not math.isnan(v[i])))
            for i in range(len(sizes))
        ]
        lines.append(f"| {severity} | {' | '.join(sums)} | {worst} | {tables[worst]:.2f} |")
        print(lines[-1], file=sys.stderr)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; write the chart beside RESULTS.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.phases.growth")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many of the four sizes")
    parser.add_argument("--skip-severities", action="store_true")
    parser.add_argument("--severity", choices=SEVERITIES, help="print the phases of this one only")
    chosen = parser.parse_args(arguments)
    sizes = SIZES[: chosen.sizes]
    if chosen.severity is not None:
        print(table(sizes, measure(chosen.severity, sizes, chosen.rounds, cpu), "CPU seconds"))
        return 0
    measured = measure("ordinary", sizes, chosen.rounds, cpu)
    print(table(sizes, measured, "CPU seconds"), end="\n\n", flush=True)
    _CHART.write_text(chart([pods for _, pods in sizes], measured), encoding="utf-8")
    memory = measure("ordinary", sizes[:3], 1, peak)
    print(table(sizes[:3], memory, "peak MB of a phase"), end="\n\n", flush=True)
    if not chosen.skip_severities:
        print(_severities(sizes[:3], 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
