"""Why candidates are not moved, and why a plan ends: reason codes, and sentences with numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rebalancer.base.plain_text import and_more, count
from rebalancer.cost.term import Entry
from rebalancer.plan.plan import Backlog, Cause, Code, Explanation, Score, Skip, UnmetRule
from rebalancer.planner.draft import Draft
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.refusal import Refusal, ShownRefusal, Why
from rebalancer.planner.verdict import TOLERANCE
from rebalancer.policy.model import Eagerness

DECLINED = frozenset({Code.LOW_GAIN, Code.UNSURE})
"""Something would get better, by too little or not surely enough for the policy's eagerness."""


_NEXT_RUN = frozenset({Code.MOVED_NOW.value, Code.CAME_UP.value})
"""Codes of rules that the next run may look at with another result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEnd:
    """What may end a plan before every rule holds, and what its rules leave out."""

    cut: str | None = None
    """Why planning ended early."""
    in_flight: str | None = None
    """The budget that earlier runs' moves in flight use up."""
    eagerness: Eagerness = Eagerness.CAREFUL
    """The policy's; moves refused for it alone would gain something."""
    rest: float | None = None
    """The share of the gain that the last wave did not reach, if that ends the plan."""
    lost: str = ""
    """A phrase on pods that count nowhere, since their nodes do not exist."""
    narrowed: bool = False
    """Whether a strategy does not judge the rules of all pods, because of its ``select``."""
    left_out: Sequence[str] = ()
    """The strategies that flags remove or turn off."""


def stopped(explained: Explanation, end: PlanEnd, *, moves: bool) -> str:
    """Return one line on why the plan ends; ``explained``: all else that is said of it. ``moves``: whether it has some."""
    skips, after, backlog = explained.skips, explained.after, explained.backlog
    left = sum(score.violated for score in after.values())
    codes = _main_codes(skips, explained.unmet)
    reasons = ", ".join(f"{count} {code}" for code, count in sorted(codes.items(), key=_most_first))
    impossible = sum(len(score.unsatisfiable) for score in after.values())
    cannot = f" {count(impossible, 'constraint')} cannot hold as things are." if impossible else ""
    if not after:
        return "Nothing was judged: no strategy is on."
    if left == 0 and (unjudged := _describe_unjudged(after)) is not None:
        return (
            f"After these moves {unjudged[:1].lower()}{unjudged[1:]}" if moves else unjudged
        ) + cannot
    if left == 0:
        of = of_strategies(end.left_out, after)
        of += " of the pods that its strategy selects" if end.narrowed else ""
        rules = f"every rule{of} that can hold holds" if impossible else f"every rule{of} holds"
        if end.lost:
            rules = f"no rule that was judged is unmet, but {end.lost}, and count nowhere"
        return (f"Nothing to do: {rules}." if not moves else f"After these moves {rules}.") + cannot
    still = f"{count(left, 'rule')} {'is' if left == 1 else 'are'} unmet.{_backlog_words(backlog)}{cannot}"
    if end.cut is not None:
        return f"Planning was ended early: {end.cut}. {still}"
    if end.in_flight is not None:
        return f"Moves in flight, or pods that are not Ready yet, use up a budget ({end.in_flight}): {still}"
    if backlog.moves:
        return f"This run can do no more: {still}"
    if end.rest is not None:
        least = f"{100 * end.rest:g}%"
        return f"The last wave brought less than {least} of the plan's gain: the rest is left to later runs. {still}"
    nothing = "Nothing more" if moves else "Nothing"
    declined = any(skip.code in DECLINED for skip in skips)
    gained = f"is worth an eviction at eagerness {end.eagerness}" if declined else "can be gained"
    if codes and min(codes.items(), key=_most_first)[0] == Code.BUDGET.value:
        gained = "can be moved within the budgets" + (" of one run" if moves else "")
    head = f"{nothing} {gained}"
    head += " yet" if any(map(_waits, skips)) or codes.keys() & _NEXT_RUN else ""
    stay = "stays" if left == 1 else "stay"
    return f"{head}: {count(left, 'rule')} {stay} unmet ({reasons or 'no move would fix more'}).{cannot}"


def of_strategies(left_out: Sequence[str], judged: Iterable[str]) -> str:
    """Return of which strategies rules are, if flags leave others out; empty if all of the policy's are judged."""
    return f" of {and_more(sorted(judged), 3)}" if left_out else ""


