"""The report as data: ``apiVersion: rebalancer/v1, kind: Report``; JSON and YAML of the same.

Equal runs give equal bytes but for ``timings``: keys stand in a fixed order, names are sorted, floats keep
nine significant digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from rebalancer.evictor.outcomes import Outcome
from rebalancer.planner.plan import Cost, Score, Skip
from rebalancer.report.model import RunReport
from rebalancer.wire.times import rfc3339

API_VERSION = "rebalancer/v1"


def as_data(report: RunReport) -> dict[str, Any]:
    """Return the report as plain data, in the order in which it is written.

    A run that another one's Lease held back has a report of the same keys, see ``report.held``.
    """
    plan, snapshot, loaded = report.plan, report.snapshot, report.loaded
    return {
        "apiVersion": API_VERSION,
        "kind": "Report",
        "dryRun": report.dry_run,
        "mode": loaded.policy.mode.value,
        "source": report.source,
        "capturedAt": rfc3339(snapshot.captured_at),
        "serverVersion": f"{snapshot.version[0]}.{snapshot.version[1]}",
        "policySource": loaded.source,
        "policyHash": loaded.policy_hash,
        "nodes": len(snapshot.nodes),
        "pods": len(snapshot.pods),
        "before": _scores(plan.before),
        "after": _scores(plan.after),
        "lowerBound": plan.lower_bound,
        "moves": [_move(outcome) for outcome in report.outcomes],
        "skipped": [_skip(skip) for skip in plan.skips],
        "funnel": dict(plan.funnel),
        "rest": {"moves": plan.rest.moves, "runs": plan.rest.runs, "more": plan.rest.more},
        "stopped": plan.stopped,
        "standstill": list(report.standstill),
        "cut": report.cut,
        "heldBy": None,
        "warnings": list(report.warnings),
        "exitCode": report.exit_code,
        "timings": {phase: _number(seconds, 4) for phase, seconds in report.timings.items()},
    }


def as_json(report: RunReport) -> str:
    """Return the report as JSON, ending in a newline."""
    # The json module indents in Python, which takes seconds with thousands of moves and skipped pods.
    return msgspec.json.format(msgspec.json.encode(as_data(report)), indent=2).decode() + "\n"


def as_yaml(report: RunReport) -> str:
    """Return the report as YAML: the same keys and values as the JSON."""
    # libyaml is ten times faster, which shows with thousands of skipped pods.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(
        as_data(report), Dumper=dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return text


def _scores(scores: Mapping[str, Score]) -> dict[str, Any]:
    return {
        strategy: {
            **_cost(score.cost),
            "violated": score.violated,
            "unsatisfiable": list(score.unsatisfiable),
        }
        for strategy, score in sorted(scores.items())
    }


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "hard": _number(cost.hard),
        "soft": _number(cost.soft),
        "imbalance": _number(cost.imbalance),
    }


def _move(outcome: Outcome) -> dict[str, Any]:
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
                "probability": _number(landing.probability),
                "domains": dict(sorted(landing.domains.items())),
            }
            for landing in move.landings
        ],
        "strategy": move.strategy,
        "reason": move.reason,
        "gain": _cost(move.gain),
        "cost": _number(move.cost),
        "wave": move.wave,
        "budgets": list(move.budgets),
        "observed": move.observed,
        "makesWayFor": move.makes_way_for or None,
        "outcome": outcome.status.value,
        "message": outcome.message,
        "landed": outcome.landed,
        "predicted": outcome.predicted,
        "seconds": _number(outcome.seconds, 4),
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


def _number(value: float, digits: int = 9) -> int | float | None:
    """Return ``value`` with so many significant digits; whole numbers without a point, others than numbers as null."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
