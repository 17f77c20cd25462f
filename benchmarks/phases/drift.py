"""`python -m benchmarks.phases.drift`: what a plan costs by how much is wrong, by moves and by nodes.

One JSON line per cluster: CPU seconds, moves, what is left, the lower bound, and a digest of the moves, so
that the decisions of two versions can be compared.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.phases.shapes import as_json, drift
from rebalancer.environment import collector_paused
from rebalancer.plan.plan import Plan
from rebalancer.planner.planner import Planner
from rebalancer.planner.problem import Planning
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope

SHARES = (0.001, 0.01, 0.1, 0.3)
"""How much is wrong."""
PODS_OF_A_NODE = 30


def snapshot_of(
    share: float, nodes: int, *, hot: bool, pods_of_a_node: int = PODS_OF_A_NODE
) -> Snapshot:
    """Return the drifted cluster."""
    text = as_json(drift(share, nodes, nodes * pods_of_a_node, hot=hot))
    return load_snapshot("-", stdin=io.BytesIO(text))


def planner_of(snapshot: Snapshot, *, lifted: bool, seconds: float = math.inf) -> Planner:
    """Return a planner with the default policy; ``seconds``: the time of the run."""
    registry = Registry.installed()
    loaded = load_policy(None, registry)
    return Planning(loaded, registry, Scope(), lifted=lifted, seconds=seconds).planner(snapshot)


def planned(
    snapshot: Snapshot, *, lifted: bool, seconds: float = math.inf
) -> tuple[Plan, float, float]:
    """Return the plan, and the CPU seconds of making terms and of planning."""
    with collector_paused():
        started = time.process_time()
        planner = planner_of(snapshot, lifted=lifted, seconds=seconds)
        between = time.process_time()
        plan = planner.plan()
        return plan, between - started, time.process_time() - between


def told(plan: Plan, terms: float, seconds: float) -> Mapping[str, Any]:
    """Return what is to be compared of a plan."""
    moves = [(m.uid, m.node, m.landings[0].node, m.wave) for m in plan.moves]
    left = [sum(s.cost.as_tuple()[entry] for s in plan.after.values()) for entry in range(3)]
    before = [sum(s.cost.as_tuple()[entry] for s in plan.before.values()) for entry in range(3)]
    return {
        "terms": round(terms, 3),
        "plan": round(seconds, 3),
        "moves": len(plan.moves),
        "ms": round(seconds * 1000 / max(1, len(plan.moves)), 3),
        "waves": max((m.wave for m in plan.moves), default=0),
        "before": [round(value, 4) for value in before],
        "left": [round(value, 4) for value in left],
        "bound": plan.lower_bound,
        "rest": plan.backlog.moves,
        "skips": len(plan.skips),
        "digest": hashlib.sha256(json.dumps(moves).encode()).hexdigest()[:12],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line per cluster."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.phases.drift")
    parser.add_argument("--nodes", type=int, nargs="*", default=[300, 1000])
    parser.add_argument("--shares", type=float, nargs="*", default=SHARES)
    parser.add_argument("--even", action="store_true", help="only nodes of equal load")
    parser.add_argument("--hot", action="store_true", help="only hot and cold nodes")
    parser.add_argument("--lifted", action="store_true")
    parser.add_argument("--seconds", type=float, default=math.inf, help="time of the run")
    chosen = parser.parse_args(arguments)
    kinds = [
        hot for hot in (False, True) if not ((chosen.even and hot) or (chosen.hot and not hot))
    ]
    for nodes in chosen.nodes:
        for share in chosen.shares:
            for hot in kinds:
                snapshot = snapshot_of(share, nodes, hot=hot)
                plan = planned(snapshot, lifted=chosen.lifted, seconds=chosen.seconds)
                line = {"nodes": nodes, "wrong": share, "hot": hot, "lifted": chosen.lifted}
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                print(json.dumps({**line, **told(*plan), "peak MB": peak}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
