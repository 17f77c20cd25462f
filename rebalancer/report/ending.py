"""Describe the outcome of a run's moves, and why the run ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rebalancer.base.plain_text import count
from rebalancer.plan.machines import InterruptedMachine, MachineAct, Result
from rebalancer.plan.outcome import Outcome, Status
from rebalancer.plan.plan import Method, Move, Score
from rebalancer.report.model import RunReport
from rebalancer.report.words import holds, is_sure, zones_of
from rebalancer.wire.times import rfc3339

PAST = {
    Status.EVICTED: "evicted",
    Status.RESTARTED: "restarted",
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


def _landings(report: RunReport, landed: Sequence[Outcome]) -> Iterator[str]:
    """Yield how many replacements landed as predicted: on the node, in the zone, or on one of many nodes.

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
    for kind, hits in sorted(kinds.items()):
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
        return _now_line(report.read_again.scores, report)
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


def _now_line(now: Mapping[str, Score], report: RunReport) -> str:
    """Return one line on the unmet rules in the cluster after the run, and on the moves left for later runs."""
    left = sum(score.violated for score in now.values())
    if not left:
        unjudged = any(score.not_judged for score in now.values())
        impossible = any(score.unsatisfiable for score in now.values())
        if unjudged:
            return "Every rule that could be judged holds now."
        return f"Every rule {'that can hold ' if impossible else ''}holds now."
    waits = report.plan.backlog.moves
    more = (
        f" {'At least ' if report.plan.backlog.more else ''}{count(waits, 'move')} more in further runs."
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


def restarts(moves: Iterable[Move]) -> int:
    """Return the number of moves that are restarts."""
    return sum(move.method is Method.RESTART for move in moves)
