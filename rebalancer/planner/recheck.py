"""Between waves: do the moves that are left still pay, on the cluster as it is now?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rebalancer.cost.guards import guard_term
from rebalancer.plan.plan import Move
from rebalancer.planner.allowance import Allowance
from rebalancer.planner.chain import Chains, Step
from rebalancer.planner.judge import Judge, Verdict
from rebalancer.planner.planner import Planner, cost_of_entries
from rebalancer.snapshot.protect import names_of

# So many pods less than planned, in expectation, and a move is left to the next run. A small chance of a
# worse landing is no reason to put off what pays.
_CLEARLY_LESS = 0.3

_ROOM_IS_WANTED = "left to the next run: a move before it that mends a rule could not go as planned, and may need the room"


@dataclass(frozen=True, slots=True)
class Rechecked:
    """One move, judged again."""

    move: Move
    """As expected now, if it may go."""
    why: str | None
    """Why it no longer pays, None if it does."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Strategy -> its share in the gain, in the entry that decides."""


def recheck(planner: Planner, moves: Sequence[Move]) -> list[tuple[Move, str | None]]:
    """Return each move with why it may no longer go on ``planner``'s fresh snapshot, or None.

    See :func:`rechecked`. The budgets of what is in flight are asked for the next wave only, the first of
    ``moves``: what came into flight beside this run since the plan was made takes its part.
    """
    limits = _Limits(planner.allowance, moves[0].wave if moves else 0)
    return [(found.move, found.why) for found in rechecked(planner, moves, limits)]


class _Limits:
    """The budgets of what is in flight, used up by the moves of one wave."""

    def __init__(self, allowance: Allowance, wave: int) -> None:
        self._allowance, self._wave = allowance, wave

    def keep_back(self, move: Move, cls: int, node: int) -> str | None:
        """Return which limit leaves no room for ``move``, None if there is; count it then."""
        if move.wave != self._wave:
            return None
        if (limit := self._allowance.waits(cls, node, move.strategy)) is not None:
            return f"left to the next run: {limit}, with what else is in flight now"
        self._allowance.spend(cls, node, move.strategy)
        return None


def rechecked(
    planner: Planner, moves: Sequence[Move], limits: _Limits | None = None
) -> list[Rechecked]:
    """Judge each move again on ``planner``'s fresh snapshot; the state then holds those that may go placed.

    Moves are judged in order, each in the state that those before it leave. Nothing is added. What still
    pays, and mends what it was planned for, comes back with the landings and the gain expected now. Behind a
    move for a rule that cannot go as planned, none goes for balance alone: the next run may mend that rule
    with the room there is, and evens out the nodes by the same move.
    """
    view = planner.view
    judge = Judge(view, planner.weighted_terms(), guard_term(view), planner.settings.threshold)
    wanted = [uid for move in moves for uid in (move.uid, move.makes_way_for) if uid]
    by_uid = planner.pods_by_uid(wanted)
    verdicts: list[Rechecked] = []
    wave = moves[0].wave if moves else 0
    room_is_wanted = False
    for move in moves:
        if move.wave != wave:
            view.state.reap()
            wave = move.wave
        if room_is_wanted and not _mends(move):
            verdicts.append(Rechecked(move, _ROOM_IS_WANTED))
            continue
        judged = _judged(planner, judge, move, by_uid, limits)
        stays = isinstance(judged, str)
        verdicts.append(Rechecked(move, judged) if isinstance(judged, str) else judged)
        room_is_wanted |= stays and _mends(move) and move.uid in by_uid
    return verdicts


def _mends(move: Move) -> bool:
    """Tell whether a move was planned for the sake of a rule, and not of balance alone."""
    return bool(move.gain.hard or move.gain.soft or move.makes_way_for)


