"""Streaks from run to run: limited in size, dropped after a day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from rebalancer.cost.streaks import Streaks
from rebalancer.plan.outcome import Outcome
from rebalancer.run.memory.document import Document, StreakMemory

FORGOTTEN_AFTER = 86_400
"""Seconds after which runs are not in a row any more."""

_AHEAD = 300
# What is as it was is written again before it is forgotten, but not by every run.
_WRITTEN_AGAIN_AFTER = FORGOTTEN_AFTER / 4
_MAX_BYTES = 150_000
"""Bytes of one strategy's JSON: a few thousand over-used nodes."""


def recall_streaks(document: Document) -> dict[str, Streaks]:
    """Return strategy -> streaks of earlier runs."""
    return {name: Streaks(seen.at, seen.runs) for name, seen in document.streaks.items()}


def without_old(document: Document, now: float) -> Document:
    """Return the document without streaks that are over a day old, or from the future."""
    kept = {
        name: seen
        for name, seen in document.streaks.items()
        if seen.at - _AHEAD <= now <= seen.at + FORGOTTEN_AFTER
    }
    return msgspec.structs.replace(document, streaks=kept)


def with_streaks(
    document: Document, streaks: Mapping[str, Streaks], outcomes: Iterable[Outcome], now: float
) -> Document:
    """Return the document with the streaks of a run (per strategy), given the outcomes of its moves.

    A pod that has moved no longer uses resources where they were measured. So after a move only measurements taken
    after ``now`` count, and never the measurement on which the move was based, whatever clock it has.
    """
    moved = any(outcome.status.may_have_evicted for outcome in outcomes)
    kept = dict(document.streaks)
    for name, seen in streaks.items():
        known = kept.get(name, StreakMemory())
        at = max(known.at, seen.at + 1.0, now) if moved else max(known.at, seen.at)
        # Another run may have seen something newer meanwhile.
        runs = _keep_longest(seen.runs) if seen.at >= known.at else known.runs
        if runs != known.runs or moved or (runs and at > known.at + _WRITTEN_AGAIN_AFTER):
            kept[name] = StreakMemory(at, runs)
    return msgspec.structs.replace(document, streaks=dict(sorted(kept.items())))


def _keep_longest(runs: Mapping[str, int]) -> dict[str, int]:
    """Return the nodes that fit into the limit, longest streaks first, ordered by name."""
    kept: dict[str, int] = {}
    room = _MAX_BYTES
    for name, count in sorted(runs.items(), key=lambda item: (-item[1], item[0])):
        room -= len(name) + len(str(count)) + 4
        if room < 0:
            break
        kept[name] = count
    return dict(sorted(kept.items()))
