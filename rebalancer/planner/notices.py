"""What the reader of a plan must know: rules kept from their work, conflicting budgets, unreadable objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rebalancer.cost.term import Noting
from rebalancer.planner.draft import Draft
from rebalancer.planner.safety import lost_pods
from rebalancer.snapshot.model import Snapshot


def notices(draft: Draft) -> tuple[str, ...]:
    """Return a line for each."""
    return (
        *_of_terms(draft),
        *_conflicts(draft),
        *_unreadable(draft.snapshot),
        *filter(None, [draft.scheduler.profile.note]),
    )


def _of_terms(draft: Draft) -> list[str]:
    return [
        f"{weighted.strategy}: {note}"
        for weighted in draft.terms
        if isinstance(weighted.term, Noting)
        for note in weighted.term.notes()
    ]


def _conflicts(draft: Draft) -> list[str]:
    snapshot = draft.snapshot
    present = np.bincount(snapshot.pods.cls, minlength=len(snapshot.classes)) > 0
    lines = {
        f"misconfigured: {text} (pods of {_owner_ref(snapshot, cls)})"
        for cls, text in draft.problem.disruptions.conflicts()
        if present[cls]
    }
    return sorted(lines)


def _unreadable(snapshot: Snapshot) -> list[str]:
    lines = [
        f"node {snapshot.nodes.names[n]} is unreadable ({why}): taken as without room"
        for n, why in sorted(snapshot.nodes.unreadable.items())
    ]
    pods = {
        f"pods of {_owner_ref(snapshot, index)} are unreadable ({cls.unreadable}): not moved"
        for index, cls in enumerate(snapshot.classes)
        if cls.unreadable is not None
    }
    lines += sorted(pods)
    if lost := lost_pods(snapshot):
        lines.append(f"{lost} (they count nowhere, and stay)")
    if snapshot.missing:
        lines.append(f"not in the snapshot: {_by_reason(snapshot.missing)}")
    return lines


def _owner_ref(snapshot: Snapshot, cls: int) -> str:
    owner = snapshot.owner_of(cls)
    return owner.ref if owner is not None else "no controller"


def _by_reason(missing: Sequence[str]) -> str:
    """Return ``Job, Service (none in the file)`` for texts like ``Job: none in the file``."""
    kinds: dict[str, list[str]] = {}
    for text in missing:
        kind, _, why = text.partition(": ")
        kinds.setdefault(why, []).append(kind)
    return "; ".join(
        f"{', '.join(of)} ({why})" if why else ", ".join(of) for why, of in kinds.items()
    )
