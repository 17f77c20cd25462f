"""The figures of many duels as Markdown: per scenario, and against the goals."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.decisions.instance import hard, soft
from benchmarks.decisions.rules import KINDS

Result = Mapping[str, Any]
NAMES = {
    "peer": "peer",
    "peer-soft": "peer, soft constraints too",
    "ours": "ours",
    "lifted": "ours, lifted",
    "marks": "ours, marks",
}
_SHORT = {
    "placement": "place",
    "hardSpread": "spread!",
    "requiredAntiAffinity": "apart!",
    "softSpread": "spread",
    "preferredAntiAffinity": "apart",
    "duplicates": "dup",
}


def markdown(results: Sequence[Result], *, timed: bool = True) -> str:
    """Return all tables; without times where ``timed`` is false."""
    ours = [d for r in results for k, d in r["contenders"].items() if "peer" not in k]
    commits = sorted({str(done.get("commit", "unknown")) for done in ours})
    parts = [
        f"{len(results)} clusters; ours at commit {', '.join(commits)}.",
        table(
            ("scenario, seed", *(_HEAD if timed else _HEAD[:-2])),
            (row if timed else row[:-2] for row in _rows(results)),
        ),
        table(
            ("goal", "asked", "reached", "worst"),
            (row for row in _goals(results) if timed or _WALL_TIME not in row[0]),
        ),
    ]
    return "\n\n".join(parts)


def as_line(result: Result) -> str:
    """Return what counts of one cluster as JSON."""
    plan, best = result["plan"], result["optimum"]
    ends = {name: _end(done) for name, done in result["contenders"].items()}
    fewest = {"moves": best["moves"], "hard": best["hard"], "soft": best["soft"]}
    proven = best["status"] == "proven"
    name = f"{plan['scenario']}/{plan['seed']}"
    return json.dumps(
        {"cluster": name, "contenders": ends, "optimum": fewest, "proven": proven}, sort_keys=True
    )


def _end(done: Mapping[str, Any]) -> dict[str, Any]:
    violations = done["runs"][-1]["violations"]
    return {
        "evictions": done["evictions"],
        "after_silence": done["after_silence"],
        "silent": done["first_silent"] is not None,
        "twice": done["twice"],
        "hard": hard(violations),
        "soft": soft(violations),
        "breaches": len(done["breaches"]),
    }


_WALL_TIME = "wall time / peer's"
_HEAD = (
    "contender",
    "evictions (per run)",
    "of optimum",
    "left",
    "sd cpu / mem",
    "after silence",
    "twice",
    "landed (expected)",
    "bound",
    "seconds",
    "MiB",
)


def _rows(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    for result in results:
        plan = result["plan"]
        name = f"{plan['scenario']}, {plan['seed']}"
        best = result["optimum"]
        start = result["start"]
        yield (
            name,
            "(before)",
            "",
            "",
            left(start["violations"]),
            _pair(start["deviations"]),
            *_no(6),
        )
        for key, done in result["contenders"].items():
            last = done["runs"][-1]
            each = " ".join(str(run["evictions"]) for run in done["runs"])
            yield (
                "",
                NAMES[key],
                f"{done['evictions']} ({each})",
                _ratio(done["evictions"], best["moves"]),
                left(last["violations"])
                + (f", {last['pending']} Pending" if last["pending"] else ""),
                _pair((last["cpu_deviation"], last["memory_deviation"])),
                "" if done["first_silent"] is None else str(done["after_silence"]),
                str(done["twice"]),
                _landed(done),
                _bound(done, result),
                f"{done['seconds']:.0f}",
                f"{done['peak_mib']:.0f}",
            )
        proven = (
            "" if best["status"] == "proven" else f" ({best['status']}, at least {best['bound']:g})"
        )
        free = result["unbanded"]["moves"]
        yield (
            "",
            "optimum",
            f"{best['moves']:g}{proven}; any cpu: {free:g}",
            "",
            f"hard {best['hard']:g}, soft {best['soft']:g}",
            *_no(5),
            f"{best['seconds']:.1f}",
            "",
        )


def _no(count: int) -> tuple[str, ...]:
    return ("",) * count


def left(violations: Mapping[str, float]) -> str:
    """Return what is left of each rule in a few words."""
    parts = [f"{_SHORT[kind]} {violations[kind]:g}" for kind in KINDS if violations.get(kind)]
    return ", ".join(parts) or "0"


def _pair(deviations: Sequence[float]) -> str:
    return f"{deviations[0]:.3f} / {deviations[1]:.3f}"


def _ratio(evictions: float, best: float) -> str:
    return f"{evictions / best:.2f}" if best else "-"


def _landed(done: Mapping[str, Any]) -> str:
    """Return the replacements on their most probable node, those expected there, of all."""
    of = done.get("landings") or {"moves": 0}
    return f"{of['met']} ({of['expected']:.0f}) of {of['moves']}" if of["moves"] else ""


def _bound(done: Mapping[str, Any], result: Result) -> str:
    """Return the bound that the first run printed, of the optimum that no band binds."""
    first = done["runs"][0]["lower_bound"]
    return "" if first is None else f"{first}/{result['unbanded']['moves']:g}"


# -- goals -------------------------------------------------------------------------------------------


def _goals(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    for key in ("ours", "lifted", "marks"):
        of = [(r, r["contenders"][key]) for r in results if key in r["contenders"]]
        if not of:
            continue
        name = NAMES[key]
        best = [_number(d["evictions"], r["optimum"]["moves"], r) for r, d in of]
        yield (f"{name}: evictions / optimum", "median <= 1.10, each <= 1.25", *_summary(best))
        with_peer = [(r, d, r["contenders"]["peer"]) for r, d in of if "peer" in r["contenders"]]
        ratios = [
            _number(d["evictions"], sum(x["evictions"] for x in p["runs"]), r)
            for r, d, p in with_peer
        ]
        yield f"{name}: evictions / peer's ten runs", "median <= 0.6", *_summary(ratios)
        allowed = [
            _number(
                d["evictions"],
                max(0.9 * sum(x["evictions"] for x in p["runs"]), 1.1 * r["optimum"]["moves"]),
                r,
            )
            for r, d, p in with_peer
        ]
        yield (
            f"{name}: evictions / the larger of 0.9 of the peer's and 1.1 of the optimum",
            "each <= 1",
            *_summary(allowed),
        )
        times = [_number(d["seconds"], p["seconds"], r) for r, d, p in with_peer]
        yield f"{name}: {_WALL_TIME}", "<= 0.5", *_summary(times)
        losing = [f"{_name(r)}: {text}" for r, d, p in with_peer if (text := worse(d, p))]
        yield (
            f"{name}: worse than the peer on an entry",
            "nowhere",
            str(len(losing)),
            "; ".join(losing),
        )
        # A plan that budgets cut short has a bound for its own, shorter way only.
        bounds = [(d["runs"][0]["lower_bound"], r["unbanded"]["moves"], r) for r, d in of]
        above = [_name(r) for bound, best_moves, r in bounds if bound > best_moves]
        total = _ratio(sum(b for b, _, _ in bounds), sum(m for _, m, _ in bounds))
        yield (
            f"{name}: printed bound / optimum of any cpu",
            ">= 0.9 in total, never above 1",
            total,
            "above 1: " + ", ".join(above) if above else "",
        )
        loud = [_name(r) for r, d in of if d["after_silence"] or d["first_silent"] is None]
        yield f"{name}: evictions after the first silent run", "0", str(len(loud)), ", ".join(loud)
        twice = sum(d["twice"] for _, d in of) / max(1, sum(d["evictions"] for _, d in of))
        yield f"{name}: pods moved twice", "<= 1 %", f"{twice:.1%}", ""
        landings = [d["landings"] for _, d in of if "planned" in (d.get("landings") or {})]
        if landed := sum(of_run["moves"] for of_run in landings):
            planned = sum(of_run["planned"] for of_run in landings)
            steered = sum(of_run["steered"] for of_run in landings)
            where = f"{steered} of {landed} by marks"
            yield f"{name}: landings as planned", ">= 99.5 %", f"{planned / landed:.1%}", where
        breaches = sum(len(d["breaches"]) for _, d in of)
        yield f"{name}: budgets breached", "0", str(breaches), ""


def _number(value: float, of: float, result: Result) -> tuple[float, str]:
    return (value / of if of else (1.0 if value == 0 else float("inf"))), _name(result)


def _name(result: Result) -> str:
    return f"{result['plan']['scenario']}, {result['plan']['seed']}"


def _summary(values: Iterable[tuple[float, str]]) -> tuple[str, str]:
    ordered = sorted(values)
    if not ordered:
        return "", ""
    worst, where = ordered[-1]
    return f"median {statistics.median(v for v, _ in ordered):.2f}", f"{worst:.2f} ({where})"


def worse(ours: Mapping[str, Any], peer: Mapping[str, Any]) -> str:
    """Return the entries of the end state on which ours is worse than the peer's tenth run."""
    mine, theirs = ours["runs"][-1], peer["runs"][-1]
    cells = [
        f"{_SHORT[kind]} {mine['violations'][kind]:g} to {theirs['violations'][kind]:g}"
        for kind in KINDS
        if mine["violations"][kind] > theirs["violations"][kind] + 1e-9
    ]
    if mine["pending"] > theirs["pending"]:
        cells.append(f"Pending {mine['pending']} to {theirs['pending']}")
    for name, entry in (("sd cpu", "cpu_deviation"), ("sd mem", "memory_deviation")):
        if mine[entry] > theirs[entry] + 0.005:
            cells.append(f"{name} {mine[entry]:.3f} to {theirs[entry]:.3f}")
    if cells:
        sums = [
            f"hard {hard(v):g}, soft {soft(v):g}"
            for v in (mine["violations"], theirs["violations"])
        ]
        cells.append(f"in sum {sums[0]} to {sums[1]}")
    return ", ".join(cells)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)
