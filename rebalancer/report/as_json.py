"""The report as data (``apiVersion: rebalancer/v1, kind: Report``), written as JSON or YAML.

Equal runs give equal bytes except for ``timings``: keys have a fixed order, names are sorted, floats have nine
significant digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from rebalancer import API_VERSION
from rebalancer.base.data_text import plain_number, yaml_text
from rebalancer.base.plain_text import printable_json
from rebalancer.plan.deletion_costs import DeletionCosts
from rebalancer.plan.machines import InterruptedMachine
from rebalancer.plan.plan import Cost, Outcome, Plan, Score, Skip, UnmetRule
from rebalancer.report.model import RunReport, rules_left
from rebalancer.report.zone_loss import workload_data, zone_data
from rebalancer.wire.times import rfc3339

if TYPE_CHECKING:
    from rebalancer.report.plan_file import ReviewedPlan


def as_data(report: RunReport) -> dict[str, Any]:
    """Return the report as plain data, with the keys in the order of the file.

    A run that stopped because another run holds the Lease has a report with the same keys, see
    ``report.lease_taken``.
    """
    return {
        key: list(value) if isinstance(value, Iterator) else value
        for key, value in _parts(report).items()
    }


def _parts(report: RunReport) -> dict[str, Any]:
    """Return the report as data, with iterators instead of lists that may be long."""
    plan, snapshot, loaded = report.plan, report.snapshot, report.loaded
    zones = report.zones
    return {
        "apiVersion": API_VERSION,
        "kind": "Report",
        "dryRun": report.dry_run,
        "mode": loaded.policy.mode.value,
        "source": report.source,
        "capturedAt": snapshot.known_time,
        "serverVersion": snapshot.known_version,
        "policySource": loaded.source,
        "policyHash": loaded.policy_hash,
        "policyFlags": loaded.changed_by,
        "nodes": len(snapshot.nodes),
        "pods": len(snapshot.pods),
        "zones": zone_data(zones),
        "workloadZones": workload_data(zones),
        "before": _scores(plan.before),
        "after": _scores(plan.after),
        "now": None if report.now is None else _scores(report.now),
        "unmet": [unmet_data(rule) for rule in rules_left(report)],
        "lowerBound": plan.lower_bound,
        "moves": map(move_data, report.outcomes),
        "skipped": map(_skip, plan.skips),
        "funnel": dict(plan.funnel),
        "emptying": _emptying(plan),
        "rest": {"moves": plan.backlog.moves, "runs": plan.backlog.runs, "more": plan.backlog.more},
        "stopped": plan.stopped,
        "elsewhere": plan.elsewhere or None,
        "standstill": list(report.standstill),
        "cut": report.cut,
        "interruptions": [_interruption(one) for one in report.interruptions],
        "machines": [asdict(one) for one in report.machines],
        "deletionCosts": _deletion_costs(report.deletion_costs),
        "heldBy": None,
        "reviewedPlan": describe_reviewed_plan(report.reviewed),
        "warnings": list(report.warnings),
        "exitCode": report.exit_code,
        "timings": {phase: plain_number(seconds, 4) for phase, seconds in report.timings.items()},
    }


def as_json(report: RunReport) -> Iterator[str]:
    """Yield the report as JSON in pieces; the last piece ends with a newline.

    The text of a thousand moves needs more memory than the rest of the plan, and as dictionaries three times as
    much. So only one move at a time is a dictionary here.
    """
    start = "{"
    for key, value in _parts(report).items():
        yield f'{start}\n  "{key}": '
        yield from _list(value) if isinstance(value, Iterator) else (_indent(value, "  "),)
        start = ","
    yield "\n}\n"


def _deletion_costs(costs: DeletionCosts | None) -> dict[str, Any] | None:
    if costs is None:
        return None
    within = None if costs.within is None else costs.within.total_seconds()
    return {
        "strategy": costs.strategy,
        "changes": [asdict(one) for one in costs.changes],
        "waiting": costs.waiting,
        "repaired": [asdict(one) for one in costs.repaired],
        "withinSeconds": within,
        "held": costs.held,
    }


def _interruption(one: InterruptedMachine) -> dict[str, Any]:
    return {
        "node": one.node,
        "instance": one.instance,
        "kind": one.kind,
        "source": one.source,
        "deadline": None if one.deadline is None else rfc3339(one.deadline),
        "result": one.result,
        "steps": [
            {"step": name, "status": step.status.value, "why": step.why}
            for name, step in one.steps.items()
        ],
    }


def _list(items: Iterator[Any]) -> Iterator[str]:
    start = "["
    for item in items:
        yield f"{start}\n    {_indent(item, '    ')}"
        start = ","
    yield "[]" if start == "[" else "\n  ]"


def _indent(value: Any, margin: str) -> str:
    # The json module indents in Python, which takes seconds with thousands of moves and skipped pods.
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    text = printable_json(text)
    return text.replace("\n", f"\n{margin}")  # a line's end within a string is written as an escape


def as_yaml(report: RunReport) -> str:
    """Return the report as YAML, with the keys and values of the JSON."""
    return yaml_text(as_data(report))


def describe_reviewed_plan(plan: ReviewedPlan | None) -> dict[str, Any] | None:
    """Return the file and the creation time of a reviewed plan; None for a run that made its own plan."""
    if plan is None:
        return None
    return {"file": plan.name, "capturedAt": rfc3339(plan.captured_at), "source": plan.source}


def _scores(scores: Mapping[str, Score]) -> dict[str, Any]:
    return {
        strategy: {
            **_cost(score.cost),
            "violated": score.violated,
            "unsatisfiable": list(score.unsatisfiable),
            "notJudged": list(score.not_judged),
            "nodes": None
            if score.nodes is None
            else {"holding": score.nodes.holding, "needed": score.nodes.needed},
        }
        for strategy, score in sorted(scores.items())
    }


def unmet_data(rule: UnmetRule) -> dict[str, Any]:
    """Return a rule that is still unmet, as a report has it."""
    return {
        "strategy": rule.strategy,
        "rule": rule.rule,
        "workload": rule.workload or None,
        "codes": dict(rule.codes),
        "why": rule.why,
        "rules": rule.rules,
    }


def _emptying(plan: Plan) -> dict[str, Any] | None:
    """Return the nodes to empty and the decisions on all others; None if no strategy empties nodes."""
    if not plan.nodes:
        return None
    return {
        "marked": None if plan.emptied is None else list(plan.emptied),
        "pinned": None if plan.pinned_nodes is None else list(plan.pinned_nodes),
        "nodes": [
            {"node": node, "code": of.code.value, "message": of.message}
            for node, of in plan.nodes.items()
        ],
    }


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "hard": plain_number(cost.hard),
        "soft": plain_number(cost.soft),
        "imbalance": plain_number(cost.imbalance),
    }


def move_data(outcome: Outcome) -> dict[str, Any]:
    """Return a move and its outcome as data of the report."""
    move = outcome.move
    return {
        "namespace": move.namespace,
        "pod": move.pod,
        "uid": move.uid,
        "owner": move.owner,
        "from": move.node,
        "landings": [
            {
                "node": landing.node,
                "probability": plain_number(landing.probability),
                "domains": dict(sorted(landing.domains.items())),
            }
            for landing in move.landings
        ],
        "strategy": move.strategy,
        "reason": move.reason,
        "gain": _cost(move.gain),
        "cost": plain_number(move.cost),
        "wave": move.wave,
        "budgets": list(move.budgets),
        "observed": move.observed,
        "makesWayFor": move.makes_way_for or None,
        "marks": list(move.marks),
        "unit": move.unit or None,
        "room": None if move.room is None else list(move.room),
        "gang": move.gang or None,
        "method": move.method.value,
        "outcome": outcome.status.value,
        "message": outcome.message,
        "landed": outcome.landed,
        "predicted": outcome.predicted,
        "seconds": plain_number(outcome.seconds, 4),
    }


def _skip(skip: Skip) -> dict[str, Any]:
    return {
        "namespace": skip.namespace,
        "pod": skip.pod,
        "node": skip.node,
        "strategy": skip.strategy,
        "code": skip.code.value,
        "message": skip.message,
    }
