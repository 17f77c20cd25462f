"""Why pods stay although a rule names them as candidates: a code, and a sentence with numbers."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from rebalancer.cost.term import CountingRuns, Judging
from rebalancer.plan.plan import Code, Skip
from rebalancer.planner.draft import Draft
from rebalancer.planner.problem import Pair
from rebalancer.snapshot.protect import (
    CANNOT_SURGE,
    GANG,
    JUST_SCALED,
    NOT_RECREATED,
    RESIZE_DEFERRED,
    sentence_of,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pair was not moved, and which strategy asked for it."""

    strategy: str
    code: Code
    message: str


def skips_of(draft: Draft, refusals: Mapping[Pair, Refusal], pairs: set[Pair]) -> list[Skip]:
    """Return the pods that some term still names, among the ``pairs`` that were looked at, and why they stay.

    ``refusals`` are the search's. The state is the one after the plan.
    """
    left, why = _left(draft), _unselected(draft)
    why |= _waiting(draft)
    why |= {pair: refusals[pair] for pair in pairs & left.keys() & refusals.keys()}
    # Asked once: of a protocol, isinstance takes longer than all else that is done for a pair.
    of_place = {w.strategy for w in draft.terms if not isinstance(w.term, Judging)}
    skips: list[Skip] = []
    for pair in sorted((pairs & left.keys()) | why.keys()):
        refusal = why.get(pair)
        strategy = left[pair] if pair in left or refusal is None else refusal.strategy
        asking = strategy if refusal is None else refusal.strategy
        pods: list[int] = draft.state.pods_on(*pair).tolist()
        if asking not in of_place:
            pods = [pod for pod in pods if draft.judging(pod, asking) is not None]
        of_pair = (_skip(draft, pod, pair, refusal, strategy) for pod in pods)
        skips += [skip for skip in of_pair if skip is not None]
    return sorted(skips, key=lambda skip: (skip.namespace, skip.pod, skip.strategy))


def _left(draft: Draft) -> dict[Pair, str]:
    """Return the pairs that terms still name, with the first strategy to do so."""
    strategies: dict[Pair, str] = {}
    for weighted in draft.terms:
        rows = weighted.selected_rows(weighted.term.candidates())
        for pair in zip(rows.cls.tolist(), rows.node.tolist(), strict=True):
            strategies.setdefault(pair, weighted.strategy)
    return strategies


def _unselected(draft: Draft) -> dict[Pair, Refusal]:
    """Return the pairs that terms still name, none of which may move them, by the ``select`` of its strategy."""
    refusals: dict[Pair, Refusal] = {}
    may_move: set[Pair] = set()
    for weighted in draft.terms if any(w.selected is not None for w in draft.terms) else ():
        rows = weighted.term.candidates()
        for pair in zip(rows.cls.tolist(), rows.node.tolist(), strict=True):
            if weighted.may_move(*pair):
                may_move.add(pair)
            else:
                text = f"the select of {weighted.strategy} does not match it"
                refusals.setdefault(pair, Refusal(weighted.strategy, Code.NOT_SELECTED, text))
    return {pair: refusal for pair, refusal in refusals.items() if pair not in may_move}


def _waiting(draft: Draft) -> dict[Pair, Refusal]:
    """Return the pairs that wait until what is seen of them has lasted for enough runs."""
    waiting: dict[Pair, Refusal] = {}
    for weighted in draft.terms:
        if not isinstance(weighted.term, CountingRuns):
            continue
        rows = weighted.selected_rows(weighted.term.waiting())
        for pair in zip(rows.cls.tolist(), rows.node.tolist(), strict=True):
            text = weighted.term.describe(*pair)
            waiting.setdefault(pair, Refusal(weighted.strategy, Code.TOO_FEW_RUNS, text))
    return waiting


def _skip(
    draft: Draft, pod: int, pair: Pair, refusal: Refusal | None, strategy: str
) -> Skip | None:
    cls, node = pair
    if protections := draft.protection_texts(pod):
        code = protection_code(protections)
        text = sentence_of(protections)
    elif (forbidden := draft.forbidden(pod)) is not None:
        code, text = forbidden
    elif refusal is not None:
        strategy, code, text = refusal.strategy, refusal.code, refusal.message
    else:
        return None
    return Skip(
        namespace=draft.snapshot.classes[cls].namespace,
        pod=draft.snapshot.pods.name[pod],
        node=draft.snapshot.nodes.names[node],
        strategy=strategy,
        code=code,
        message=text,
    )


def protection_code(names: Container[str]) -> Code:
    """Return the reason code for a pod with the protections of these names."""
    return next((code for name, code in _OF_PROTECTION.items() if name in names), Code.PROTECTED)


_OF_PROTECTION = {
    NOT_RECREATED: Code.NOT_RECREATED,
    GANG: Code.GANG,
    CANNOT_SURGE: Code.CANNOT_SURGE,
    JUST_SCALED: Code.JUST_SCALED,
    RESIZE_DEFERRED: Code.RESIZE_DEFERRED,
}
"""Protection -> the code that it has of its own; the first that holds names the pod's."""
