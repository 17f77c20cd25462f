"""Explanations of single pods: whether they may move, which rules they violate, and the plan's decision.

A recorder keeps the candidates of all terms before and after the planner's moves.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rebalancer.base.data_text import plain_number
from rebalancer.cost.term import Candidates, Entry, Term
from rebalancer.plan.plan import Cause, Method, Move, Outcome, Skip
from rebalancer.planner.draft import Draft
from rebalancer.planner.gangs import unit_of
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.refusal import ShownRefusal, protection_code
from rebalancer.planner.rendering import Chosen
from rebalancer.report.as_json import move_data
from rebalancer.report.document import Block
from rebalancer.report.model import RunReport
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.in_flight import pods_asked_for
from rebalancer.snapshot.model import PodClass, PodFlag, Snapshot
from rebalancer.snapshot.protect import find_done
from rebalancer.wire.objects import EvictionResponder

_NOT_DONE = "its controller is not done with it, or something may still read what it has left"
_NOT_ASKED = "no strategy asks for it: its age, reason or exit code is another"


class PodDecision(enum.StrEnum):
    """The plan's decision on a pod."""

    MOVES = "moves"
    STAYS = "stays"
    """A rule asks for a move, but a reason prevents it."""
    FIXED = "mended"
    """It breaks a rule now, but other moves of the plan fix it."""
    FINE = "fine"
    """No rule asks for a move."""
    ROOM = "room"
    """It has no node yet, and moves make room for it."""
    NOTHING = "nothing"
    """It has no node yet, or is terminating."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """The explanation of one pod."""

    namespace: str
    name: str
    node: str | None
    owner: str | None
    """The owner as ``Kind/namespace/name``."""
    ready: bool
    terminating: bool
    protections: Mapping[str, str]
    """Name of a protection -> text."""
    forbidden: ShownRefusal | None
    """The PodDisruptionBudget that forbids its eviction now."""
    breaches: tuple[Breach, ...]
    decision: PodDecision
    code: str | None
    """ShownRefusal code of a pod that stays."""
    message: str
    """Why it is not moved, or why its move is not executed."""
    move: Outcome | None
    responders: tuple[EvictionResponder, ...] = ()
    """The components that end it after an EvictionRequest, in their order."""
    asked: bool = False
    """Whether runs create an EvictionRequest for it, instead of evicting it."""
    room: tuple[Outcome, ...] = ()
    """The moves that make room for it, in order."""

    @property
    def ref(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def may_move(self) -> bool:
        """Whether no protection and no PodDisruptionBudget forbids its eviction."""
        return not self.protections and self.forbidden is None


def facts_of(report: RunReport, recorder: Recorder, pods: Iterable[int]) -> list[PodFacts]:
    """Return the explanation of each pod in ``pods`` (rows of the snapshot), in the same order."""
    rows = list(pods)
    snapshot = report.snapshot
    refs = {snapshot.pod_ref(pod) for pod in rows}
    moves = {one.move.ref: one for one in report.outcomes if one.move.ref in refs}
    skips = {ref: s for s in report.plan.skips if (ref := f"{s.namespace}/{s.pod}") in refs}
    return [_facts(report, recorder, pod, moves, skips) for pod in rows]


def _facts(
    report: RunReport,
    recorder: Recorder,
    pod: int,
    moves: Mapping[str, Outcome],
    skips: Mapping[str, Skip],
) -> PodFacts:
    snapshot, pods = report.snapshot, report.snapshot.pods
    forbidden = recorder.draft.forbidden(pod)
    cls, node, flags = int(pods.cls[pod]), int(pods.node[pod]), int(pods.flags[pod])
    owner = snapshot.owner_of(cls)
    breaches = tuple(recorder.breaches((cls, node), pod)) if _is_running(report, pod) else ()
    ref = snapshot.pod_ref(pod)
    move, skip = moves.get(ref), skips.get(ref)
    protections = recorder.draft.protection_texts(pod)
    lasts = any(breach.lasts for breach in breaches)
    decision, message = PodDecision.FINE, "no rule asks for a move"
    room = _room_of(report, pod) if node < 0 else ()
    if room:
        decision, message = PodDecision.ROOM, room[-1].move.reason.partition("; ")[0]
    elif move is not None:
        decision, message = PodDecision.MOVES, move.message
    elif skip is not None:
        decision, message = PodDecision.STAYS, skip.message
    elif not _is_running(report, pod):
        decision, message = PodDecision.NOTHING, "; ".join(protections.values())
    elif lasts and any(one.move.observed for one in report.outcomes):
        # Observed moves are planned after all others, so the last state includes them.
        decision = PodDecision.FIXED
        message = "the moves of others fix it, but not together with moves that are only observed"
    elif lasts:
        decision, message = PodDecision.STAYS, "none of its moves was evaluated"
    elif breaches:
        decision, message = PodDecision.FIXED, "the moves of others fix it"
    return PodFacts(
        namespace=snapshot.classes[cls].namespace,
        name=pods.name[pod],
        node=snapshot.nodes.names[node] if node >= 0 else None,
        owner=owner.ref if owner is not None else None,
        ready=bool(flags & PodFlag.READY),
        terminating=bool(flags & PodFlag.TERMINATING) and pod not in pods_asked_for(snapshot),
        protections=protections,
        forbidden=None if forbidden is None else forbidden.shown(snapshot),
        breaches=breaches,
        decision=decision,
        code=skip.code.value if skip is not None and move is None else None,
        message=message,
        move=move,
        responders=_responders(snapshot.classes[cls]),
        asked=snapshot.method_of(cls, together=False) is Method.REQUEST,
        room=room,
    )


def _responders(of_class: PodClass) -> tuple[EvictionResponder, ...]:
    named = of_class.spec.eviction_responders or ()
    return tuple(sorted(named, key=lambda one: (-(one.priority or 0), one.name)))


def _room_of(report: RunReport, pod: int) -> tuple[Outcome, ...]:
    """Return the moves that make room for a pod, or for the gang that it is of."""
    snapshot = report.snapshot
    cls = snapshot.classes[snapshot.pods.cls[pod]]
    named = {snapshot.pods.uid[pod], *([unit_of((cls.namespace, cls.gang))] if cls.gang else [])}
    return tuple(one for one in report.outcomes if not named.isdisjoint(_rooms_by(one.move)))


def _rooms_by(move: Move) -> tuple[str, ...]:
    """Return for what a move makes room: the uid of the pod and the name of its gang's moves."""
    return (move.makes_way_for, move.unit) if move.room is not None else ()