def _judged(
    planner: Planner,
    judge: Judge,
    move: Move,
    by_uid: Mapping[str, int],
    limits: _Limits | None,
) -> Rechecked | str:
    """Return the move as expected now, carried out in the planner's state, or why it should not go."""
    snapshot = planner.view.snapshot
    pod = by_uid.get(move.uid)
    if pod is None:
        return "the pod is gone"
    cls, node = int(snapshot.pods.cls[pod]), int(snapshot.pods.node[pod])
    if node < 0 or snapshot.nodes.names[node] != move.node:
        return "the pod is on another node now"
    verdict = _verdict(planner, judge, move, pod, by_uid)
    if isinstance(verdict, str):
        return verdict
    if limits is not None and (limit := limits.keep_back(move, cls, node)) is not None:
        return limit
    planner.commit(pod, cls, verdict.prediction)
    now = replace(
        move,
        landings=planner.landings(cls, verdict.prediction),
        gain=cost_of_entries(verdict.gain),
    )
    return Rechecked(now, None, verdict.by_strategy)


def _verdict(
    planner: Planner, judge: Judge, move: Move, pod: int, by_uid: Mapping[str, int]
) -> Verdict | str:
    """Return the verdict on a move of ``pod``, or why it should not be made."""
    if protected := names_of(int(planner.protected[pod])):
        return f"protected now: {', '.join(protected)}"
    pods = planner.view.snapshot.pods
    cls, node = int(pods.cls[pod]), int(pods.node[pod])
    if move.makes_way_for:
        verdict = _making_way(planner, judge, pod, by_uid.get(move.makes_way_for))
        if isinstance(verdict, str):
            return verdict
    elif not (move.gain.hard or move.gain.soft) and not planner.is_wished(cls, node):
        return "the node is no longer over-used, or none is under-used"
    else:
        verdict = judge.judge(pod, cls, node, move.cost)
    if verdict.refused is not None:
        return f"{verdict.refused[0].value}: {verdict.refused[1]}"
    if not move.makes_way_for and _mends_less(verdict, move):
        return "it would mend less than planned where it would land now: left to the next run"
    return verdict


def _mends_less(verdict: Verdict, move: Move) -> bool:
    """Tell whether a move mends clearly less than it was planned for.

    Replacements landed elsewhere than thought, and its own would now break a rule, so that it had to be
    moved again. The next run plans with where they are.
    """
    planned = (move.gain.hard, move.gain.soft)
    differences = [now - then for now, then in zip(verdict.gain[:2], planned, strict=True)]
    return next((d < 0 for d in differences if abs(d) > _CLEARLY_LESS), False)


def _making_way(planner: Planner, judge: Judge, pod: int, other: int | None) -> Verdict | str:
    """Return the verdict on moving ``pod`` so that ``other`` can go, or why it need not or does not help."""
    if other is None:
        return "the pod that it makes way for is gone"
    if protected := names_of(int(planner.protected[other])):
        return f"the pod that it makes way for is protected now: {', '.join(protected)}"
    if (why := _may_stay(planner, judge, other)) is not None:
        return why
    pods = planner.view.snapshot.pods
    cls, node = int(pods.cls[pod]), int(pods.node[pod])
    verdict = judge.harmless(pod, cls, node)
    chains = Chains(planner.view, judge, planner.costs)
    if verdict.refused is None and not chains.helps(
        Step(pod, cls, node, verdict), other, int(pods.cls[other]), int(pods.node[other])
    ):
        return "the pod that it makes way for could not go even then"
    return verdict


def _may_stay(planner: Planner, judge: Judge, pod: int) -> str | None:
    """Return why nobody need make way for ``pod`` any more."""
    pods = planner.view.snapshot.pods
    cls, node = int(pods.cls[pod]), int(pods.node[pod])
    if not planner.is_wished(cls, node):
        return "the pod that it makes way for may stay"
    if judge.judge(pod, cls, node, float(planner.costs[pod])).refused is None:
        return "the pod that it makes way for can go by itself"
    return None
