"""Did it help? Nodes that took pods because others were over-used must not be over-used by them soon after.

A pod is thought to take the mean use of its class along. Where one replica does most of the work (a leader,
a hot shard), the overload follows it from node to node, each move being as predicted. Then its owner is left
alone for longer and longer, as after moves that were not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from rebalancer.cost.streaks import Streaks
from rebalancer.plan.outcome import Outcome
from rebalancer.run.memory.document import Document, OwnerMemory, TermMemory
from rebalancer.run.memory.remember import remember, struck, term_of
from rebalancer.run.memory.streaks import with_streaks
from rebalancer.snapshot.model import Snapshot

FULFILLED_AFTER = 1800
"""Seconds after a move in which the nodes that took pods have to stay well."""

_MOST = 4


def after_run(
    document: Document,
    snapshot: Snapshot,
    streaks: Mapping[str, Streaks],
    outcomes: Iterable[Outcome],
    now: float,
) -> Document:
    """Return the document after a run on ``snapshot``: what it saw (strategy -> streaks), the outcome of its moves.

    What was hoped of earlier moves is judged by what was seen, then this run's are remembered.
    """
    done = tuple(outcomes)
    judged = _changed(document, {name: _Judge(seen, now) for name, seen in streaks.items()})
    moved = remember(judged, snapshot, done, now)
    return with_streaks(_with_hopes(moved, streaks, done), streaks, done, now)


class _Judge:
    """Judges what was hoped of one strategy's moves."""

    def __init__(self, seen: Streaks, now: float) -> None:
        self._seen, self._now = seen, now

    def __call__(self, term: TermMemory) -> TermMemory:
        if not term.hopes:
            return term
        if hot := [node for node in term.hopes if node in self._seen.runs]:
            vain = term.vain + 1
            why = f"{hot[0]}, where it went, is over-used now"
            after = struck(msgspec.structs.replace(term, strikes=vain - 1), why, self._now)
            return msgspec.structs.replace(after, hopes=(), vain=vain)
        if self._now - term.last > FULFILLED_AFTER:
            return msgspec.structs.replace(term, hopes=(), vain=0)
        return term


def _changed(document: Document, judges: Mapping[str, _Judge]) -> Document:
    owners: dict[str, OwnerMemory] = {}
    for ref, owner in document.owners.items():
        terms = {
            name: judge(term) if (judge := judges.get(name.partition("/")[0])) else term
            for name, term in owner.terms.items()
        }
        owners[ref] = msgspec.structs.replace(owner, terms=terms)
    return msgspec.structs.replace(document, owners=owners)


def _with_hopes(
    document: Document, streaks: Mapping[str, Streaks], outcomes: Iterable[Outcome]
) -> Document:
    """Note which nodes took pods that were not over-used before."""
    owners = dict(document.owners)
    for outcome in outcomes:
        move, landed = outcome.move, outcome.landed
        seen = streaks.get(move.strategy)
        if seen is None or not outcome.status.is_carried_out or landed is None:
            continue
        name, owner = term_of(move), owners.get(move.owner)
        if landed in seen.runs or owner is None or name not in owner.terms:
            continue
        term = owner.terms[name]
        hopes = (*(node for node in term.hopes if node != landed), landed)[-_MOST:]
        terms = {**owner.terms, name: msgspec.structs.replace(term, hopes=hopes)}
        owners[move.owner] = msgspec.structs.replace(owner, terms=terms)
    return msgspec.structs.replace(document, owners=owners)