def _is_running(report: RunReport, pod: int) -> bool:
    pods = report.snapshot.pods
    return bool(pods.node[pod] >= 0 and not pods.flags[pod] & PodFlag.TERMINATING)


def pods_of_classes(report: RunReport, recorder: Recorder) -> list[int]:
    """Return the rows of all pods of the recorded classes."""
    members: Bools = np.isin(report.snapshot.pods.cls, recorder.classes)
    return [int(pod) for pod in np.flatnonzero(members)]


def pod_data(facts: PodFacts) -> dict[str, Any]:
    """Return the explanation of a pod as plain data."""
    return {
        "namespace": facts.namespace,
        "pod": facts.name,
        "node": facts.node,
        "owner": facts.owner,
        "ready": facts.ready,
        "terminating": facts.terminating,
        **decision_data(facts),
    }


def decision_data(facts: PodFacts) -> dict[str, Any]:
    """Return what forbids a pod's eviction, the rules it violates, and the plan's decision, as plain data."""
    forbidden: list[dict[str, Any]] = [
        {"code": protection_code([name]).value, "protection": name, "message": text}
        for name, text in facts.protections.items()
    ]
    if facts.forbidden is not None:
        code, text = facts.forbidden.code.value, facts.forbidden.message
        forbidden.append({"code": code, "protection": None, "message": text})
    return {
        "mayMove": facts.may_move,
        "forbiddenBy": forbidden,
        "responders": [{"name": one.name, "priority": one.priority} for one in facts.responders],
        "breaks": [breach_data(breach) for breach in facts.breaches],
        "plan": {
            "verdict": facts.decision.value,
            "code": facts.code,
            "message": facts.message,
            "move": None if facts.move is None else move_data(facts.move),
            "roomBy": [move_data(one) for one in facts.room],
        },
    }


def breach_data(breach: Breach) -> dict[str, Any]:
    """Return a violated rule as plain data."""
    return {
        "strategy": breach.strategy,
        "entry": breach.entry.name.lower(),
        "gain": plain_number(breach.gain),
        "rule": breach.text,
        "observed": breach.observed,
        "waits": breach.waits,
        "lasts": breach.lasts,
    }


def describe_ended(report: RunReport, ended: Snapshot, pod: int) -> dict[str, Any]:
    """Return the explanation of a finished pod as plain data; ``pod`` is a row of ``ended``."""
    pods, cls = ended.pods, int(ended.pods.cls[pod])
    node, owner, state = int(pods.node[pod]), ended.owner_of(cls), pods.states[int(pods.state[pod])]
    uid, ref = pods.uid[pod], ended.pod_ref(pod)
    move = next((one for one in report.outcomes if one.move.uid == uid), None)
    skip = next((s for s in report.plan.skips if f"{s.namespace}/{s.pod}" == ref), None)
    if move is not None:
        message = move.message
    elif skip is not None:
        message = skip.message
    else:
        done = bool(find_done(ended, report.loaded.policy.protect)[pod])
        message = _NOT_ASKED if done else _NOT_DONE
    return {
        "namespace": ended.classes[cls].namespace,
        "pod": pods.name[pod],
        "node": ended.nodes.names[node] if node >= 0 else None,
        "owner": None if owner is None else owner.ref,
        "phase": state.phase,
        "reasons": list(dict.fromkeys(filter(None, (state.reason, *state.reasons(init=True))))),
        "plan": {
            "verdict": "stays" if move is None else "moves",
            "code": skip.code.value if skip is not None and move is None else None,
            "message": message,
            "move": None if move is None else move_data(move),
        },
    }


