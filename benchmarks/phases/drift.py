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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from benchmarks.phases.shapes import as_json, drift
from rebalancer.base.environment import collector_paused
from rebalancer.plan.plan import Plan
from rebalancer.planner.plan import Callbacks, plan
from rebalancer.planner.problem import Problem
from rebalancer.planner.rules import RunRules
from rebalancer.planner.settings import Settings
from rebalancer.policy.load import load_policy
from rebalancer.policy.sources import PolicyChanges
from rebalancer.registry import Registry
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope

SHARES = (0.001, 0.01, 0.1, 0.3)
"""How much is wrong."""
PODS_OF_A_NODE = 30


def snapshot_of(
    share: float,
    nodes: int,
    *,
    hot: bool,
    pods_of_a_node: int = PODS_OF_A_NODE,
    replicas: int = 10,
    constraints: tuple[str, ...] = (),
) -> Snapshot:
    """Return the drifted cluster; each owner has so many ``replicas``, and has one of ``constraints`` in turn."""
    shape = drift(share, nodes, nodes * pods_of_a_node, hot=hot)
    text = as_json(replace(shape, replicas=replicas, constraints=constraints or shape.constraints))
    return load_snapshot("-", stdin=io.BytesIO(text))


def problem_of(
    snapshot: Snapshot, *, lifted: bool, seconds: float = math.inf, changes: Sequence[str] = ()
) -> tuple[Problem, Settings]:
    """Return a problem with the default policy and ``changes`` (KEY=VALUE); ``seconds``: the time of the run."""
    registry = Registry.installed()
    loaded = load_policy(None, registry, PolicyChanges(tuple(changes)))
    rules = RunRules(loaded, registry, Scope(), lifted=lifted, seconds=seconds)
    return rules.problem(snapshot), rules.settings()


def planned(
    snapshot: Snapshot, *, lifted: bool, seconds: float = math.inf, changes: Sequence[str] = ()
) -> tuple[Plan, float, float]:
    """Return the plan, and the CPU seconds of making terms and of planning."""
    spent = dict.fromkeys(("terms", "plan"), 0.0)

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        started = time.process_time()
        yield
        spent[name] += time.process_time() - started

    with collector_paused():
        with phase("terms"):
            problem, settings = problem_of(
                snapshot, lifted=lifted, seconds=seconds, changes=changes
            )
        made = plan(problem, settings, Callbacks(phase=phase)).plan
        return made, spent["terms"], spent["plan"]


def figures(made: Plan, terms: float, seconds: float) -> Mapping[str, Any]:
    """Return what is to be compared of a plan."""
    moves = [(m.uid, m.node, m.landings[0].node, m.wave) for m in made.moves]
    left = [sum(s.cost.as_tuple()[entry] for s in made.after.values()) for entry in range(3)]
    before = [sum(s.cost.as_tuple()[entry] for s in made.before.values()) for entry in range(3)]
    return {
        "terms": round(terms, 3),
        "plan": round(seconds, 3),
        "moves": len(made.moves),
        "ms": round(seconds * 1000 / max(1, len(made.moves)), 3),
        "waves": max((m.wave for m in made.moves), default=0),
        "before": [round(value, 4) for value in before],
        "left": [round(value, 4) for value in left],
        "bound": made.lower_bound,
        "rest": made.backlog.moves,
        "skips": len(made.skips),
        "digest": hashlib.sha256(json.dumps(moves).encode()).hexdigest()[:12],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line per cluster."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.phases.drift")
    parser.add_argument("--nodes", type=int, nargs="*", default=[300, 1000])
    parser.add_argument("--shares", type=float, nargs="*", default=SHARES)
    parser.add_argument("--even", action="store_true", help="only nodes of equal load")
    parser.add_argument("--hot", action="store_true", help="only hot and cold nodes")
    parser.add_argument("--replicas", type=int, default=10, help="pods of an owner")
    parser.add_argument("--lifted", action="store_true")
    parser.add_argument("--seconds", type=float, default=math.inf, help="time of the run")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of the policy")
    chosen = parser.parse_args(arguments)
    kinds = [
        hot for hot in (False, True) if not ((chosen.even and hot) or (chosen.hot and not hot))
    ]
    for nodes in chosen.nodes:
        for share in chosen.shares:
            for hot in kinds:
                snapshot = snapshot_of(share, nodes, hot=hot, replicas=chosen.replicas)
                result = planned(
                    snapshot, lifted=chosen.lifted, seconds=chosen.seconds, changes=chosen.set
                )
                line = {"nodes": nodes, "wrong": share, "hot": hot, "lifted": chosen.lifted}
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                print(json.dumps({**line, **figures(*result), "peak MB": peak}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
