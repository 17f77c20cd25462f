"""The rules that remain unmet, by name, with the reasons why their pods are not moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.cost.term import Entry, Term, Unmet
from rebalancer.plan.plan import (
    Cause,
    Code,
    NodeCount,
    Score,
    Skip,
    UnmetRule,
)
from rebalancer.planner.draft import Draft
from rebalancer.planner.problem import Contribution, Pair, WeightedTerm
from rebalancer.planner.refusal import ShownRefusal
from rebalancer.planner.rendering import cost_of_entries
from rebalancer.planner.safety import not_judged
from rebalancer.snapshot.columns import Bools, Ints, unite
from rebalancer.snapshot.protect import LEFT_OUT

_Reasons = Mapping[Pair, Sequence[ShownRefusal]]
"""Class and node -> why each of its pods is not moved."""

_MOVED = "pods that this run moves may stand so where they land: the next run looks where they are"
_NOWHERE = -1
"""The node of a pod that waits."""
_CAME_UP = "it came up by the moves of this run: the next run looks at it"
_NO_MOVE = "no pod has a place from which its move would fix any of it"
CUT = "planning ended before it was looked at"
REVIEWED = "only the moves of the reviewed plan are made"


def unmet_of(draft: Draft) -> tuple[UnmetRule, ...]:
    """Return the violated rules in the draft's state, without reasons."""
    return (
        *(
            UnmetRule(weighted.strategy, unmet.rule, _workload(draft, unmet), rules=rules)
            for weighted in draft.terms
            for unmet, rules in _scoped_rules(draft, weighted)
        ),
        *_find_ended(draft, ()),
    )


def scores_of(draft: Draft) -> dict[str, Score]:
    """Return strategy -> score in the draft's state, for the pods in the scope of the plan."""
    return {of.strategy: _score(draft, of) for of in draft.problem.contributions}


def rules_elsewhere(draft: Draft) -> str:
    """Return one line on rules outside the plan: strategies that are not judged, and how many unmet ones flags hide; empty if none."""
    problem = draft.problem
    left = problem.left_out
    unjudged = f"Not judged, because of flags: {', '.join(left)}." if left else ""
    if (scoped := problem.scoped) is None:
        return unjudged
    # What the flags leave out is no reason why a rule of it cannot hold: it is judged as without them.
    whole = replace(problem, protected=problem.protected & ~LEFT_OUT, scoped=None)
    every = scores_of(Draft(whole, draft.settings))
    ours = scores_of(draft)
    if (hidden := sum(every[name].violated - ours[name].violated for name in every)) <= 0:
        return unjudged
    are = "is" if hidden == 1 else "are"
    rules = f"{count(hidden, 'unmet rule')} of other {scoped.others}"
    return f"{rules} {are} not shown ({scoped.words}). {unjudged}".rstrip()


def _score(draft: Draft, of: Contribution) -> Score:
    entries, ended = [0.0, 0.0, 0.0], draft.ended.left(of.strategy)
    violated, unsatisfiable, packed = ended, list[str](), None
    unjudged = list(not_judged(draft.snapshot))
    for weighted in draft.terms:
        if weighted.strategy != of.strategy:
            continue
        amount, rules, sentences = _judge_term(draft, weighted)
        entries[weighted.term.entry] += weighted.weight * amount
        violated += rules
        unsatisfiable += sentences
        if why := weighted.term.not_judged():
            unjudged.append(why)
        if (nodes := weighted.term.packed()) is not None:
            packed = NodeCount(*nodes)
    entries[Entry.SOFT] += of.weight * ended
    if of.not_judged:
        unjudged.append(of.not_judged)
    if of.selected is not None and not of.selected.with_waiting(draft.snapshot).any():
        unjudged.append("select matches no pod")
    cost = cost_of_entries(entries)
    return Score(cost, violated, tuple(unsatisfiable), tuple(unjudged), packed)


def _judge_term(draft: Draft, weighted: WeightedTerm) -> tuple[float, int, Sequence[str]]:
    """Return for the scope what a term adds to the cost, unweighted, how many rules are violated, and which cannot be met."""
    term = weighted.term
    if draft.problem.scoped is None:
        return term.potential(), term.violated(), term.unsatisfiable()
    rules = list(_scoped_rules(draft, weighted))
    amount = sum(unmet.amount * number for unmet, number in rules)
    if term.cause is Cause.PLACE and term.unmet() is None:
        # How unevenly nodes are filled is of all their pods.
        amount = term.potential() if rules else 0.0
    mine = tuple(f"{label}: " for label in _scoped_labels(draft, term))
    sentences = [text for text in term.unsatisfiable() if text.startswith(mine)]
    return amount, sum(number for _, number in rules), sentences