def format_ended(data: dict[str, Any], move: Outcome | None) -> list[Block]:
    """Return the explanation of a finished pod for people."""
    why = f" ({', '.join(data['reasons'])})" if data["reasons"] else ""
    plan = data["plan"]
    if move is None:
        code = f"{plan['code']}: " if plan["code"] else ""
        decision = f"it stays: {code}{plan['message']}"
    else:
        of = move.move
        decision = f"the plan removes it in wave {of.wave} ({of.strategy}): {of.reason}"
        decision += f"; {plan['message']}" if plan["message"] else ""
    return [
        f"{data['namespace']}/{data['pod']} has ended: {data['phase']}{why}, on {data['node'] or 'no node'}",
        "It holds nothing there, and nothing replaces it: no landing is predicted.",
        "",
        "In the plan of a dry run",
        f"  {decision}",
    ]


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that a pod violates: the reason why a strategy wants to move it."""

    strategy: str
    entry: Entry
    gain: float
    """Upper limit of the gain when the pod leaves its node, in the unit of the entry."""
    text: str
    observed: bool
    """The strategy only observes."""
    waits: bool
    """The rule was not broken for enough runs in a row yet."""
    lasts: bool = True
    """The rule is still broken after the planned moves."""


class Recorder:
    """Records the rules that the pods of ``classes`` violate before the plan and after it.

    Implements ``PlanObserver``. With ``node``, only the pods on this node are recorded.
    """

    def __init__(self, classes: Int32s, node: int | None = None) -> None:
        self.classes, self._node = classes, node
        self._breaches: dict[Pair, dict[int, Breach]] = {}
        """Pair -> index of the term -> its rule."""
        self._lasting: dict[Pair, set[int]] = {}
        """Pair -> indices of the terms that still have it as a candidate after the planned moves."""
        self._draft: Draft | None = None
        self.chosen: Sequence[Chosen] = ()
        """The moves of the plan, in its order."""

    @property
    def draft(self) -> Draft:
        """The draft of the plan."""
        if self._draft is None:
            raise ValueError("nothing has been planned yet")
        return self._draft

    def breaches(self, pair: Pair, pod: int | None = None) -> list[Breach]:
        """Return the rules that a pair violates before the plan; with ``pod``, only those of this pod."""
        lasting = self._lasting.get(pair, ())
        breaches = {
            index: replace(breach, lasts=index in lasting)
            for index, breach in self._breaches.get(pair, {}).items()
        }
        for index in list(breaches) if pod is not None else ():
            term = self.draft.terms[index].term
            if pod is not None and term.judges(pod):
                breaches[index] = replace(breaches[index], text=term.reason(pod))
            elif term.cause is not Cause.PLACE:
                del breaches[index]
        return list(breaches.values())

    def before(self, draft: Draft) -> None:
        """Record the candidates before the moves (PlanObserver)."""
        self._draft = draft
        for index, weighted in enumerate(draft.terms):
            for rows, waits in _candidates(weighted.term):
                for pair, gain in self._of_pods(rows):
                    breach = _breach(weighted, pair, gain, waits=waits)
                    self._breaches.setdefault(pair, {})[index] = breach

    def after(self, draft: Draft, chosen: Sequence[Chosen]) -> None:
        """Record the candidates after the moves (PlanObserver)."""
        self.chosen = chosen
        for index, weighted in enumerate(draft.terms):
            for rows, _ in _candidates(weighted.term):
                for pair, _ in self._of_pods(rows):
                    self._lasting.setdefault(pair, set()).add(index)

    def _of_pods(self, rows: Candidates) -> Iterator[tuple[Pair, float]]:
        selected: Bools = np.isin(rows.cls, self.classes)
        if self._node is not None:
            selected &= rows.node == self._node
        for cls, node, gain in zip(
            rows.cls[selected].tolist(),
            rows.node[selected].tolist(),
            rows.gain[selected].tolist(),
            strict=True,
        ):
            yield (cls, node), gain


def _candidates(term: Term) -> Iterator[tuple[Candidates, bool]]:
    """Yield (candidates, False), then (pairs that wait for more runs, True)."""
    # Of all classes: asking for one class may make the term create further groups.
    yield term.candidates(), False
    yield term.waiting(), True


def _breach(weighted: WeightedTerm, pair: Pair, gain: float, *, waits: bool) -> Breach:
    return Breach(
        strategy=weighted.strategy,
        entry=weighted.term.entry,
        gain=gain * weighted.weight,
        text=weighted.term.describe(*pair),
        observed=weighted.observed,
        waits=waits,
    )
