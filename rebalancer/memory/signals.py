"""What strategies wait to see in several runs in a row: from run to run, bounded, forgotten after a day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from rebalancer.cost.signals import Signals
from rebalancer.evictor.outcomes import Outcome
from rebalancer.memory.document import Document, SignalMemory

FORGOTTEN_AFTER = 86_400
"""Seconds after which runs are not in a row any more."""

_AHEAD = 300
# What is as it was is written again before it is forgotten, but not by every run.
_WRITTEN_AGAIN_AFTER = FORGOTTEN_AFTER / 4
_LARGEST = 150_000
"""Bytes of one strategy's JSON: a few thousand over-used nodes."""


def remembered(document: Document) -> dict[str, Signals]:
    """Return strategy -> what it has seen in earlier runs."""
    return {name: Signals(seen.at, seen.runs) for name, seen in document.signals.items()}


def without_old(document: Document, now: float) -> Document:
    """Return the document without what was seen over a day ago, or under a wrong clock."""
    kept = {
        name: seen
        for name, seen in document.signals.items()
        if seen.at - _AHEAD <= now <= seen.at + FORGOTTEN_AFTER
    }
    return msgspec.structs.replace(document, signals=kept)


def with_signals(
    document: Document, signals: Mapping[str, Signals], outcomes: Iterable[Outcome], now: float
) -> Document:
    """Return the document with what a run has seen (strategy -> signals), and what came of its moves.

    Pods that went use nothing any more where they were measured, and will where they went: once some have,
    only what is measured from ``now`` on counts, and never the measurement that they went by, whosever clock
    it was taken under.
    """
    moved = any(outcome.status.may_have_evicted for outcome in outcomes)
    kept = dict(document.signals)
    for name, seen in signals.items():
        known = kept.get(name, SignalMemory())
        at = max(known.at, seen.at + 1.0, now) if moved else max(known.at, seen.at)
        # Another run may have seen something newer meanwhile.
        runs = _bounded(seen.runs) if seen.at >= known.at else known.runs
        if runs != known.runs or moved or (runs and at > known.at + _WRITTEN_AGAIN_AFTER):
            kept[name] = SignalMemory(at, runs)
    return msgspec.structs.replace(document, signals=dict(sorted(kept.items())))


def _bounded(runs: Mapping[str, int]) -> dict[str, int]:
    """Return the nodes that fit, those seen for longest first, in the order of their names."""
    kept: dict[str, int] = {}
    room = _LARGEST
    for name, count in sorted(runs.items(), key=lambda item: (-item[1], item[0])):
        room -= len(name) + len(str(count)) + 4
        if room < 0:
            break
        kept[name] = count
    return dict(sorted(kept.items()))