def _scoped_labels(draft: Draft, term: Term) -> Iterator[str]:
    """Yield the names of the rules that pods of the scope may fix."""
    scoped = draft.problem.scoped
    if scoped is not None:
        classes = np.flatnonzero(scoped.classes).astype(np.int32)
        for group in term.groups_of(classes):
            if scoped.classes[group.movers].any():
                yield group.label


def pods_of_rules(draft: Draft) -> Bools:
    """Return the pods (P,) from which a strategy would have a rule fixed, whether they may move or not."""
    pods = draft.snapshot.pods
    found = np.zeros(len(pods), bool)
    size = len(draft.snapshot.nodes) + 1
    asked: list[Ints] = []
    for weighted in draft.terms:
        term = weighted.term
        if term.cause is not Cause.PLACE:
            judged = term.judged()
            found[judged[draft.state.at_home(judged)]] = True
            continue
        pairs = [(rows.cls, rows.node) for rows in (term.candidates(), term.waiting())]
        if not any(len(cls) for cls, _ in pairs):
            # Pods that wait leave no node: they are no candidates.
            pairs += [
                (unmet.classes, np.full(len(unmet.classes), _NOWHERE, np.int32))
                for unmet in term.unmet() or ()
                if _NOWHERE in unmet.nodes
            ]
        asked += [cls.astype(np.int64) * size + node for cls, node in pairs]
    if asked:
        of_pods = pods.cls.astype(np.int64) * size + pods.node
        found |= np.isin(of_pods, np.concatenate(asked))
    scoped = draft.problem.scoped
    return found if scoped is None else found & scoped.pods


def explained(
    draft: Draft, skips: Sequence[Skip], otherwise: str | None = None
) -> tuple[UnmetRule, ...]:
    """Return the violated rules in the draft's state, with the reasons in ``skips``.

    ``otherwise``: why no skip explains a fixable rule; None: nothing has ended planning before all was looked at.
    """
    reasons = _by_pair(draft, skips)
    return (
        *(
            _explain(draft, weighted, unmet, rules, reasons, otherwise)
            for weighted in draft.terms
            for unmet, rules in _scoped_rules(draft, weighted)
        ),
        *_find_ended(draft, skips),
    )


def _scoped_rules(draft: Draft, weighted: WeightedTerm) -> Iterator[tuple[Unmet, int]]:
    """Yield those results of :func:`_rules_of` that have pods in the scope of the plan."""
    scoped = draft.problem.scoped
    for unmet, rules in _rules_of(draft, weighted):
        if scoped is None or scoped.classes[unmet.classes].any():
            yield unmet, rules


def _rules_of(draft: Draft, weighted: WeightedTerm) -> Iterator[tuple[Unmet, int]]:
    """Yield (unmet rule, number of rules it stands for) for a term."""
    term = weighted.term
    if not term.violated():
        return
    if (unmet := term.unmet()) is not None:
        yield from ((one, 1) for one in unmet)
    elif term.cause is not Cause.PLACE:
        yield from _judge_pods(draft, term)
    else:
        yield from _nodes(draft, weighted)


def _judge_pods(draft: Draft, term: Term) -> Iterator[tuple[Unmet, int]]:
    """Yield the pods that a term judges one by one, grouped by owner."""
    judged, pods = term.judged(), draft.snapshot.pods
    left = judged[draft.state.at_home(judged)]
    if (scoped := draft.problem.scoped) is not None:
        left = left[scoped.pods[left]]
    by_owner: dict[str, list[int]] = {}
    for pod in left.tolist():
        by_owner.setdefault(_owner(draft, int(pods.cls[pod])), []).append(pod)
    for owner, rows in by_owner.items():
        of = np.array(rows, np.int32)
        text = f"{owner}: {term.reason(rows[0])}" if owner else term.reason(rows[0])
        yield Unmet(text, np.unique(pods.cls[of]), np.unique(pods.node[of])), len(rows)


