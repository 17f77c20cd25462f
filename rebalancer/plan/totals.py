"""Data that metrics show beside the last report: counters over all runs, and the memory of owners."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from rebalancer.plan.plan import Outcome, Status

MAX_SERIES = 500
"""Combinations of outcome, strategy and namespace with a sum of their own."""
OTHERS = "_other"
"""In place of the namespace in the sums of all others; no namespace has an underscore in its name."""
MAX_COUNT = 1_000_000_000
"""Where a sum stays: beyond it a document could not be read again."""
RESULTS = {True: "as-predicted", False: "elsewhere", None: "unknown"}
"""Whether a replacement landed as predicted -> the name of that."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


class Totals(msgspec.Struct, frozen=True, rename="camel", omit_defaults=False):
    """Counters over all runs since the first one that was recorded."""

    runs: dict[str, Count] = {}
    """Exit code -> runs."""
    moves: tuple[tuple[str, str, str, Count], ...] = ()
    """(outcome, strategy, namespace, moves that were tried)."""
    landings: dict[str, Count] = {}
    """Whether replacements landed as predicted -> how many."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The parts of the memory of earlier runs that metrics show."""

    states: Mapping[str, int]
    """``fine``, ``resting`` or ``given-up`` -> owners."""
    targets: Mapping[str, Collection[str]]
    """Owner -> nodes to which earlier runs have moved its pods, as far as that is remembered."""


_NOT_TRIED = (Status.PLANNED, Status.OBSERVED, Status.NOT_ATTEMPTED)


def with_moves(totals: Totals, outcomes: Iterable[Outcome]) -> Totals:
    """Return the counters plus the attempted moves and the landings of the replacements."""
    tried = [one for one in outcomes if one.status not in _NOT_TRIED]
    if not tried:
        return totals
    moves = {(outcome, strategy, space): n for outcome, strategy, space, n in totals.moves}
    landings = dict.fromkeys(RESULTS.values(), 0) | totals.landings
    for one in tried:
        key = one.status.value, one.move.strategy, one.move.namespace
        if key not in moves and len(moves) >= MAX_SERIES:
            key = *key[:2], OTHERS
        moves[key] = min(moves.get(key, 0) + 1, MAX_COUNT)
        if one.status.is_carried_out and one.move.has_replacement:
            result = RESULTS[one.predicted]
            landings[result] = min(landings[result] + 1, MAX_COUNT)
    return Totals(totals.runs, tuple((*key, n) for key, n in sorted(moves.items())), landings)


def with_run(totals: Totals, exit_code: int) -> Totals:
    """Return the counters plus one run."""
    code = str(exit_code)
    runs = totals.runs | {code: min(totals.runs.get(code, 0) + 1, MAX_COUNT)}
    return Totals(dict(sorted(runs.items())), totals.moves, totals.landings)
