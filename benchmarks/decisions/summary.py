"""Many sets of duels, of other sizes and seeds, in one table: the figures that have goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.decisions.instance import hard, soft
from benchmarks.decisions.tables import NAMES, table, worse

Result = Mapping[str, Any]

_HEAD = (
    "clusters",
    "contender",
    "evictions / optimum: median, worst",
    "evictions / peer's: median, worst",
    "/ allowed: worst",
    "left hard, soft",
    "sd cpu / mem: mean",
    "worse than the peer on",
    "bound / optimum",
    "twice",
    "silent",
    "after silence",
    "budgets breached",
)


@dataclass(frozen=True)
class Pair:
    """A contender on one cluster."""

    result: Result
    done: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return scenario and seed."""
        plan = self.result["plan"]
        return f"{plan['scenario']}, {plan['seed']}"

    @property
    def peer(self) -> Mapping[str, Any] | None:
        """Return what the peer did on the same cluster."""
        result: Mapping[str, Any] | None = self.result["contenders"].get("peer")
        return result

    @property
    def of_optimum(self) -> float:
        """Return evictions until silence, of the proven fewest."""
        return _ratio(self.done["evictions"], self.result["optimum"]["moves"])

    @property
    def of_peer(self) -> float | None:
        """Return evictions of those of all the peer's runs."""
        return None if self.peer is None else _ratio(self.done["evictions"], _all(self.peer))

    @property
    def of_allowed(self) -> float | None:
        """Return evictions of the larger of 0.9 of the peer's and 1.1 of the fewest."""
        if self.peer is None:
            return None
        allowed = max(0.9 * _all(self.peer), 1.1 * self.result["optimum"]["moves"])
        return _ratio(self.done["evictions"], allowed)

    @property
    def end(self) -> Mapping[str, Any]:
        """Return the figures after the last run."""
        last: Mapping[str, Any] = self.done["runs"][-1]
        return last


def summary(sets: Mapping[str, Sequence[Result]]) -> str:
    """Return one row per set (its name first) and contender, and rows for all sets together."""
    rows = [row for name, results in sets.items() for row in _rows(name, results)]
    if len(sets) > 1:
        rows += _rows("**all**", [result for results in sets.values() for result in results])
    return table(_HEAD, rows)


def _rows(name: str, results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    title = f"{name} ({len(results)})"
    for key in NAMES:
        pairs = [Pair(r, r["contenders"][key]) for r in results if key in r["contenders"]]
        if pairs:
            yield (title, NAMES[key], *_row(pairs, ours="peer" not in key))
            title = ""
    bests = [result["optimum"] for result in results]
    left = f"{sum(b['hard'] for b in bests):g}, {sum(b['soft'] for b in bests):g}"
    yield ("", "optimum", *("",) * 3, left, *("",) * (len(_HEAD) - 6))


def _row(pairs: Sequence[Pair], *, ours: bool) -> Iterator[str]:
    yield _median_and_worst([(pair.of_optimum, pair.name) for pair in pairs])
    of_peer = [(pair.of_peer, pair.name) for pair in pairs if pair.of_peer is not None]
    yield _median_and_worst(of_peer) if ours else ""
    allowed = [(pair.of_allowed, pair.name) for pair in pairs if pair.of_allowed is not None]
    yield _worst(allowed) if ours else ""
    ends = [pair.end for pair in pairs]
    of_rules = [end["violations"] for end in ends]
    yield f"{sum(map(hard, of_rules)):g}, {sum(map(soft, of_rules)):g}"
    yield " / ".join(
        f"{statistics.mean(end[of] for end in ends):.3f}"
        for of in ("cpu_deviation", "memory_deviation")
    )
    losing = [pair for pair in pairs if pair.peer is not None and worse(pair.done, pair.peer)]
    yield f"{len(losing)} of {len(pairs)}" if ours else ""
    yield _bound(pairs) if ours else ""
    evictions = sum(pair.done["evictions"] for pair in pairs)
    yield f"{sum(pair.done['twice'] for pair in pairs) / max(1, evictions):.1%}"
    silent = [pair for pair in pairs if pair.done["first_silent"] is not None]
    yield f"{len(silent)} of {len(pairs)}"
    yield str(sum(pair.done["after_silence"] for pair in silent))
    yield str(sum(len(pair.done["breaches"]) for pair in pairs))


def _bound(pairs: Sequence[Pair]) -> str:
    printed = [pair.done["runs"][0]["lower_bound"] for pair in pairs]
    fewest = [pair.result["unbanded"]["moves"] for pair in pairs]
    most = max(_ratio(bound, moves) for bound, moves in zip(printed, fewest, strict=True))
    return f"{_ratio(sum(printed), sum(fewest)):.2f} in total, at most {most:.2f}"


def _all(peer: Mapping[str, Any]) -> int:
    return sum(run["evictions"] for run in peer["runs"])


def _ratio(value: float, of: float) -> float:
    return value / of if of else (1.0 if value == 0 else float("inf"))


def _median_and_worst(values: Sequence[tuple[float, str]]) -> str:
    return f"{statistics.median(v for v, _ in values):.2f}, {_worst(values)}" if values else ""


def _worst(values: Sequence[tuple[float, str]]) -> str:
    if not values:
        return ""
    worst, where = max(values)
    return f"{worst:.2f} ({where})"
