"""Between waves: do the moves that are left still pay, on the cluster as it is now?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rebalancer.cost.guards import guard_term
from rebalancer.planner.judge import Judge
from rebalancer.planner.plan import Move
from rebalancer.planner.planner import Planner, cost_of_entries
from rebalancer.snapshot.protect import names_of


def recheck(planner: Planner, moves: Sequence[Move]) -> list[tuple[Move, str | None]]:
    """Return each move with why it no longer pays on ``planner``'s fresh snapshot, or None.

    Moves are judged in order, each in the state that those before it leave. Nothing is added. What still
    pays comes back with the landings and the gain that are expected of it now.
    """
    view = planner.view
    judge = Judge(view, planner.weighted_terms(), guard_term(view), planner.settings.threshold)
    wanted = [uid for move in moves for uid in (move.uid, move.makes_way_for) if uid]
    by_uid = planner.pods_by_uid(wanted)
    verdicts: list[tuple[Move, str | None]] = []
    wave = moves[0].wave if moves else 0
    for move in moves:
        if move.wave != wave:
            view.state.reap()
            wave = move.wave
        judged = _judged(planner, judge, move, by_uid)
        verdicts.append((move, judged) if isinstance(judged, str) else (judged, None))
    return verdicts


def _judged(planner: Planner, judge: Judge, move: Move, by_uid: Mapping[str, int]) -> Move | str:
    """Return the move as expected now, carried out in the planner's state, or why it should not go."""
    snapshot = planner.view.snapshot
    pod = by_uid.get(move.uid)
    if pod is None:
        return "the pod is gone"
    node = int(snapshot.pods.node[pod])
    if node < 0 or snapshot.nodes.names[node] != move.node:
        return "the pod is on another node now"
    if protected := names_of(int(planner.protected[pod])):
        return f"protected now: {', '.join(protected)}"
    cls = int(snapshot.pods.cls[pod])
    if move.makes_way_for:
        if (why := _may_stay(planner, judge, by_uid.get(move.makes_way_for))) is not None:
            return why
        verdict = judge.harmless(pod, cls, node)
    elif not (move.gain.hard or move.gain.soft) and not planner.is_wished(cls, node):
        return "the node is no longer over-used, or none is under-used"
    else:
        verdict = judge.judge(pod, cls, node, move.cost)
    if verdict.refused is not None:
        return f"{verdict.refused[0].value}: {verdict.refused[1]}"
    planner.commit(pod, cls, int(verdict.prediction.nodes[0]))
    return replace(
        move,
        landings=planner.landings(cls, verdict.prediction),
        gain=cost_of_entries(verdict.gain),
    )


def _may_stay(planner: Planner, judge: Judge, pod: int | None) -> str | None:
    """Return why nobody need make way for ``pod`` any more."""
    if pod is None:
        return "the pod that it makes way for is gone"
    pods = planner.view.snapshot.pods
    cls, node = int(pods.cls[pod]), int(pods.node[pod])
    if not planner.is_wished(cls, node):
        return "the pod that it makes way for may stay"
    if judge.judge(pod, cls, node, planner.cost_of(pod)).refused is None:
        return "the pod that it makes way for can go by itself"
    return None
