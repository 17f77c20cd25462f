"""What is known of single pods: whether they may move, what they break, what the plan does with them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rebalancer.explain.watched import Breach, Watched
from rebalancer.plan.outcome import Outcome
from rebalancer.plan.plan import Code, Skip
from rebalancer.report.as_json import move_data, plain
from rebalancer.report.model import RunReport
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.model import PodFlag


class Verdict(enum.StrEnum):
    """What the plan does with a pod."""

    MOVES = "moves"
    STAYS = "stays"
    """Some rule would rather see it elsewhere, and a reason keeps it."""
    MENDED = "mended"
    """It breaks a rule now, and need not move for it: what else is planned mends it."""
    FINE = "fine"
    """No rule wants it elsewhere."""
    NOTHING = "nothing"
    """It has no node yet, or is on its way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """One pod, as the plan sees it."""

    namespace: str
    name: str
    node: str | None
    owner: str | None
    """``Kind/namespace/name``."""
    ready: bool
    terminating: bool
    protections: Mapping[str, str]
    """Name -> text."""
    forbidden: tuple[Code, str] | None
    """Why a PodDisruptionBudget lets nobody evict it now."""
    breaches: tuple[Breach, ...]
    verdict: Verdict
    code: str | None
    """Reason code, of a pod that stays."""
    message: str
    """Why it stays, or why its move is not made."""
    move: Outcome | None

    @property
    def ref(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def may_move(self) -> bool:
        """Whether nothing forbids it, be it for good or for now."""
        return not self.protections and self.forbidden is None


def facts_of(report: RunReport, watched: Watched, pods: Iterable[int]) -> list[PodFacts]:
    """Return the facts of some pods, given as rows of the snapshot, in the same order."""
    rows = list(pods)
    snapshot = report.snapshot
    refs = {snapshot.pod_ref(pod) for pod in rows}
    moves = {one.move.ref: one for one in report.outcomes if one.move.ref in refs}
    skips = {ref: s for s in report.plan.skips if (ref := f"{s.namespace}/{s.pod}") in refs}
    return [_facts(report, watched, pod, moves, skips) for pod in rows]


def _facts(
    report: RunReport,
    watched: Watched,
    pod: int,
    moves: Mapping[str, Outcome],
    skips: Mapping[str, Skip],
) -> PodFacts:
    snapshot, pods = report.snapshot, report.snapshot.pods
    cls, node, flags = int(pods.cls[pod]), int(pods.node[pod]), int(pods.flags[pod])
    of_class = snapshot.classes[cls]
    breaches = tuple(watched.breaches((cls, node))) if _stands(report, pod) else ()
    ref = snapshot.pod_ref(pod)
    move, skip = moves.get(ref), skips.get(ref)
    protections = watched.planner.staying.protections(pod)
    lasts = any(breach.lasts for breach in breaches)
    verdict, message = Verdict.FINE, "no rule wants it elsewhere"
    if move is not None:
        verdict, message = Verdict.MOVES, move.message
    elif skip is not None:
        verdict, message = Verdict.STAYS, skip.message
    elif not _stands(report, pod):
        verdict, message = Verdict.NOTHING, "; ".join(protections.values())
    elif lasts and any(one.move.observed for one in report.outcomes):
        # What is asked last is the state with them made; those that are carried out were found before.
        verdict = Verdict.MENDED
        message = "the moves of others mend it, until moves that are only observed were made"
    elif lasts:
        verdict, message = Verdict.STAYS, "no move of it was found to be worth a look"
    elif breaches:
        verdict, message = Verdict.MENDED, "the moves of others mend it"
    return PodFacts(
        namespace=of_class.namespace,
        name=pods.name[pod],
        node=snapshot.nodes.names[node] if node >= 0 else None,
        owner=snapshot.owners[of_class.owner].ref if of_class.owner >= 0 else None,
        ready=bool(flags & PodFlag.READY),
        terminating=bool(flags & PodFlag.TERMINATING),
        protections=protections,
        forbidden=watched.planner.staying.forbidden(cls),
        breaches=breaches,
        verdict=verdict,
        code=skip.code.value if skip is not None and move is None else None,
        message=message,
        move=move,
    )


def _stands(report: RunReport, pod: int) -> bool:
    pods = report.snapshot.pods
    return bool(pods.node[pod] >= 0 and not pods.flags[pod] & PodFlag.TERMINATING)


def pods_of_classes(report: RunReport, watched: Watched) -> list[int]:
    """Return all pods, as rows of the snapshot, of the classes that were watched."""
    mine: Bools = np.isin(report.snapshot.pods.cls, watched.classes)
    return [int(pod) for pod in np.flatnonzero(mine)]


def pod_data(facts: PodFacts) -> dict[str, Any]:
    """Return the facts of a pod as the JSON of explanations has them."""
    return {
        "namespace": facts.namespace,
        "pod": facts.name,
        "node": facts.node,
        "owner": facts.owner,
        "ready": facts.ready,
        "terminating": facts.terminating,
        **standing_data(facts),
    }


def standing_data(facts: PodFacts) -> dict[str, Any]:
    """Return what holds a pod, what it breaks, and what the plan does with it."""
    held: list[dict[str, Any]] = [
        {"code": Code.PROTECTED.value, "protection": name, "message": text}
        for name, text in facts.protections.items()
    ]
    if facts.forbidden is not None:
        code, text = facts.forbidden
        held.append({"code": code.value, "protection": None, "message": text})
    return {
        "mayMove": facts.may_move,
        "forbiddenBy": held,
        "breaks": [breach_data(breach) for breach in facts.breaches],
        "plan": {
            "verdict": facts.verdict.value,
            "code": facts.code,
            "message": facts.message,
            "move": None if facts.move is None else move_data(facts.move),
        },
    }


def breach_data(breach: Breach) -> dict[str, Any]:
    """Return a broken rule as data."""
    return {
        "strategy": breach.strategy,
        "entry": breach.entry.name.lower(),
        "gain": plain(breach.gain),
        "rule": breach.text,
        "observed": breach.observed,
        "waits": breach.waits,
        "lasts": breach.lasts,
    }
