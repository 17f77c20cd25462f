"""The figures of all rounds as Markdown tables: what each program took, and ratios within a round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.scale import contenders, peer_log
from benchmarks.scale.measure import Measured

Taken = Mapping[str, Sequence[Measured]]
"""Contender -> its rounds, in order."""
_FIGURES: Mapping[str, Callable[[Measured], float]] = {
    "wall": lambda one: one.seconds,
    "CPU": lambda one: one.cpu,
    "memory": lambda one: one.peak_mb,
    "API server CPU": lambda one: one.server_cpu,
}


def tables(taken: Taken, limit: float) -> str:
    """Return all tables; ``limit`` is the time in seconds after which a program was stopped."""
    return "\n".join([*_programs(taken, limit), "", *_ratios(taken), "", *_phases(taken)])


def _programs(taken: Taken, limit: float) -> Iterator[str]:
    yield "| median (least) | wall s | CPU s | peak MB | API server CPU s | moves, or evictions tried |"
    yield "|---|---|---|---|---|---|"
    for name, runs in taken.items():
        if all(one.status == 0 for one in runs):
            cells = [_middle([of(one) for one in runs]) for of in _FIGURES.values()]
        else:
            worst = max(one.peak_mb for one in runs)
            ended = f"more than {limit:.0f}" if any(one.status == -9 for one in runs) else "failed"
            cells = [ended, "", f"{worst:.0f} so far", ""]
        yield f"| {name} | {' | '.join(cells)} | {_moves(name, runs[-1])} |"


def _middle(values: Sequence[float]) -> str:
    form = "{:.0f}" if min(values) >= 30 else "{:.2f}"
    return f"{form.format(statistics.median(values))} ({form.format(min(values))})"


def _moves(name: str, one: Measured) -> str:
    if name == "ours":
        return str(len(contenders.our_report(one)["moves"])) if one.status == 0 else ""
    if not name.startswith("peer"):
        return ""
    log = peer_log.parse(one.err)
    plugins = ", ".join(f"{plugin} {count}" for plugin, count in sorted(log.attempts.items()))
    tried = f"{log.tried} pods ({plugins})" if plugins else "0"
    return f"{tried}; saw {log.nodes} nodes, {log.pods} pods"


def _ratios(taken: Taken) -> Iterator[str]:
    ours = taken.get("ours", ())
    yield f"| ours / | {' | '.join(_FIGURES)} |"
    yield "|---|---|---|---|---|"
    for name, runs in taken.items():
        if name == "ours" or not ours:
            continue
        cells = []
        for figure in _FIGURES.values():
            pairs = [
                figure(mine) / figure(theirs)
                for mine, theirs in zip(ours, runs, strict=True)
                # One that was cut off would have taken longer still: the ratio is an upper bound.
                if mine.status == 0 and theirs.status in (0, -9) and figure(theirs)
            ]
            cells.append(f"{statistics.median(pairs):.3f}" if pairs else "")
        yield f"| {name} | {' | '.join(cells)} |"


def _phases(taken: Taken) -> Iterator[str]:
    reports = [
        (one, contenders.our_report(one)["timings"])
        for one in taken.get("ours", ())
        if one.status == 0
    ]
    if not reports:
        return
    yield "| ours, by phase | wall s, median (least) |"
    yield "|---|---|"
    for phase in reports[0][1]:
        yield f"| {phase} | {_middle([timings[phase] for _, timings in reports])} |"
    rest = [one.seconds - sum(timings.values()) for one, timings in reports]
    yield f"| start-up, connecting, report | {_middle(rest)} |"
