"""Judge a reviewed plan on the current cluster; the result is the plan of ``apply``.

The file defines which pods move, in which order, which of them enable others, and the promised gain of each move.
Everything else is read from the cluster, and every move is judged as between the waves of a run; so the content of the
file cannot cause a move that a run would not make.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from rebalancer.base.plain_text import count
from rebalancer.cost.bound import lower_bound
from rebalancer.plan.plan import (
    Backlog,
    Cause,
    Code,
    Explanation,
    Later,
    Move,
    Outcome,
    Plan,
    Status,
)
from rebalancer.planner.draft import Draft
from rebalancer.planner.notices import notices
from rebalancer.planner.plan import Callbacks, Decision, last_wave, size_of
from rebalancer.planner.problem import Problem
from rebalancer.planner.recheck import MoveLimits, expect_landings, rechecked
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.settings import Settings
from rebalancer.planner.unmet import REVIEWED, explained, rules_elsewhere, scores_of
from rebalancer.planner.verdict import TOLERANCE
from rebalancer.snapshot.model import PodFlag, Snapshot


class Waves(MoveLimits):
    """Assigns moves to waves, one by one in order, using up the draft's allowance."""

    def __init__(self, draft: Draft, moves: Sequence[Move]) -> None:
        """``moves``: all moves to be assigned; the snapshot contains their pods."""
        self._draft, self._allowance = draft, draft.allowance
        self._snapshot = draft.snapshot
        self._rows = draft.problem.rows_by_uid([move.uid for move in moves])
        self._wave, self._taken = 1, 0
        self._unit = ""
        """The gang of the last move, if any: a gang is moved in a wave of its own."""
        self._planned = 0
        """Wave that the last move was planned in."""

    def admit(self, move: Move, pod: int, shares: Mapping[str, float]) -> Move | Refusal:  # noqa: ARG002
        """Return the move in its wave, under the strategy that it counts for."""
        move = _attribute(move, shares)
        wave = self.place(move)
        if isinstance(wave, Refusal):
            return Refusal.of(Why.WITH_CODE, why=wave)
        return replace(move, wave=wave)

    def place(self, move: Move) -> int | Refusal:
        """Return the wave of ``move``; later than the waves of moves planned in an earlier wave."""
        pod = self._rows[move.uid]
        cls, node = int(self._snapshot.pods.cls[pod]), int(self._snapshot.pods.node[pod])
        ready = self._snapshot.pods.is_ready(pod)
        if (forbidden := self._draft.forbidden(pod)) is not None:
            return forbidden
        if (limit := self._allowance.over(move.strategy, cls)) is not None:
            return Refusal.of(Why.BUDGET, limit=limit)
        unit = move.gang
        begun = bool(unit) and unit == self._unit
        if move.wave != self._planned or unit != self._unit:
            self.next_wave()
        self._planned, self._unit = move.wave, unit
        refuse = partial(self._allowance.refuse, cls, node, move.strategy, ready=ready)
        if not begun and refuse() is not None:
            self.next_wave()
            if (why := refuse()) is not None:
                return why
        self._taken += 1
        self._allowance.spend(cls, node, move.strategy, ready=ready)
        return self._wave

    def next_wave(self) -> None:
        """Start the next wave, unless this one is empty: waiting would not change the pods in flight."""
        if self._taken:
            self._wave, self._taken = self._wave + 1, 0
            self._allowance.next_wave()


Ending = tuple[Status, str]
"""The outcome of a move before anything was tried, and the reason."""

_LATER: Mapping[Code | None, Status] = {Code.PDB: Status.BLOCKED, Code.BUDGET: Status.NOT_ATTEMPTED}
"""What may be otherwise the next time."""


def review(
    moves: Sequence[Move], problem: Problem, settings: Settings, callbacks: Callbacks | None = None
) -> Decision:
    """Return the valid ones of ``moves`` on ``problem``, in their order, in the waves that budgets require.

    ``moves`` are ordered by wave, one per pod; an enabling move is in an earlier wave than the move it enables.
    """
    callbacks = callbacks or Callbacks()
    with callbacks.phase("terms"):
        draft = Draft(problem, settings)
    with callbacks.phase("plan"):
        return _Review(moves, problem, settings).on(draft)


