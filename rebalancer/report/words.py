"""Phrases of a report, shared by the forms for people: numbers, landings, outcomes, and why a run ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rebalancer.base.plain_text import count, percent, printable
from rebalancer.plan.machines import InterruptedMachine, MachineAct, Result
from rebalancer.plan.plan import Cost, Landing, Method, Move, Outcome, Score, Status
from rebalancer.planner.planning import ClusterNow
from rebalancer.planner.reasons import of_strategies
from rebalancer.planner.safety import lost_pods
from rebalancer.policy.model import Mode
from rebalancer.report.model import RunReport
from rebalancer.snapshot.labels import ZONE_KEYS
from rebalancer.wire.times import rfc3339

_WORTH_A_WORD = 0.001
SURE = 0.995
"""Least probability of a landing that passes for certain."""
_SHOWN_MARKS = 4


_KIND = {Mode.OFF: "Idle run", Mode.OBSERVE: "Observing run", Mode.ENFORCE: "Run"}


def title(report: RunReport) -> str:
    """Return the first line: the kind of run and its policy."""
    policy, source = report.loaded.policy, report.loaded.source
    dry = report.dry_run and policy.mode is Mode.ENFORCE
    named = f"the {source} policy" if report.loaded.is_built_in else f"policy {source}"
    plan = report.reviewed
    of = f" of plan {plan.name} of {rfc3339(plan.captured_at)}" if plan is not None else ""
    return (
        f"{'Dry run' if dry else _KIND[policy.mode]}{of} with {named} "
        f"(mode {policy.mode}, eagerness {policy.eagerness})"
    )


def cluster_line(report: RunReport) -> str:
    """Return one line on the cluster: source, version, size and time."""
    snapshot = report.snapshot
    size = f"{count(len(snapshot.nodes), 'node')}, {count(len(snapshot.pods), 'pod')}"
    time = snapshot.known_time or "time unknown"
    return f"{report.source}, {snapshot.version_words}, {size}, {time}"


_NEARLY_NOTHING = 0.001


def number(value: float) -> str:
    """Format a number with few significant digits: ``1``, ``0.25``, ``0.0213``; values near 0 as ``<0.001``."""
    if 0 < abs(value) < _NEARLY_NOTHING:
        return f"{'-' * (value < 0)}<{_NEARLY_NOTHING}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def entries(cost: Cost) -> tuple[tuple[str, float], ...]:
    """Return the entries of a cost with their names, in the order in which they are compared."""
    return ("hard", cost.hard), ("soft", cost.soft), ("imbalance", cost.imbalance)


def gain_words(gain: Cost) -> str:
    """Return the first entry of a gain that is not zero, then what else changes noticeably; the JSON report has all digits.

    Imbalance that gets better beside rules is left out: almost every move changes some of it.
    """
    shown: list[str] = []
    for name, value in entries(gain):
        much = abs(value) >= _WORTH_A_WORD and (value < 0 or name != "imbalance")
        if much if shown else value:
            shown.append(f"{number(value)} {name}")
    return ", ".join(shown) or "0"


def holds(score: Score) -> bool:
    """Return whether no rule that could be judged is violated in a way that can be fixed."""
    return not score.violated and not score.not_judged


def score_words(score: Score) -> str:
    """Return a score in a few words: ``3 rules unmet: 2 hard, 1 soft``, or ``holds``."""
    words = "not judged" if score.not_judged else "holds"
    if score.violated:
        amounts = [f"{number(value)} {name}" for name, value in entries(score.cost) if value]
        words = f"{count(score.violated, 'rule')} unmet"
        words += f": {', '.join(amounts)}" if amounts else ""
    impossible = len(score.unsatisfiable)
    words += f"; {impossible:,} cannot hold" if impossible else ""
    if score.nodes is None:
        return words
    return f"{words}; pods on {count(score.nodes.holding, 'node')}, at least {score.nodes.needed:,} needed"


def nodes_words(before: Score, last: Score) -> str | None:
    """Return how many nodes have pods and how many need to; None for a strategy that does not empty nodes."""
    if before.nodes is None or last.nodes is None:
        return None
    was, is_ = before.nodes.holding, last.nodes.holding
    return f"nodes with pods {change(was, is_)}; at least {last.nodes.needed:,} needed"


def change(was: float, will: float) -> str:
    """Return ``4 -> 1``, or ``4`` if the two values are equal."""
    return steps_words((was, will))


def steps_words(values: Sequence[float]) -> str:
    """Return the values of the steps as ``4 -> 0 -> 1``; repeated values are omitted."""
    shown = [number(value) for value in values]
    kept = [text for i, text in enumerate(shown) if i == 0 or text != shown[i - 1]]
    return " -> ".join(kept)


def place(report: RunReport, node: str) -> str:
    """Return a node with its zone: ``node (zone)``."""
    domain = report.domain_of(node)
    return node if domain is None else f"{node} ({domain})"


def landing_words(report: RunReport, landings: Sequence[Landing]) -> str:
    """Return the probable landings: by node if there are few, else by zone."""
    if not landings:
        return "unpredicted"
    first = landings[0]
    if len(landings) == 1 and first.probability >= SURE:
        return place(report, first.node)
    zones = _zones(report, landings)
    few = len(landings) <= _FEW
    if len(zones) == 1:
        zone = next(iter(zones))
        nodes = ", ".join(f"{one.node} {percent(one.probability)}" for one in landings[:_FEW])
        others = "" if few else f" and {count(len(landings) - _FEW, 'more node')}"
        return f"{f'{zone}: ' if zone else ''}{nodes}{others}"
    if few:
        return ", ".join(
            f"{place(report, one.node)} {percent(one.probability)}" for one in landings
        )
    likely = sorted(zones.items(), key=lambda item: (-item[1], item[0]))[:_FEW]
    by_zone = ", ".join(f"{zone or 'no zone'} {percent(share)}" for zone, share in likely)
    return (
        f"{by_zone} ({first.node} {percent(first.probability)} and "
        f"{count(len(landings) - 1, 'more node')})"
    )


_FEW = 4


def _zones(report: RunReport, landings: Sequence[Landing]) -> dict[str, float]:
    """Return zone -> probability; nodes without a zone are under the empty name."""
    zones: dict[str, float] = {}
    for one in landings:
        zone = report.domain_of(one.node) or ""
        zones[zone] = min(1.0, zones.get(zone, 0.0) + one.probability)
    return zones


def outcome_words(report: RunReport, outcome: Outcome) -> str:
    """Return the destination of a move, actual or predicted: the text to the right of the arrow."""
    move = outcome.move
    if not move.has_replacement:
        return "removed: nothing replaces it"
    expected = landing_words(report, move.landings)
    if outcome.landed is None:
        return expected
    where = place(report, outcome.landed)
    after = f" after {outcome.seconds:.1f} s" if outcome.seconds else ""
    if not outcome.predicted:
        return f"{where}{after}, predicted {expected}"
    among = zones_of(report, move)
    if is_sure(move):
        how = "as predicted"
    elif len(among) == 1 and "" not in among:
        how = f"in the predicted zone, on one of {len(move.landings):,} likely nodes"
    else:
        how = f"on one of {len(move.landings):,} likely nodes"
    return f"{where}{after}, {how}"


def landing_brief(report: RunReport, move: Move) -> str:
    """Return the predicted landing for one line: a node, or a zone with the number of its likely nodes."""
    if not move.has_replacement:
        return "removed"
    if not move.landings:
        return "unpredicted"
    if is_sure(move):
        return place(report, move.landings[0].node)
    zones = zones_of(report, move)
    among = f"one of {len(move.landings):,} nodes"
    if len(zones) == 1:
        zone = next(iter(zones))
        return f"{zone}, {among}" if zone else among
    zone, share = max(zones.items(), key=lambda item: (item[1], item[0]))
    return f"{zone or 'no zone'} {percent(share)}, {among}"


def outcome_brief(report: RunReport, outcome: Outcome) -> str:
    """Return the destination of a move, actual or predicted, for one line."""
    predicted = landing_brief(report, outcome.move)
    if outcome.landed is None:
        return predicted
    where = place(report, outcome.landed)
    return where if outcome.predicted else f"{where}, predicted {predicted}"


def is_sure(move: Move) -> bool:
    """Return whether a single node was predicted for the replacement."""
    return bool(move.landings) and move.landings[0].probability >= SURE


def zones_of(report: RunReport, move: Move) -> dict[str, float]:
    """Return zone -> probability of landing there; nodes without a zone are under the empty name."""
    return _zones(report, move.landings)


_OVER = re.compile(r"((?:apart |near )?over) (\S+) (\([^()]*\)): (.+)", re.DOTALL)
_PLACES = {**dict.fromkeys(ZONE_KEYS, "zones"), "kubernetes.io/hostname": "nodes"}


def reason_words(move: Move) -> str:
    """Return the reason of a move without its workload; the counts come first, where a rule is over domains."""
    reason = move.reason.removeprefix(move.owner).strip() or move.reason
    if (parts := _OVER.fullmatch(reason)) is None:
        return reason
    how, key, kind, standing = parts.groups()
    where = f"{how} {_PLACES.get(key, key)} {kind}"
    if how.startswith("apart"):
        # Of pods that would rather not meet at all the distance that a spread allows says nothing.
        return f"{standing.removesuffix('; asks for at most 1 apart')}; asks to be {where}"
    return f"{standing}, {where}"


def marks_words(move: Move) -> str:
    """Return a phrase on the nodes that are marked for a move."""
    names = ", ".join(printable(node) for node in move.marks[:_SHOWN_MARKS])
    more = len(move.marks) - _SHOWN_MARKS
    others = f" and {more} more" if more > 0 else ""
    return f"steered: {names}{others} marked until it has its node"


PAST = {
    Status.EVICTED: "evicted",
    Status.RESTARTED: "restarted",
    Status.REQUESTED: "requested",
    Status.BLOCKED: "blocked by a PodDisruptionBudget",
    Status.CHANGED: "changed meanwhile",
    Status.GONE: "gone before",
    Status.MISCONFIGURED: "misconfigured",
    Status.REFUSED: "refused",
    Status.FAILED: "failed",
    Status.LOST: "lost",
    Status.DROPPED: "dropped when judged again",
    Status.NOT_ATTEMPTED: "not attempted",
    Status.OBSERVED: "observed only",
    Status.PLANNED: "planned",
}


def describe_done(report: RunReport) -> str | None:
    """Return a sentence on the outcome of the moves; None if no move was attempted."""
    tried = [o for o in report.outcomes if o.status not in (Status.PLANNED, Status.OBSERVED)]
    if report.dry_run or report.standstill or not tried:
        return None
    by_status = Counter(outcome.status for outcome in report.outcomes)
    parts = [f"{by_status[status]:,} {PAST[status]}" for status in Status if by_status[status]]
    replaced = [o for o in tried if o.status.is_carried_out and o.move.has_replacement]
    if replaced:
        landed = [outcome for outcome in replaced if outcome.landed is not None]
        parts += _landings(report, landed)
        if len(landed) < len(replaced):
            parts.append(f"{len(replaced) - len(landed):,} not landed yet")
    return f"{', '.join(parts)}."


def common_failure(report: RunReport) -> str | None:
    """Return a sentence on why most moves failed; None if none did, or for no common reason."""
    texts = Counter(one.message for one in report.outcomes if one.status.is_failure)
    text, number = max(texts.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    return f"Most failures: {text}." if text and 2 * number > texts.total() > 1 else None


def _landings(report: RunReport, landed: Sequence[Outcome]) -> Iterator[str]:
    """Yield how many replacements landed as predicted; if all are of one kind, how: on the node, in the zone.

    A landing on one of many equal nodes counts as a landing in their zone.
    """
    kinds: dict[str, list[bool]] = {}
    for one in landed:
        zones = zones_of(report, one.move)
        if is_sure(one.move):
            kind = "on the predicted node"
        elif len(zones) == 1 and "" not in zones:
            kind = "in the predicted zone"
        else:
            kind = "on one of several likely nodes"
        kinds.setdefault(kind, []).append(bool(one.predicted))
    if len(kinds) > 1:
        every = [hit for hits in kinds.values() for hit in hits]
        yield f"{sum(every):,} of {len(every):,} landed as predicted"
        return
    for kind, hits in kinds.items():
        yield f"{sum(hits):,} of {len(hits):,} landed {kind}"


def ending(report: RunReport) -> str:
    """Return one line on why the run ended."""
    if report.standstill:
        return f"Standing still: {'; '.join(report.standstill)}."
    if report.cut is not None:
        # What ends a run without a failure is that replacements are still on their way.
        return (
            f"{'Stopped early' if report.exit_code else 'Not waited for to the end'}: {report.cut}."
        )
    if report.read_again is not None:
        return _now_line(report.read_again, report)
    stopped = report.plan.stopped
    # Of a reviewed plan it says what is left of it, and nothing of the rules.
    of_rules = report.reviewed is None and all(map(holds, report.plan.after.values()))
    if report.dry_run or not of_rules or all(map(_as_planned, report.outcomes)):
        return stopped
    return f"Had all gone as planned: {stopped[:1].lower()}{stopped[1:]}"


def _as_planned(outcome: Outcome) -> bool:
    if outcome.status is Status.OBSERVED:
        return True
    if outcome.move.has_replacement:
        return outcome.predicted is True
    return outcome.status.is_carried_out


def _now_line(now: ClusterNow, report: RunReport) -> str:
    """Return one line on the unmet rules in the cluster after the run, and on the moves left for later runs."""
    scores = now.scores.values()
    left = sum(score.violated for score in scores)
    if not left:
        if any(score.not_judged for score in scores):
            return "Every rule that could be judged holds now."
        which = "that can hold " if any(score.unsatisfiable for score in scores) else ""
        if lost := lost_pods(now.snapshot):
            return f"No rule that was judged is unmet now, but {lost}, and count nowhere."
        of = of_strategies(report.loaded.left_out, now.scores)
        return f"Every rule{of} {which}holds now."
    waits = report.plan.backlog.moves
    more = (
        f" What waits takes {'at least ' if report.plan.backlog.more else ''}{count(waits, 'move')} in further runs, if all of it can be fixed."
        if waits
        else ""
    )
    return f"{count(left, 'rule')} {'is' if left == 1 else 'are'} unmet now.{more}"


def interruption_line(one: InterruptedMachine) -> str:
    """Return one line on the result of a machine's interruption."""
    verb = "stays" if one.result == Result.CANCELLED else "goes"
    when = "" if one.deadline is None else f", at {rfc3339(one.deadline)}"
    steps = "; ".join(
        f"{name} {step.status}{f' ({step.why})' if step.why else ''}"
        for name, step in one.steps.items()
    )
    return f"{one.node or one.instance} {verb} ({one.kind}{when}): {one.result}{f': {steps}' if steps else ''}."


def act_line(one: MachineAct) -> str:
    """Return one line on an act on a machine or a machine group."""
    of = f"{one.node} of {one.group}" if one.node and one.group else one.node or one.group
    return f"{one.strategy}: {f'{of}: ' if of else ''}{one.code} ({one.status}): {one.message}."


def list_other_methods(moves: Iterable[Move]) -> list[tuple[str, int]]:
    """Return (method, how many moves) for the methods of ``moves`` other than an eviction."""
    of = Counter(move.method for move in moves)
    return [
        (method.value, of[method]) for method in Method if method is not Method.EVICT and of[method]
    ]


def method_words(method: Method) -> str:
    """Return the end of a phrase on a move, for a method other than an eviction."""
    return {
        Method.EVICT: "",
        Method.RESTART: "; by a restart of its rollout",
        Method.REQUEST: "; by a request to its responders",
    }[method]
