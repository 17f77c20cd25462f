"""The explanation of a pod that is gone because a run has moved it: what, why, whether it was right, how to stop it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rebalancer.base.plain_text import WIDTH, count, lines_of
from rebalancer.explain.workload import WorkloadFacts
from rebalancer.kube.events import MoveEvent
from rebalancer.run.memory.document import ActingRun, Document, MoveRecord
from rebalancer.wire.times import rfc3339


@dataclass(frozen=True, slots=True)
class MovedPod:
    """What is known of a pod that a run has moved."""

    ref: str
    """``namespace/name``."""
    at: float
    """Unix seconds."""
    by: str
    """Name of the process, or of its pod; empty if it is not known."""
    owner: str
    """``Kind/namespace/name``; empty if it is not known."""
    why: str
    record: MoveRecord | None
    """Of the memory; None where only an event is known."""


def find_moved(ref: str, document: Document, events: Iterable[MoveEvent]) -> MovedPod | None:
    """Return what memory and events know of the last move of the pod ``[NAMESPACE/]NAME``; None if that is nothing."""
    recorded = _last_record(ref, document)
    event = max(events, key=lambda event: (event.at, event.pod), default=None)
    if recorded is None:
        if event is None:
            return None
        return MovedPod(event.pod, event.at, event.by, event.owner, event.note, None)
    run, move = recorded
    at, by = (run.at, run.by) if event is None else (event.at, run.by or event.by)
    return MovedPod(move.pod, at, by, move.owner, f"{move.strategy}: {move.reason}", move)


def _last_record(ref: str, document: Document) -> tuple[ActingRun, MoveRecord] | None:
    for run in reversed(document.history):
        for move in run.moves:
            named = move.pod == ref or ("/" not in ref and move.pod.endswith(f"/{ref}"))
            if named and move.moved:
                return run, move
    return None


def gone_data(moved: MovedPod, facts: WorkloadFacts | None) -> dict[str, Any]:
    """Return the fields of ``kind: PodExplanation`` for a pod that is gone."""
    record = moved.record
    return {
        "pod": moved.ref,
        "gone": True,
        "movedAt": rfc3339(moved.at),
        "by": moved.by or None,
        "owner": moved.owner or None,
        "reason": moved.why,
        "from": None if record is None else record.node,
        "landed": None if record is None else record.landed or None,
        "predicted": None if record is None else record.predicted,
        "rulesUnmet": None if facts is None else _count_unmet(facts),
    }


def format_gone(moved: MovedPod, facts: WorkloadFacts | None) -> str:
    """Return the explanation as text."""
    sentences = (_what(moved), _why(moved), _was_right(moved, facts), _stop(moved))
    return "\n".join(line for text in sentences for line in lines_of(text, "", "  ", WIDTH)) + "\n"


def _what(moved: MovedPod) -> str:
    by = f" by {moved.by}" if moved.by else ""
    text = f"{moved.ref} is gone: a run of kube-rebalancer{by} moved it at {rfc3339(moved.at)}"
    record = moved.record
    if record is None:
        return f"{text}."
    text += f" off {record.node}"
    if not record.landed:
        return f"{text}; where its replacement landed was not seen."
    how = "as predicted" if record.predicted else "not where it was predicted"
    return f"{text}; its replacement landed on {record.landed}, {how}."


def _why(moved: MovedPod) -> str:
    return f"Why: {moved.why}."


def _was_right(moved: MovedPod, facts: WorkloadFacts | None) -> str:
    if facts is None:
        owner = moved.owner or "its workload"
        return f"Was it right: not judged, since {owner} has no pods now."
    unmet = _count_unmet(facts)
    record = moved.record
    off = record is not None and record.landed and not record.predicted
    if not facts.rules:
        text = f"no rule concerns {moved.owner} now"
    elif not unmet:
        text = f"no rule of {moved.owner} is unmet now"
    else:
        moves = sum(pod.move is not None for pod in facts.pods)
        further = (
            f"the plan of now moves {count(moves, 'pod')} of it" if moves else "no move helps now"
        )
        text = f"{unmet:,} of the {count(len(facts.rules), 'rule')} of {moved.owner} are unmet now, and {further}"
    verdict = "not as hoped: the replacement landed elsewhere; " if off else ""
    return f"Was it right: {verdict}{text}."


def _count_unmet(facts: WorkloadFacts) -> int:
    return sum(bool(rule.now.unmet) or rule.now.unsatisfiable is not None for rule in facts.rules)


def _stop(moved: MovedPod) -> str:
    namespace = moved.ref.partition("/")[0]
    kind, _, name = moved.owner.partition("/")
    what = f"{kind.lower()} {name.rpartition('/')[2]}" if moved.owner else "WORKLOAD"
    return (
        f"How to stop it: kubectl --namespace {namespace} annotate {what} rebalancer/evict=false keeps the pods of this"
        " workload where they are; rebalancer history shows all moves."
    )
