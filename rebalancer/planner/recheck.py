"""Between waves: do the moves that are left still pay, on the cluster as it is now?"""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.cost.guards import guard_term
from rebalancer.planner.judge import Judge
from rebalancer.planner.plan import Move
from rebalancer.planner.planner import Planner
from rebalancer.snapshot.protect import names_of


def recheck(planner: Planner, moves: Sequence[Move]) -> list[tuple[Move, str | None]]:
    """Return each move with why it no longer pays on ``planner``'s fresh snapshot, or None.

    Moves are judged in order, each in the state that those before it leave. Nothing is added.
    """
    view = planner.view
    judge = Judge(view, planner.weighted_terms(), guard_term(view), planner.settings.threshold)
    by_uid = planner.pods_by_uid([move.uid for move in moves])
    verdicts: list[tuple[Move, str | None]] = []
    wave = moves[0].wave if moves else 0
    for move in moves:
        if move.wave != wave:
            view.state.reap()
            wave = move.wave
        verdicts.append((move, _why_not(planner, judge, move, by_uid.get(move.uid))))
    return verdicts


def _why_not(planner: Planner, judge: Judge, move: Move, pod: int | None) -> str | None:
    snapshot = planner.view.snapshot
    if pod is None:
        return "the pod is gone"
    node = int(snapshot.pods.node[pod])
    if node < 0 or snapshot.nodes.names[node] != move.node:
        return "the pod is on another node now"
    if protected := names_of(int(planner.protected[pod])):
        return f"protected now: {', '.join(protected)}"
    cls = int(snapshot.pods.cls[pod])
    if not (move.gain.hard or move.gain.soft) and not planner.is_wished(cls, node):
        return "the node is no longer over-used, or none is under-used"
    verdict = judge.judge(pod, cls, node, move.cost)
    if verdict.refused is not None:
        return f"{verdict.refused[0].value}: {verdict.refused[1]}"
    planner.commit(pod, cls, int(verdict.prediction.nodes[0]))
    return None
