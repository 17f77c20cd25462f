"""The explanation of a workload as text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rebalancer.base.plain_text import and_more, columns, count, lines_of, more
from rebalancer.explain.pods import PodDecision, PodFacts
from rebalancer.explain.text import MAX_ENTRIES, breach_words, head, pod_lines
from rebalancer.explain.workload import Place, RuleState, WorkloadFacts, WorkloadRule
from rebalancer.report import words
from rebalancer.report.model import RunReport

_MAX_NODES = 12


def workload_table(report: RunReport, facts: WorkloadFacts) -> str:
    """Return the explanation as text, ending in a newline."""
    sections = [
        head(facts.owner.ref, report),
        _counts(facts),
        _places(facts),
        _rules(facts),
        _budgets(facts),
        _evictable(facts),
        _moves(report, facts),
        _stays(facts),
        _others(facts),
    ]
    texts = ["\n".join(section) for section in sections]
    return "\n\n".join(text for text in texts if text) + "\n"


def _counts(facts: WorkloadFacts) -> Iterator[str]:
    owner = facts.owner
    parts = [f"{owner.replicas} wanted", f"{owner.ready} ready"]
    parts += [f"{facts.waiting} without a node"] * bool(facts.waiting)
    parts += [f"{facts.terminating} terminating"] * bool(facts.terminating)
    state = f"not settled: {owner.unsettled}" if owner.unsettled else "settled"
    yield from lines_of(f"{', '.join(parts)}; {state}", "  ", "    ")


# -- places --------------------------------------------------------------------------------------------


def _places(facts: WorkloadFacts) -> Iterator[str]:
    moves = any(place.now != place.after for place in facts.nodes)
    rows = [["Where its pods are", "now", *["after the plan"] * moves]]
    room = _MAX_NODES
    for zone in facts.zones:
        rows.append(_place(zone, "  ", moves=moves))
        of_zone = [place for place in facts.nodes if place.zone == zone.name][:room]
        rows += [_place(place, "    ", moves=moves) for place in of_zone]
        room -= len(of_zone)
    yield from columns(rows, "")
    yield from more(len(facts.nodes) - _MAX_NODES, "    ")


def _place(place: Place, indent: str, *, moves: bool) -> list[str]:
    name = indent + (place.name if place.name is not None else "no zone")
    return [name, str(place.now), *[str(place.after)] * moves]


# -- rules ---------------------------------------------------------------------------------------------


def _rules(facts: WorkloadFacts) -> Iterator[str]:
    if not facts.rules:
        yield "Rules: none of the policy's strategies counts its pods."
        return
    unmet = sum(rule.now.unmet > 0 for rule in facts.rules)
    impossible = sum(rule.now.unsatisfiable is not None for rule in facts.rules)
    cannot = f", {impossible} cannot hold" if impossible else ""
    yield f"Rules: {len(facts.rules)}, {unmet} unmet{cannot}"
    for rule in facts.rules[:MAX_ENTRIES]:
        yield ""
        yield from lines_of(f"{_strategy(rule)}: {rule.group.label}", "  ", "      ")
        if rule.target:
            yield from lines_of(f"asks for {rule.target}", "      ", "        ")
        for line in _states(rule):
            yield from lines_of(line, "      ", "        ")
    yield from more(len(facts.rules) - MAX_ENTRIES)


def _strategy(rule: WorkloadRule) -> str:
    if rule.strategy is None:
        return "kept by every move"
    return f"{rule.strategy} (observe)" if rule.observed else rule.strategy


def _states(rule: WorkloadRule) -> Iterator[str]:
    now, after = rule.now, rule.after or rule.now
    if now.unmet and rule.strategy is not None:
        least = words.number(rule.least)
        moves = f"{least} move{'' if least == '1' else 's'}"
        yield f"now {_with(now.standing)}{_unmet(now)}; at least {moves} would fix it"
    else:
        yield f"now {_with(now.standing)}{_unmet(now)}"
    if (after.standing, after.unmet) != (now.standing, now.unmet):
        yield f"after the plan {_with(after.standing)}{_unmet(after)}"
    if now.unsatisfiable is not None:
        yield f"cannot hold: {now.unsatisfiable}"
    elif after.unsatisfiable is not None:
        yield f"cannot hold after the plan: {after.unsatisfiable}"


def _with(standing: str) -> str:
    return f"{standing}: " if standing else ""


def _unmet(state: RuleState) -> str:
    if state.unmet:
        return f"{words.number(state.unmet)} unmet"
    return "holds" if state.unsatisfiable is None else "holds as far as it can"


def _budgets(facts: WorkloadFacts) -> Iterator[str]:
    if not facts.budgets:
        yield "PodDisruptionBudgets: none selects its pods."
        return
    yield "PodDisruptionBudgets"
    for budget, pods in facts.budgets:
        allowed = count(budget.allowed, "disruption")
        yield from lines_of(
            f"{budget.ref} allows {allowed} now ({budget.healthy} healthy, {budget.desired} desired), "
            f"over {count(pods, 'pod')} of it",
            "  ",
            "      ",
        )


# -- pods ----------------------------------------------------------------------------------------------


def _evictable(facts: WorkloadFacts) -> Iterator[str]:
    reasons: dict[str, int] = defaultdict(int)
    for pod in facts.pods:
        for name, text in pod.protections.items():
            reasons[f"{name}: {text}"] += 1
        if pod.forbidden is not None:
            reasons[f"{pod.forbidden[0].value}: {pod.forbidden[1]}"] += 1
    free = sum(pod.may_move for pod in facts.pods)
    yield f"May be moved: {free} of {count(len(facts.pods), 'pod')}"
    for text, pods in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        yield from lines_of(f"{count(pods, 'pod')} not, {text}", "  ", "      ")


def _moves(report: RunReport, facts: WorkloadFacts) -> Iterator[str]:
    moving = [pod for pod in facts.pods if pod.move is not None]
    yield f"The plan moves {count(len(moving), 'pod')} of it"
    for pod in moving[:MAX_ENTRIES]:
        yield ""
        yield from pod_lines(report, pod, of_node=False)
    yield from more(len(moving) - MAX_ENTRIES)


def _stays(facts: WorkloadFacts) -> Iterator[str]:
    """Yield the pods that stay although a rule asks for a move, grouped by rule and reason."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in facts.pods:
        if pod.decision is PodDecision.STAYS:
            groups[_reason(pod)].append(f"{pod.ref} ({pod.node})")
    if not groups:
        return
    yield f"A rule asks for a move, but they stay: {count(sum(map(len, groups.values())), 'pod')}"
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1]))
    for (why, breaks), pods in ordered[:MAX_ENTRIES]:
        yield ""
        yield from lines_of(and_more(pods, 4), "  ", "      ")
        yield from lines_of(why, "      ", "        ")
        if breaks:
            yield from lines_of(breaks, "      ", "        ")
    yield from more(len(ordered) - MAX_ENTRIES)


def _reason(pod: PodFacts) -> tuple[str, str]:
    why = f"{pod.code}: {pod.message}" if pod.code else pod.message
    # Without rules that the moves of others fix.
    return why, "; ".join(breach_words(breach) for breach in pod.breaches if breach.lasts)


def _others(facts: WorkloadFacts) -> Iterator[str]:
    """Yield the numbers of the other pods that stay, and why."""
    for decision, heading in (
        (PodDecision.FIXED, "Break a rule that the moves of others fix"),
        (PodDecision.FINE, "No rule asks for a move"),
        (PodDecision.NOTHING, "Without a node, or terminating"),
    ):
        if number := sum(pod.decision is decision for pod in facts.pods):
            yield f"{heading}: {count(number, 'pod')}"