class _Review:
    """Repeats judging until the remaining moves are consistent."""

    def __init__(self, moves: Sequence[Move], problem: Problem, settings: Settings) -> None:
        self._moves, self._problem, self._settings = moves, problem, settings
        self._snapshot = problem.snapshot
        self._named = {move.uid for move in moves}
        self._ended: dict[str, Ending] = {}

    def on(self, draft: Draft) -> Decision:
        before, bounds, elsewhere = scores_of(draft), draft.bounds(), rules_elsewhere(draft)
        reviewed = len(self._moves)
        ended = [
            replace(move, cause=Cause.ENDED) for move in self._moves if draft.ended.has(move.uid)
        ]
        self._moves = [move for move in self._moves if not draft.ended.has(move.uid)]
        standing = list(self._standing())
        observed = {m.uid for m in standing if self._problem.is_observed(m.strategy)}
        draft, left = self._settle(draft, [m for m in standing if m.uid not in observed])
        draft.state.reap()  # as a search leaves it
        known = {m.uid: m for m in standing} | {m.uid: m for m in left}
        moves, outcomes = self._outcomes(known, observed)
        removals = draft.ended.remove(draft.allowance, only={move.uid for move in ended}).in_wave(
            last_wave(moves) + 1
        )
        refused = list(_refuse_deletions(ended, removals.moves, draft))
        outcomes |= {one.move.uid: one for one in refused}
        left += [move for move in removals.moves if not move.observed]
        observed |= {move.uid for move in removals.moves if move.observed}
        explanation = Explanation(
            skips=(),
            before=before,
            after=scores_of(draft),
            lower_bound=lower_bound(bounds, draft.bounds()),
            stopped=_describe_stop(reviewed, len(left), outcomes.values(), len(observed)),
            backlog=self._backlog(draft),
            funnel={**size_of(self._problem), "planned": reviewed, "moves": len(left)},
            unmet=explained(draft, (), REVIEWED),
            elsewhere=elsewhere,
        )
        moves = (*moves, *(one.move for one in refused), *removals.moves)
        plan = Plan(moves, Later(lambda: explanation), warnings=notices(draft))
        return Decision(plan, draft.streaks(), outcomes)

    def _settle(self, draft: Draft, moves: list[Move]) -> tuple[Draft, list[Move]]:
        """Return the valid moves in their waves, and the draft whose state includes them.

        When later moves were judged, the state included moves that only enable one that a budget defers, and a wave that
        a budget divides was one. Then all are judged again.
        """
        moves = self._keep_linked(moves)
        while True:
            kept = self._judge_again(draft, moves)
            left, uids = self._keep_linked(kept), {move.uid for move in kept}
            if _waves(left) == _waves([move for move in moves if move.uid in uids]):
                return draft, left
            draft, moves = Draft(self._problem, self._settings), left

    # -- why a move ends here ----------------------------------------------------------------------

    def _standing(self) -> Iterator[Move]:
        """Yield the moves whose pod is still in place, updated from the cluster."""
        snapshot = self._snapshot
        rows = self._problem.rows_by_uid([move.uid for move in self._moves])
        ended = _uids_of_ended(snapshot, {move.uid for move in self._moves})
        taken = _refs(snapshot, [move.pod for move in self._moves if move.uid not in rows])
        for move in self._moves:
            pod = rows.get(move.uid)
            if pod is None:
                self._ended[move.uid] = (
                    (Status.DROPPED, "it has ended, and no strategy removes it any more")
                    if move.uid in ended
                    else _missing(move.ref in taken)
                )
            elif (why := _elsewhere(snapshot, pod, move)) is not None:
                self._ended[move.uid] = why
            else:
                yield _renew(self._problem, pod, move)

    def _judge_again(self, draft: Draft, moves: Sequence[Move]) -> list[Move]:
        kept: list[Move] = []
        for one in expect_landings(draft, rechecked(draft, moves, Waves(draft, moves))):
            if one.why is None:
                kept.append(one.move)
            else:
                status = _LATER.get(one.why.code, Status.DROPPED)
                self._ended[one.move.uid] = status, one.why.text(self._snapshot)
        return kept

    def _keep_linked(self, moves: Sequence[Move]) -> list[Move]:
        """Return ``moves`` without first moves whose second move was dropped."""
        coming: set[str] = set()
        linked: list[Move] = []
        moves = self._whole_units(moves)
        for move in reversed(moves):
            for_a_move = move.makes_way_for and move.room is None and not move.exchanges
            if for_a_move and move.makes_way_for not in coming:
                self._ended[move.uid] = Status.DROPPED, self._in_vain(move.makes_way_for)
                continue
            coming.add(move.uid)
            linked.append(move)
        return linked[::-1]

    def _whole_units(self, moves: Sequence[Move]) -> list[Move]:
        """Return the moves without those of incomplete units."""
        left = {move.uid for move in moves}
        broken = {move.unit for move in self._moves if move.uid not in left} - {""}
        for move in moves:
            if move.unit in broken:
                why = "another pod stays that would have to leave with it"
                self._ended[move.uid] = Status.DROPPED, why
        return [move for move in moves if move.unit not in broken]

    def _in_vain(self, other: str) -> str:
        if other in self._ended:
            return f"the pod that it goes first for stays: {self._ended[other][1]}"
        if other in self._named:
            return "the pod that it goes first for stays: its strategy only observes"
        return "the move that it goes first for is not in the plan"

    # -- what is reported of it ------------------------------------------------------------------------

    def _outcomes(
        self, known: Mapping[str, Move], observed: set[str]
    ) -> tuple[tuple[Move, ...], dict[str, Outcome]]:
        """Return all moves in the file's order, observed ones last, and the outcomes of those that end here.

        A dropped move is shown in the wave of the move before it.
        """
        moves: list[Move] = []
        ended: dict[str, Outcome] = {}
        wave = 1
        for given in self._moves:
            if given.uid in observed:
                continue
            move = known.get(given.uid, given)
            if move.uid in self._ended:
                move = replace(move, wave=wave)
                ended[move.uid] = Outcome(move, *self._ended[move.uid])
            wave = move.wave
            moves.append(move)
        aside = [known[given.uid] for given in self._moves if given.uid in observed]
        wave = wave + 1 if moves else 1
        for later, (_, of_wave) in enumerate(groupby(aside, key=lambda move: move.wave)):
            moves += [replace(move, wave=wave + later, observed=True) for move in of_wave]
        return tuple(moves), ended

    def _backlog(self, draft: Draft) -> Backlog:
        later = sum(status is Status.NOT_ATTEMPTED for status, _ in self._ended.values())
        return Backlog(later, -(-later // max(1, draft.allowance.per_run)))


def _refuse_deletions(
    asked: Sequence[Move], removed: Sequence[Move], draft: Draft
) -> Iterator[Outcome]:
    """Yield the outcomes of finished pods that are not deleted."""
    done = {move.uid for move in removed}
    for move in asked:
        if move.uid not in done and (why := draft.ended.stays(move.uid)) is not None:
            yield Outcome(move, Status.DROPPED, why)
        elif move.uid not in done:
            yield Outcome(move, Status.NOT_ATTEMPTED, "a budget of the run is used up")


def _missing(taken: bool) -> Ending:
    if taken:
        return Status.CHANGED, "another pod has its name now"
    return Status.GONE, "the pod is gone"


def _uids_of_ended(snapshot: Snapshot, uids: set[str]) -> set[str]:
    """Return the ``uids`` that belong to finished pods."""
    if snapshot.finished is None:
        return set()
    column = snapshot.finished.pods.uid
    return {column[row] for row in column.rows_of(uids).tolist()}


def _refs(snapshot: Snapshot, names: Sequence[str]) -> set[str]:
    """Return ``namespace/name`` of the pods on the nodes ``names``."""
    return {snapshot.pod_ref(row) for row in snapshot.pods.name.rows_of(set(names)).tolist()}


def _elsewhere(snapshot: Snapshot, pod: int, move: Move) -> Ending | None:
    """Return why the pod with the move's uid is not the planned one, or is gone; None if it is in place."""
    if (ref := snapshot.pod_ref(pod)) != move.ref:
        return Status.CHANGED, f"the uid is that of {ref}"
    if int(snapshot.pods.flags[pod]) & PodFlag.TERMINATING:
        return Status.GONE, "the pod is terminating already"
    node = int(snapshot.pods.node[pod])
    name = snapshot.nodes.names[node] if node >= 0 else "no node"
    return None if name == move.node else (Status.CHANGED, f"the pod is on {name} now")


def _renew(problem: Problem, pod: int, move: Move) -> Move:
    """Return the move with its pod's data from the cluster, which override the file's."""
    cls = int(problem.snapshot.pods.cls[pod])
    owner = problem.snapshot.owner_of(cls)
    return replace(
        move,
        owner=owner.ref if owner is not None else "",
        cost=round(float(problem.costs[pod]), 6),
        budgets=problem.disruptions.refs(pod),
    )


def _attribute(move: Move, shares: Mapping[str, float]) -> Move:
    """Return the move under the strategy it counts for: the one in the file, if that shares in the gain.

    An enabling move counts for the strategy of the move it enables.
    """
    most = max(shares, key=lambda name: (shares[name], name), default=move.strategy)
    made = bool(move.makes_way_for) or move.room is not None
    agrees = made or shares.get(move.strategy, 0.0) > TOLERANCE
    if agrees or shares.get(most, 0.0) <= TOLERANCE:
        return move
    return replace(move, strategy=most)


def _waves(moves: Sequence[Move]) -> list[list[str]]:
    return [[m.uid for m in wave] for _, wave in groupby(moves, key=lambda move: move.wave)]


def _describe_stop(planned: int, left: int, ended: Iterable[Outcome], observed: int) -> str:
    """Return one line on how many moves of the plan were valid when judged again; some may be done since."""
    if not planned:
        return "Nothing to do: the plan has no moves."
    counts = Counter(outcome.status for outcome in ended)
    words = {Status.NOT_ATTEMPTED: "held back by budgets", Status.OBSERVED: "observed only"}
    counts[Status.OBSERVED] = observed
    why = ", ".join(
        f"{counts[status]} {words.get(status, status.value)}" for status in Status if counts[status]
    )
    if not left:
        return f"Nothing to do: nothing is left of the plan ({why})."
    of = count(planned, "move")
    if left == planned:
        return f"Judged again: {'' if planned == 1 else 'all '}{of} of the plan could go."
    again = " Apply it again later for the remaining moves." if counts[Status.NOT_ATTEMPTED] else ""
    return f"Judged again: {left:,} of {of} of the plan could go ({why}).{again}"