def _nodes(draft: Draft, weighted: WeightedTerm) -> Iterator[tuple[Unmet, int]]:
    """Yield the nodes that a balance term wants pods to leave."""
    parts = weighted.term.candidates(), weighted.term.waiting()
    cls = np.concatenate([part.cls for part in parts])
    node = np.concatenate([part.node for part in parts])
    for one in np.unique(node).tolist():
        name = draft.snapshot.nodes.names[one]
        classes = np.unique(cls[node == one])
        of_node = Unmet(f"node {name}", classes, np.array([one], np.int32), of_workload=False)
        yield of_node, 1


def _find_ended(draft: Draft, skips: Sequence[Skip]) -> Iterator[UnmetRule]:
    """Yield the finished pods that a strategy wants to delete and that remain, as rules."""
    for of in draft.problem.contributions:
        if left := draft.ended.left(of.strategy):
            mine = [
                ShownRefusal(one.code, one.message) for one in skips if one.strategy == of.strategy
            ]
            yield _rule(of.strategy, "pods that have ended", "", mine, left)


# -- why -----------------------------------------------------------------------------------------------


def _by_pair(draft: Draft, skips: Sequence[Skip]) -> _Reasons:
    pods, classes = draft.snapshot.pods, draft.snapshot.classes
    by_name = {(one.namespace, one.pod): one for one in skips}
    by_pair: dict[Pair, list[ShownRefusal]] = {}
    for pod in pods.name.rows_of({one.pod for one in skips}).tolist():
        cls = int(pods.cls[pod])
        skip = by_name.get((classes[cls].namespace, pods.name[pod]))
        if skip is not None:
            pair = cls, int(pods.node[pod])
            by_pair.setdefault(pair, []).append(ShownRefusal(skip.code, skip.message))
    return by_pair


def _explain(
    draft: Draft,
    weighted: WeightedTerm,
    unmet: Unmet,
    rules: int,
    reasons: _Reasons,
    otherwise: str | None,
) -> UnmetRule:
    of_pods = [
        reason
        for cls in unmet.classes.tolist()
        for node in unmet.nodes.tolist()
        for reason in reasons.get((cls, node), ())
    ]
    workload = _workload(draft, unmet)
    if of_pods:
        return _rule(weighted.strategy, unmet.rule, workload, of_pods, rules)
    reason = _without_pods(draft, unmet, otherwise)
    codes = {reason.code.value: 0}
    return UnmetRule(weighted.strategy, unmet.rule, workload, codes, reason.message, rules)


def _without_pods(draft: Draft, unmet: Unmet, otherwise: str | None) -> ShownRefusal:
    """Return the reason for an unmet rule of which no staying pod has a reason."""
    living = unite(draft.state.living_of(cls) for cls in unmet.classes.tolist())
    if not draft.state.at_home(living).all():
        return ShownRefusal(Code.MOVED_NOW, _MOVED)
    if unmet.lack and not len(unmet.nodes):
        return ShownRefusal(Code.UNSATISFIABLE, unmet.lack)
    if len(unmet.nodes) and otherwise is not None:
        return ShownRefusal(Code.NOT_EXAMINED, otherwise)
    moved = len(draft.state.unmoved()) < np.count_nonzero(draft.snapshot.pods.living)
    came_up = len(unmet.nodes) and moved
    return ShownRefusal(*((Code.CAME_UP, _CAME_UP) if came_up else (Code.NO_GAIN, _NO_MOVE)))


def _workload(draft: Draft, unmet: Unmet) -> str:
    """Return the workload of a rule; empty for a rule of a node or of several workloads."""
    if not unmet.of_workload:
        return ""
    owners = {_owner(draft, cls) for cls in unmet.classes.tolist()}
    return owners.pop() if len(owners) == 1 else ""


def _rule(
    strategy: str, rule: str, workload: str, reasons: Sequence[ShownRefusal], number: int
) -> UnmetRule:
    codes = Counter(one.code.value for one in reasons)
    ranked = dict(sorted(codes.items(), key=lambda item: (-item[1], item[0])))
    first = next(iter(ranked), "")
    texts = Counter(one.message for one in reasons if one.code.value == first)
    why = min(texts, key=lambda text: (-texts[text], text), default="")
    return UnmetRule(strategy, rule, workload, ranked, why, number)


def _owner(draft: Draft, cls: int) -> str:
    owner = draft.snapshot.owner_of(cls)
    return "" if owner is None else owner.ref
