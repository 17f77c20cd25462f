"""Between waves: judge on the current cluster whether the remaining moves still pay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rebalancer.cost.guards import guard_term
from rebalancer.plan.plan import Cause, Move
from rebalancer.planner.chains import Chains
from rebalancer.planner.commit import FirstMove
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.exchanges import ExchangeCheck, ExchangeJudge
from rebalancer.planner.gang_plan import GangCheck
from rebalancer.planner.judge import Judge
from rebalancer.planner.problem import Problem
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.rendering import Rendering, cost_of_entries
from rebalancer.planner.room.check import RoomCheck
from rebalancer.planner.scenarios import PredictedMove, expect
from rebalancer.planner.settings import Settings
from rebalancer.planner.steer import LandingSteer
from rebalancer.planner.together import TogetherJudge
from rebalancer.planner.verdict import Verdict, is_gamble
from rebalancer.snapshot.protect import TEXTS

# So many pods less than planned, in expectation, and a move is left to the next run. A small chance of a
# worse landing is no reason to put off what pays.
_CLEARLY_LESS = 0.3
_SECOND = "the pod that it goes first for"


@dataclass(frozen=True, slots=True)
class Rechecked:
    """One move after being judged again."""

    move: Move
    """The move as expected now, if it is allowed."""
    why: Refusal | None
    """Why it no longer pays, None if it does."""
    step: PredictedMove | None = None
    """The move as predicted now; None if it is not made, or has no replacement."""


def recheck(
    problem: Problem, settings: Settings, moves: Sequence[Move]
) -> list[tuple[Move, str | None]]:
    """Return each move with the reason why it must not be made on the new snapshot, or None.

    See :func:`rechecked`. In-flight budgets are checked for the next wave only, the first of ``moves``: moves of
    others that started since the plan was made use a part of them.
    """
    draft = Draft(problem, settings)
    wave = moves[0].wave if moves else 0
    judged = rechecked(draft, moves, _WaveLimits(draft, wave))
    return [
        (one.move, None if one.why is None else one.why.text(draft.snapshot))
        for one in expect_landings(draft, judged, wave)
    ]


def expect_landings(
    draft: Draft, judged: Sequence[Rechecked], wave: int | None = None
) -> list[Rechecked]:
    """Return the same moves with their expected landings, see :mod:`rebalancer.planner.scenarios`.

    ``wave``: of this wave only, for those after it are judged again; None: of all. ``draft`` contains the moves.
    """
    result = list(judged)
    steps = {
        n: one.step
        for n, one in enumerate(judged)
        if one.step is not None and wave in (None, one.move.wave)
    }
    if any(judged[n].move.room is not None for n in steps):
        return result
    rendering = Rendering(draft.problem)
    expected = expect(draft, list(steps.values()), Effort.of(len(draft.snapshot.nodes)))
    for (n, step), prediction in zip(steps.items(), expected, strict=True):
        if prediction is not step.prediction:
            landings = rendering.landings(step.cls, prediction)
            result[n] = replace(judged[n], move=replace(judged[n].move, landings=landings))
    return result


class MoveLimits:
    """Decides which moves are made, of those that still gain enough. This class allows all."""

    def are_about(self, move: Move) -> bool:  # noqa: ARG002
        """Return whether ``move`` is next, within what the budgets allow now."""
        return True

    def next_wave(self) -> None:
        """Note that the moves of the next planned wave follow."""

    def admit(self, move: Move, pod: int, shares: Mapping[str, float]) -> Move | Refusal:  # noqa: ARG002
        """Return the move as it may be made, and count it; or why it may not.

        ``shares``: strategy -> its part of the gain.
        """
        return move


class _WaveLimits(MoveLimits):
    """The in-flight budgets, reduced by the moves of one wave."""

    def __init__(self, draft: Draft, wave: int) -> None:
        self._draft, self._wave = draft, wave

    def are_about(self, move: Move) -> bool:
        return move.wave == self._wave

    def admit(self, move: Move, pod: int, shares: Mapping[str, float]) -> Move | Refusal:  # noqa: ARG002
        # A gang has been asked about as a whole.
        if self.are_about(move):
            pods, allowance = self._draft.snapshot.pods, self._draft.allowance
            place, ready = (int(pods.cls[pod]), int(pods.node[pod])), pods.is_ready(pod)
            limit = None if move.of_gang else allowance.waits(*place, move.strategy, ready=ready)
            if limit is not None:
                return Refusal.of(Why.LIMIT_NOW, limit=limit)
            allowance.spend(*place, move.strategy, ready=ready)
        return move


def rechecked(draft: Draft, moves: Sequence[Move], limits: MoveLimits) -> list[Rechecked]:
    """Judge each move again on ``draft``'s new snapshot; afterwards the draft contains the moves that may be made.

    Moves are judged in order, each in the state after the earlier ones. No move is added. A move that still pays,
    and fixes what it was planned for, is returned with its current landings and gain. After a move for a rule that
    cannot be made as planned, no move for balance alone is made: the next run may fix that rule with the free room,
    and balance the nodes with the same move.
    """
    check = _Check(draft, moves, limits)
    verdicts: list[Rechecked] = []
    wave = moves[0].wave if moves else 0
    room_is_wanted = False
    for move in moves:
        if move.wave != wave:
            draft.state.reap()
            limits.next_wave()
            wave = move.wave
        if room_is_wanted and not _mends(move):
            verdicts.append(Rechecked(move, Refusal.of(Why.ROOM_IS_WANTED)))
            continue
        judged = check.judged(move)
        stays = isinstance(judged, Refusal)
        verdicts.append(Rechecked(move, judged) if isinstance(judged, Refusal) else judged)
        room_is_wanted |= stays and _mends(move) and check.exists(move)
    return verdicts


def _mends(move: Move) -> bool:
    """Return whether a move was planned for a rule, and not for balance alone."""
    return bool(move.gain.hard or move.gain.soft or move.makes_way_for or move.room is not None)


class _Check:
    """Judges moves one after the other, and makes the accepted ones in the draft."""

    def __init__(self, draft: Draft, moves: Sequence[Move], limits: MoveLimits) -> None:
        self._limits = limits
        self._draft, self._problem, self._snapshot = draft, draft.problem, draft.snapshot
        view = draft.view
        guard = guard_term(view)
        self._judge = Judge(view, draft.enforced, guard, draft.settings.threshold)
        self._effort = Effort.of(len(draft.snapshot.nodes))
        self._steer = LandingSteer(draft, self._judge, self._effort)
        self._rendering = Rendering(draft.problem)
        together = TogetherJudge(draft, self._judge, draft.enforced, guard)
        self._rooms = RoomCheck(draft, self._judge, together, moves, limits.are_about)
        self._gangs = GangCheck(draft, moves)
        uids = [uid for move in moves for uid in (move.uid, move.makes_way_for) if uid]
        self._rows = draft.problem.rows_by_uid(uids)
        exchanges = ExchangeJudge(draft, draft.enforced, self._judge, guard)
        self._exchanges = ExchangeCheck(draft, exchanges, moves, self._rows)
        self._units: dict[str, Mapping[str, Verdict] | Refusal] = {}
        """Unit -> the verdicts on its moves by uid, or why it is not moved."""

    def exists(self, move: Move) -> bool:
        """Return whether the snapshot has the pod of ``move``."""
        return move.uid in self._rows

    def judged(self, move: Move) -> Rechecked | Refusal:
        """Return the move with its current expectations, made in the draft, or why it must not be made."""
        if move.cause is Cause.ENDED:
            why = self._draft.ended.stays(move.uid)
            return Rechecked(move, None) if why is None else Refusal.of(Why.HELD, text=why)
        pod = self._rows.get(move.uid)
        if pod is None:
            return Refusal.of(Why.GONE, who="the pod")
        cls, node = self._place(pod)
        if node < 0 or self._snapshot.nodes.names[node] != move.node:
            return Refusal.of(Why.FROM_NODE)
        verdict = self._verdict(move, pod, cls, node)
        if isinstance(verdict, Refusal):
            return verdict
        draft, shares = self._draft, verdict.by_strategy
        admitted = self._limits.admit(move, pod, shares)
        if isinstance(admitted, Refusal):
            return admitted
        cause = draft.cause(pod, shares, verdict.prediction, draft.enforced)
        draft.move(pod, cls, verdict.prediction)
        landings = self._rendering.landings(cls, verdict.prediction)
        self._steer.standing = verdict.marks
        now = replace(
            admitted,
            landings=landings,
            gain=cost_of_entries(verdict.gain),
            marks=self._rendering.names(verdict.marks),
            cause=cause,
            budgets=self._problem.disruptions.refs(pod),
        )
        step = PredictedMove(pod, cls, now.wave, verdict.prediction, verdict.marks, move.of_gang)
        return Rechecked(now, None, step)

    def _verdict(self, move: Move, pod: int, cls: int, node: int) -> Verdict | Refusal:
        """Return the verdict on a move of ``pod``, or why it should not be made."""
        if move.of_gang and move.room is None:
            return self._judge_unit(move)
        # Of a gang all of whose pods leave, the check of rooms asks about all.
        protections = [] if move.of_gang else self._draft.protections(pod)
        if protections:
            # The pod may be moved, by a command with other flags.
            by_flags = protections == ["selector"]
            kind = Why.FLAGS_LEAVE_OUT if by_flags else Why.NOW_PROTECTED
            return Refusal.of(kind, text=TEXTS["selector"], names=protections)
        if (why := self._why_not_asked(move, pod)) is not None:
            return why
        now = self._snapshot.method_of(cls, together=move.of_gang)
        if now is not move.method:
            return Refusal.of(Why.METHOD_CHANGED, planned=move.method, now=now)
        verdict = self._judge_move(move, pod, cls, node)
        if isinstance(verdict, Refusal):
            return verdict
        if verdict.refused is not None:
            return Refusal.of(Why.WITH_CODE, why=verdict.refused)
        pays = not move.makes_way_for and move.room is None
        if pays and _mends_less(verdict, move):
            return Refusal.of(Why.FIXES_LESS)
        return verdict

    def _judge_unit(self, move: Move) -> Verdict | Refusal:
        """Return the verdict on a move of pods that leave together; the first call judges all of them."""
        unit = move.gang
        if unit not in self._units:
            check = self._exchanges if move.exchanges else self._gangs
            self._units[unit] = check.judge(unit, now=self._limits.are_about(move))
        judged = self._units[unit]
        if isinstance(judged, Refusal):
            return Refusal.of(Why.UNIT_STAYS, unit=unit, why=judged)
        return judged[move.uid]

    def _why_not_asked(self, move: Move, pod: int) -> Refusal | None:
        """Return why no strategy may move ``pod`` now for what the move was planned for; None if one may."""
        if not self._problem.selected[pod]:
            return Refusal.of(Why.NOT_SELECTED_NOW)
        for_hard_rules = move.gain.hard or move.makes_way_for
        if for_hard_rules or not self._problem.held:
            return None
        return Refusal.of(Why.ZONE_CLOSED, zone=self._problem.held)

    def _judge_move(self, move: Move, pod: int, cls: int, node: int) -> Verdict | Refusal:
        if move.room is not None:
            return self._rooms.verdict(move)
        if move.makes_way_for:
            return self._of_first(pod, self._rows.get(move.makes_way_for))
        for_balance = not (move.gain.hard or move.gain.soft)
        if for_balance and not self._draft.names_pair(cls, node):
            return Refusal.of(Why.NOT_ASKED_NOW, strategy=move.strategy, node=move.node)
        verdict = self._judge.judge(pod, node, move.cost)
        unsure = is_gamble(verdict.gain, verdict.best) or _mends_less(verdict, move)
        enough = verdict.refused is None and not unsure
        if enough or not (move.marks and self._draft.settings.steer):
            return verdict
        better = self._steer.landing(pod, cls, node, move.cost, for_balance=for_balance)
        return better or verdict

    def _of_first(self, pod: int, other: int | None) -> Verdict | Refusal:
        """Return the verdict on moving ``pod`` to enable ``other``, or why that is unnecessary or useless."""
        if other is None:
            return Refusal.of(Why.GONE, who=_SECOND)
        if protections := self._draft.protections(other):
            return Refusal.of(Why.PROTECTED_NOW, who=_SECOND, names=protections)
        if not self._problem.may_move_both(self._place(pod), self._place(other)):
            return Refusal.of(Why.SECOND_NOT_SELECTED)
        if (why := self._may_stay(other)) is not None:
            return why
        cls, node = self._place(pod)
        verdict = self._judge.harmless(pod, node)
        chains = Chains(self._draft.view, self._judge, self._problem.costs, self._effort)
        step = FirstMove(pod, cls, node, verdict)
        if verdict.refused is None and not chains.helps(step, other, self._place(other)[1]):
            return Refusal.of(Why.SECOND_STUCK)
        return verdict

    def _may_stay(self, pod: int) -> Refusal | None:
        """Return why ``pod`` no longer needs another pod to move first; None if it still does."""
        cls, node = self._place(pod)
        if not self._draft.names_pair(cls, node):
            return Refusal.of(Why.SECOND_MAY_STAY)
        cost = float(self._problem.costs[pod])
        if self._judge.judge(pod, node, cost).refused is None:
            return Refusal.of(Why.SECOND_GOES_ALONE)
        return None

    def _place(self, pod: int) -> tuple[int, int]:
        """Return (class, node) of a pod of the snapshot."""
        return int(self._snapshot.pods.cls[pod]), int(self._snapshot.pods.node[pod])


def _mends_less(verdict: Verdict, move: Move) -> bool:
    """Return whether a move fixes clearly less than it was planned for.

    Earlier replacements landed elsewhere than expected, and its own would now violate a rule and have to move again.
    The next run plans with the actual landings.
    """
    planned = (move.gain.hard, move.gain.soft)
    differences = [now - then for now, then in zip(verdict.gain[:2], planned, strict=True)]
    return next((d < 0 for d in differences if abs(d) > _CLEARLY_LESS), False)
