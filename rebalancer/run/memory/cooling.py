"""The owners in a cool-down, until when and why; as text for the report, and counted for metrics."""

from __future__ import annotations

from collections import Counter

from rebalancer.plan.totals import Remembered
from rebalancer.run.memory.document import FORGOTTEN_AFTER, Document, OwnerMemory, TermMemory
from rebalancer.run.memory.remember import FIRST_COOL_DOWN, STRIKES
from rebalancer.wire.times import rfc3339

# An end further away than any cool-down lasts was written under a wrong clock.
_MAX_COOL_DOWN = FIRST_COOL_DOWN * 2 ** (STRIKES - 2)


def is_resting(term: TermMemory, now: float) -> bool:
    """Return whether an owner is in a cool-down for a term, or given up."""
    if term.given_up:
        return now - term.last <= FORGOTTEN_AFTER
    return now < term.until <= now + _MAX_COOL_DOWN


def state_words(term: TermMemory, now: float) -> str:
    """Return a phrase on what happens next with a term."""
    if not is_resting(term, now):
        return "tried again when it pays" if term.strikes else "fine"
    if term.given_up:
        until = rfc3339(term.last + FORGOTTEN_AFTER)
        return f"given up until its spec or the zones change, or {until}: {term.given_up}"
    return f"cools down until {rfc3339(term.until)}: {term.why}"


def describe_cooling(document: Document, now: float) -> dict[str, str]:
    """Return owner -> why it is not moved for now, and until when."""
    reasons: dict[str, str] = {}
    for ref, owner in document.owners.items():
        texts = [
            f"{name} {state_words(term, now)}"
            for name, term in owner.terms.items()
            if is_resting(term, now)
        ]
        if texts:
            reasons[ref] = "; ".join(texts)
    return reasons


def summarize_memory(document: Document, now: float) -> Remembered:
    """Return the parts of the document that metrics show."""
    targets = {
        ref: frozenset(target for term in owner.terms.values() for _, target in term.trail)
        for ref, owner in document.owners.items()
    }
    return Remembered(Counter(_state(owner, now) for owner in document.owners.values()), targets)


def _state(owner: OwnerMemory, now: float) -> str:
    terms = [term for term in owner.terms.values() if is_resting(term, now)]
    if not terms:
        return "fine"
    return "given-up" if any(term.given_up for term in terms) else "resting"