def _main_codes(skips: Sequence[Skip], unmet: Sequence[UnmetRule]) -> Counter[str]:
    """Return code -> number of rules that remain unmet because of it, by the code of most of their pods; without rules, number of pods."""
    if not unmet:
        return Counter(skip.code.value for skip in skips)
    codes: Counter[str] = Counter()
    for rule in unmet:
        codes.update(dict.fromkeys(list(rule.codes)[:1], rule.rules))
    return codes


def _waits(skip: Skip) -> bool:
    """Return whether a pod is kept in place only for a limited time."""
    return skip.code in (Code.TOO_FEW_RUNS, Code.ZONE_CLOSED) or skip.holders == ("young",)


def _describe_unjudged(after: Mapping[str, Score]) -> str | None:
    """Return a sentence on what could not be judged; None if everything could."""
    unjudged = {name: score.not_judged for name, score in sorted(after.items()) if score.not_judged}
    if not unjudged:
        return None
    reasons = "; ".join(dict.fromkeys(why for texts in unjudged.values() for why in texts))
    if len(unjudged) == len(after):
        return f"Nothing could be judged: {reasons}."
    return f"Every rule that could be judged holds. Not judged: {', '.join(unjudged)} ({reasons})."


def _backlog_words(backlog: Backlog) -> str:
    """Return a sentence on the backlog. Later runs may refuse what this one did not get to: it is no promise."""
    if not backlog.moves:
        return ""
    least = "at least " if backlog.more else ""
    moves, runs = count(backlog.moves, "move"), count(backlog.runs, "further run")
    return f" What waits takes {least}{moves} in {runs}, if all of it can be fixed."


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


class RefusedMove(NamedTuple):
    """Why a pair was not moved, and the strategy that requested the move."""

    strategy: str
    refusal: Refusal


def skips_of(
    draft: Draft, why_left: Callable[[Pair], RefusedMove | None], pairs: AbstractSet[Pair]
) -> list[Skip]:
    """Return the pods that terms still have as candidates, among the examined ``pairs``, and why they are not moved.

    ``why_left`` returns why the search has left a pair. The state is the one after the plan.
    """
    left, why = _find_left(draft)
    why |= _waiting(draft)
    why |= {pair: one for pair in pairs & left.keys() if (one := why_left(pair)) is not None}
    of_place = {w.strategy for w in draft.terms if w.term.cause is Cause.PLACE}
    keepers, scoped = _Keepers(draft), draft.problem.scoped
    skips: list[Skip] = []
    for pair, pods in _pods_on(draft, (pairs & left.keys()) | why.keys()):
        refused = why.get(pair)
        strategy = left[pair] if pair in left or refused is None else refused.strategy
        asking = strategy if refused is None else refused.strategy
        reason = None
        if refused is not None:
            refusal = _find_trade(draft, pair, refused.refusal) or refused.refusal
            reason = refusal.shown(draft.snapshot)
        for pod in pods:
            if scoped is not None and not scoped.pods[pod]:
                continue
            if asking not in of_place and draft.judging(pod, asking) is None:
                continue
            if (kept := keepers.of(pod)) is not None:
                skips.append(skip_of(draft, pod, strategy, kept))
            elif reason is not None:
                skips.append(skip_of(draft, pod, asking, reason))
    return sorted(skips, key=lambda skip: (skip.namespace, skip.pod, skip.strategy))


def _find_trade(draft: Draft, pair: Pair, refusal: Refusal) -> Refusal | None:
    """Return which rules of one strategy get better and worse where nothing seems to get better in sum; None if none do."""
    if refusal.why is Why.NO_MARKS:
        trade = _find_trade(draft, pair, refusal.facts["why"])
        return None if trade is None else Refusal.of(Why.NO_MARKS, why=trade)
    if refusal.why is not Why.NOTHING_BETTER:
        return None
    cls, node = pair
    landing = refusal.facts["landing"]
    replacement = draft.snapshot.classes[cls].replacement
    changes: list[tuple[str, int, float]] = []
    for weighted in draft.terms:
        if weighted.may_move(cls, node):
            for group in weighted.term.groups_of(np.array([cls], np.int32)):
                delta = group.delta(cls, node, replacement, landing.nodes) @ landing.probability
                change = weighted.weight * group.weight * float(delta)
                changes.append((group.label, int(weighted.term.entry), change))
    worst = min((entry for _, entry, change in changes if change > TOLERANCE), default=len(Entry))
    better = [(label, entry, -change) for label, entry, change in changes if change < -TOLERANCE]
    worse = [one for one in changes if one[2] > TOLERANCE and one[1] == worst]
    if not (better and worse):
        return None
    return Refusal.of(Why.TRADE, landing=landing, better=better, worse=worse)


