"""The explanation of a node as text."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.base.plain_text import columns, count, lines_of, more, percent
from rebalancer.cost.term import Gauge
from rebalancer.explain.node import Amount, NodeFacts
from rebalancer.explain.pods import PodDecision
from rebalancer.explain.text import MAX_ENTRIES, amount, format_unaffected_pod, head, pod_lines
from rebalancer.report import words
from rebalancer.report.model import RunReport


def node_table(report: RunReport, facts: NodeFacts) -> str:
    """Return the explanation as text, ending in a newline."""
    zone = f" ({facts.zone})" if facts.zone else ""
    sections = [
        head(f"Node {facts.name}{zone}", report),
        _state(facts),
        _amounts(facts),
        *(_gauge(*gauge) for gauge in facts.gauges),
        _pods(report, facts),
        _arrivals(report, facts),
    ]
    texts = ["\n".join(section) for section in sections]
    return "\n\n".join(text for text in texts if text) + "\n"


def _state(facts: NodeFacts) -> Iterator[str]:
    states = ["Ready" if facts.ready else "not Ready"]
    states += ["cordoned"] * facts.unschedulable + ["announced to go"] * facts.leaving
    yield f"  state    {', '.join(states)}"
    taints = [
        f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
        for taint in facts.taints
    ]
    yield from lines_of(f"taints   {', '.join(taints) or 'none'}", "  ", " " * 11)
    if facts.notices:
        yield from lines_of(f"notices  {', '.join(facts.notices)}", "  ", " " * 11)
    yield from lines_of(f"landing  {facts.landing.message}", "  ", " " * 11)
    if (of := facts.emptying) is not None:
        yield from lines_of(f"emptying {of.code.value}: {of.message}", "  ", " " * 11)


def _amounts(facts: NodeFacts) -> Iterator[str]:
    """Yield one line per resource; columns without values are omitted."""
    amounts = facts.amounts
    parts = [
        ([""], [[one.resource] for one in amounts]),
        (["allocatable"], [[amount(one, one.allocatable)] for one in amounts]),
        (["requested", ""], [_with_share(one, one.requested) for one in amounts]),
    ]
    if any(one.terminating for one in amounts):
        rows = [[amount(one, one.terminating) if one.terminating else "-"] for one in amounts]
        parts.append((["terminating"], rows))
    if any(one.used is not None for one in amounts):
        parts.append((["used", ""], [_with_share(one, one.used) for one in amounts]))
    if any(one.after != one.requested for one in amounts):
        parts.append((["after the plan", ""], [_with_share(one, one.after) for one in amounts]))
    lines = zip(*([head_of, *cells] for head_of, cells in parts), strict=True)
    yield from columns([[cell for cells in line for cell in cells] for line in lines])


def _with_share(of: Amount, value: float | None) -> list[str]:
    if value is None:
        return ["-", ""]
    share = percent(value / of.allocatable) if of.allocatable else "-"
    return [amount(of, value), share]


def _gauge(strategy: str, now: Gauge, after: Gauge) -> Iterator[str]:
    yield from lines_of(f"{strategy}: {_standing(now)}; {now.note}", hanging="  ")
    yield from columns(
        [
            [level.resource, f"{percent(level.share)} {level.what}".rstrip(), _by(level)]
            for level in now.levels
        ],
        left=(0, 2),
    )
    if after.standing is not now.standing:
        yield f"  after the plan: {_standing(after)}"


def _standing(gauge: Gauge) -> str:
    between = gauge.standing is Gauge.Standing.BETWEEN
    return "between the thresholds" if between else gauge.standing.value


def _by(level: Gauge.Level) -> str:
    """Return the distance of a level from the thresholds."""
    over, under = level.share - level.over, level.under - level.share
    if over > 0:
        return f"{_points(over)} above {percent(level.over)}"
    if under >= 0:
        return f"{_points(under)} below {percent(level.under)}"
    return (
        f"{_points(-under)} above {percent(level.under)} and "
        f"{_points(-over)} below {percent(level.over)}"
    )


def _points(share: float) -> str:
    number = words.number(round(share * 100, 1))
    return f"{number} point{'' if number == '1' else 's'}"


def _pods(report: RunReport, facts: NodeFacts) -> Iterator[str]:
    moving = sum(pod.move is not None for pod in facts.pods)
    counted = count(len(facts.pods), "pod")
    yield f"On it: {counted}, of which the plan moves {moving}" if facts.pods else "On it: no pod"
    shown = {strategy for strategy, _, _ in facts.gauges}
    unaffected = (PodDecision.FINE, PodDecision.NOTHING)
    for pod in facts.pods:
        if pod.decision not in unaffected:
            yield ""
            yield from pod_lines(report, pod, of_node=True, known=shown)
    others = [pod for pod in facts.pods if pod.decision in unaffected]
    if others:
        yield ""
        yield f"  No rule asks for a move of {count(len(others), 'pod')}"
        yield ""
    for pod in others:
        yield from format_unaffected_pod(report, pod)


def _arrivals(report: RunReport, facts: NodeFacts) -> Iterator[str]:
    if not facts.arrivals:
        yield "No planned move would land here."
        return
    expected = sum(one.probability for one in facts.arrivals)
    yield (
        f"Planned moves that may land here: {len(facts.arrivals)}, "
        f"{words.number(expected)} by expectation"
    )
    yield ""
    for one in facts.arrivals[:MAX_ENTRIES]:
        move = one.outcome.move
        place = words.place(report, move.node)
        yield from lines_of(
            f"{percent(one.probability):>5}  {move.ref} from {place}, wave {move.wave}",
            "  ",
            " " * 9,
        )
    yield from more(len(facts.arrivals) - MAX_ENTRIES)