def _pods_on(draft: Draft, pairs: AbstractSet[Pair]) -> Iterator[tuple[Pair, list[int]]]:
    """Yield each pair with the unmoved pods on it, where there are any; all pods are looked up at once."""
    size = max(1, len(draft.snapshot.nodes))
    asked = np.array([cls * size + node for cls, node in pairs], np.int64)
    pods, of = draft.state.unmoved(), draft.snapshot.pods
    keys = of.cls[pods].astype(np.int64) * size + of.node[pods]
    asked_for = np.isin(keys, asked)
    pods, keys = pods[asked_for], keys[asked_for]
    order = np.argsort(keys, kind="stable")
    for mine in np.split(pods[order], np.flatnonzero(np.diff(keys[order])) + 1):
        if len(mine):
            yield (int(of.cls[mine[0]]), int(of.node[mine[0]])), mine.tolist()


def _find_left(draft: Draft) -> tuple[dict[Pair, str], dict[Pair, RefusedMove]]:
    """Return the pairs that terms still have as candidates: pair -> first strategy, and why no strategy may move it.

    That is because of its ``select``, or while it is held or rests.
    """
    strategies: dict[Pair, str] = {}
    refusals: dict[Pair, RefusedMove] = {}
    for weighted in draft.terms:
        rows, strategy = weighted.term.candidates(), weighted.strategy
        for pair in zip(rows.cls.tolist(), rows.node.tolist(), strict=True):
            if weighted.may_move(*pair):
                strategies.setdefault(pair, strategy)
            elif pair not in refusals:
                refusals[pair] = RefusedMove(strategy, _find_unselected(draft, weighted, pair[0]))
    return strategies, {pair: why for pair, why in refusals.items() if pair not in strategies}


def _find_unselected(draft: Draft, weighted: WeightedTerm, cls: int) -> Refusal:
    """Return why a strategy may not move a class that its term has as a candidate."""
    if weighted.held:
        return Refusal.of(Why.ZONE_CLOSED, zone=draft.problem.held)
    if (until := weighted.resting.get(cls)) is not None:
        return Refusal.of(Why.COOLS_DOWN, until=until)
    return Refusal.of(Why.NOT_SELECTED, strategy=weighted.strategy)


def _waiting(draft: Draft) -> dict[Pair, RefusedMove]:
    """Return the pairs whose measured condition has not lasted for enough runs."""
    waiting: dict[Pair, RefusedMove] = {}
    for weighted in draft.terms:
        rows = weighted.selected_rows(weighted.term.waiting())
        for pair in zip(rows.cls.tolist(), rows.node.tolist(), strict=True):
            why = Refusal.of(Why.TOO_FEW_RUNS, measured=weighted.term.describe(*pair))
            waiting.setdefault(pair, RefusedMove(weighted.strategy, why))
    return waiting


class _Keepers:
    """What keeps pods in place. Pods that are alike in all of it are judged once."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._known: dict[tuple[int, int, bool], ShownRefusal | None] = {}

    def of(self, pod: int) -> ShownRefusal | None:
        """Return what keeps a pod in place, or None."""
        draft = self._draft
        bits, lifted = int(draft.problem.protected[pod]), bool(draft.lifted[pod])
        alike = int(draft.snapshot.pods.cls[pod]), bits, lifted
        if alike not in self._known:
            self._known[alike] = self._judge(pod)
        return self._known[alike]

    def _judge(self, pod: int) -> ShownRefusal | None:
        keeps = self._draft.keeps(pod)
        return None if keeps is None else keeps.shown(self._draft.snapshot)


def skip_of(draft: Draft, pod: int, strategy: str, reason: ShownRefusal) -> Skip:
    """Return a pod that is not moved, as reports show it."""
    snapshot, node = draft.snapshot, int(draft.snapshot.pods.node[pod])
    return Skip(
        namespace=snapshot.classes[snapshot.pods.cls[pod]].namespace,
        pod=snapshot.pods.name[pod],
        node=snapshot.nodes.names[node] if node >= 0 else "",
        strategy=strategy,
        code=reason.code,
        message=reason.message,
        holders=reason.holders,
    )
