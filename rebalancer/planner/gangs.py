"""Gangs move as one unit: their pods leave in one wave, and only if every one of them has a landing.

A PodGroup, LeaderWorkerSet or JobSet is of use only as long as enough of its pods run. A plan moves such a gang for a
hard rule, such as a node that must be empty, or in order to empty a node. It then moves all of its pods, also those
on other nodes. If the minimum number of pods of the gang is known, and that many stay, only the pods that the rule
names are moved. Work is counted in predictions, not in seconds, so that the same snapshot gives the same plan on any
machine.

All pods of a Deployment that moves by a restart of its rollout are such a unit, too: a rollout replaces every one of
them, wherever it runs. They go in turn, each once another is Ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from zlib import crc32

import numpy as np

from rebalancer.base.plain_text import and_more, count
from rebalancer.cost.guards import Guard, guard_term
from rebalancer.cost.term import Entry, Term
from rebalancer.plan.plan import Method, Move
from rebalancer.planner.draft import Draft
from rebalancer.planner.evicted import Evicted
from rebalancer.planner.judge import Judge
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.quota import QuotaLedger
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.rollout import foresee_rollout
from rebalancer.planner.verdict import TOLERANCE, Verdict
from rebalancer.scheduler.prediction import Prediction, uniform
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.membership import Membership
from rebalancer.snapshot.model import DisruptionBudget, GangKey, PodClass, PodFlag, Snapshot
from rebalancer.snapshot.protect import ALONE, BY_UNIT, JOB, names_of, sentence_of, text_of

BACK = 0.05
"""Most probability with which a pod that has to leave its node may land on it again."""
_DOMAINS = 3
"""So many domains are named in a message."""


@dataclass(frozen=True, slots=True)
class GangMove:
    """The move of a gang: its pods that move, their landings, and the gain."""

    pods: tuple[int, ...]
    """In the order of their evictions: those that the rule names first."""
    landings: tuple[Prediction, ...]
    gain: tuple[float, float, float]
    """Of all pods together, per entry; positive is better."""
    strategy: str
    """The strategy with the largest share in it."""
    named: frozenset[int] = frozenset()
    """Those of the pods that the rule names."""

    @property
    def share(self) -> tuple[float, float, float]:
        """The gain per pod: the gain of the gang, divided equally."""
        hard, soft, balance = (gain / len(self.pods) for gain in self.gain)
        return hard, soft, balance


def _is_as_good(move: GangMove | str, other: GangMove) -> bool:
    """Return whether a gang moves one way for as much as another way."""
    return not isinstance(move, str) and all(
        gain >= of_other - TOLERANCE for gain, of_other in zip(move.gain, other.gain, strict=True)
    )


def unit_of(gang: GangKey) -> str:
    """Return the name of a gang for ``Move.unit``."""
    return f"{gang[0]}: {gang[1]}"


class GangPlan:
    """Plans the moves of gangs that certain terms ask for."""

    def __init__(
        self, draft: Draft, terms: Sequence[WeightedTerm], *, observed: bool = False
    ) -> None:
        self._draft, self._observed = draft, observed
        self._all = terms
        self._predictions = 0
        """Made so far."""

    # What follows is made for clusters with gangs only.

    @cached_property
    def _asking(self) -> list[WeightedTerm]:
        """The terms for which gangs move: hard rules, and nodes that are emptied."""
        return [
            one
            for one in self._all
            if one.term.entry is Entry.HARD or one.term.packed() is not None
        ]

    @cached_property
    def _terms(self) -> list[WeightedTerm]:
        """The terms that count: these and those of soft rules."""
        asking = {id(one) for one in self._asking}
        return [one for one in self._all if id(one) in asking or one.term.entry is Entry.SOFT]

    @cached_property
    def _guard(self) -> Guard:
        return guard_term(self._draft.view)

    @cached_property
    def _judged_terms(self) -> list[Term]:
        return [one.term for one in self._terms]

    @cached_property
    def _judge(self) -> Judge:
        threshold = self._draft.settings.threshold
        return Judge(self._draft.view, self._all, self._guard, threshold)

    def run(self, first_wave: int, predictions: int) -> list[Chosen]:
        """Move in the draft the gangs that rules name, each in its own wave; record in the draft why other gangs stay.

        ``predictions``: once so many are made, no other gang is tried. Where they may not suffice for all gangs, each snapshot has
        another order of gangs, so that gangs that cannot move never keep the others from being tried.
        """
        chosen: list[Chosen] = []
        wave, named_of = first_wave, self._find_named()
        order = list(named_of)
        if sum(2 * len(self._draft.snapshot.gangs[gang]) for gang in order) > predictions:
            order.sort(key=self._draw)
        for gang in order:
            named = named_of[gang]
            move = (
                self.move_of(gang, named)
                if self._predictions < predictions
                else "it was not its turn in this run"
            )
            if isinstance(move, str):
                self._draft.gangs_that_stay[gang] = move
                continue
            chosen += self._made(gang, move, wave)
            wave += 1
            self._draft.state.reap()
            self._draft.allowance.next_wave()
        return chosen

    def move_of(
        self, gang: GangKey, named: Collection[int] | None = None, *, now: bool = True
    ) -> GangMove | str:
        """Return how a gang moves, or why it stays. ``now``: only within what the budgets allow now.

        ``named``: its pods that must leave their nodes because of rules; None: they are determined here.
        """
        named = self._find_named_of(gang) if named is None else named
        pods = going(self._draft.snapshot, gang, named)
        why = why_unfit(self._draft, gang) or why_moved(self._draft, pods)
        why = why or why_fails(self._draft.snapshot, pods)
        if why is None and now:
            why = exceeds_disruptions(self._draft, pods)
        if why is not None:
            return why
        move = self._landing(pods, named)
        if isinstance(move, str):
            return move
        why = self._unselected_pod(move)
        if why is None and now:
            why = exceeds_budgets(self._draft, move.pods, move.strategy)
        return move if why is None else why

    def _draw(self, gang: GangKey) -> int:
        """Return a number for a gang that is another one in a snapshot of another time."""
        return crc32(f"{self._draft.snapshot.captured_at:.0f} {gang[0]} {gang[1]}".encode())

    # -- which gangs, and which of their pods -----------------------------------------------------------

    def _find_named(self) -> dict[GangKey, list[int]]:
        """Return the gangs that move as units -> their pods that rules ask to move; those with most pods first."""
        snapshot = self._draft.snapshot
        units = [gang for gang in snapshot.gangs if is_unit(self._draft, gang)]
        if not units:
            return {}
        classes = np.unique(
            snapshot.pods.cls[np.concatenate([snapshot.gangs[gang] for gang in units])]
        )
        pairs = self._pairs(classes)
        named = {gang: self._among(snapshot.gangs[gang], pairs) for gang in units}
        named = {gang: pods for gang, pods in named.items() if pods}
        return dict(sorted(named.items(), key=lambda item: (-len(item[1]), item[0])))

    def _find_named_of(self, gang: GangKey) -> list[int]:
        pods = self._draft.snapshot.gangs[gang]
        return self._among(pods, self._pairs(np.unique(self._draft.snapshot.pods.cls[pods])))

    def _pairs(self, classes: Int32s) -> set[Pair]:
        """Return the pairs of ``classes`` that are asked to move: for less than this, no gang is interrupted."""
        rows = (one.selected_rows(one.term.candidates(classes)) for one in self._asking)
        return {pair for of in rows for pair in zip(of.cls.tolist(), of.node.tolist(), strict=True)}

    def _among(self, pods: Int32s, pairs: Collection[Pair]) -> list[int]:
        columns = self._draft.snapshot.pods
        return [
            pod for pod in pods.tolist() if (int(columns.cls[pod]), int(columns.node[pod])) in pairs
        ]

    # -- why it stays -----------------------------------------------------------------------------------

    def _unselected_pod(self, move: GangMove) -> str | None:
        """Return which of the pods the strategy of the move must not move; None if it may move all."""
        snapshot, problem = self._draft.snapshot, self._draft.problem
        for pod in move.pods:
            pair = int(snapshot.pods.cls[pod]), int(snapshot.pods.node[pod])
            if not problem.may_move(move.strategy, *pair):
                return f"the select of {move.strategy} does not match {snapshot.pod_ref(pod)}"
        return None

    # -- where they land --------------------------------------------------------------------------------

    def _landing(self, pods: Sequence[int], named: Collection[int]) -> GangMove | str:
        """Return the move with a landing for each of ``pods``, or why there is none that pays."""
        draft, state = self._draft, self._draft.state
        for pod in pods:
            self._predictions += 1
            prediction = draft.scheduler.pending.foresee(state, pod)
            if prediction.unmodelled:
                return f"{draft.snapshot.pod_ref(pod)}: not predictable: {', '.join(prediction.unmodelled)}"
            if prediction.takers:
                return f"{draft.snapshot.pod_ref(pod)}: pods that are pending would take the room that it leaves"
        before = potentials(self._draft, self._judged_terms, self._guard, pods)
        move = self._way(pods, named, before)
        if isinstance(move, str):
            return move
        for pod in self._returning(move):
            if not _is_as_good(self._way(pods, named, before, back=pod), move):
                return f"{draft.snapshot.pod_ref(pod)}: the scheduler might put it back"
        return move

    def _way(
        self,
        pods: Sequence[int],
        named: Collection[int],
        before: tuple[Sequence[float], Sequence[float]],
        back: int | None = None,
    ) -> GangMove | str:
        """Return the move with each replacement on its most probable node, but that of ``back`` on its own; or why it does not pay."""
        draft = self._draft
        foreseen = self._foresee(pods, named)
        if isinstance(foreseen, str):
            return foreseen
        with Evicted(draft, pods, gone=bool(foreseen)) as away:
            self._predictions += len(pods)
            landing_of: dict[int, Prediction] = {}
            for pod in leaders_first(draft.snapshot, pods):
                if pod == back:
                    own = np.array([draft.snapshot.pods.node[pod]], np.int32)
                    away.put(pod, int(own[0]))
                    landing_of[pod] = uniform(own)
                    continue
                landing = away.put_as(pod, foreseen[pod]) if pod in foreseen else away.place(pod)
                why = self._refusal(pod, landing) or why_unsure(draft.snapshot, pod, landing)
                if why is not None:
                    return f"{draft.snapshot.pod_ref(pod)}: {why}"
                landing_of[pod] = landing
            after = potentials(self._draft, self._judged_terms, self._guard, pods)
        return self._paying(pods, named, [landing_of[pod] for pod in pods], before, after)

    def _foresee(
        self, pods: Sequence[int], named: Collection[int]
    ) -> Mapping[int, Prediction] | str:
        """Return pod -> landing where a rollout replaces ``pods``, or why it might never end; empty where they are evicted."""
        if not self._draft.snapshot.surge_of(pods):
            return {}
        self._predictions += 2 * len(pods)
        return foresee_rollout(self._draft, pods, named)

    def _returning(self, move: GangMove) -> list[int]:
        """Return the pods that rules name and that may land on their own nodes again.

        That is as good where a rule is about the gang as a whole, such as its spread over zones.
        """
        node = self._draft.snapshot.pods.node
        return [
            pod
            for pod, landing in zip(move.pods, move.landings, strict=True)
            if pod in move.named
            and float(landing.probability[landing.nodes == node[pod]].sum()) > BACK
        ]

    def _refusal(self, pod: int, prediction: Prediction) -> str | None:
        if not len(prediction.nodes):
            return "no node takes its replacement once all of the gang are gone"
        unwanted = self._judge.unwanted(pod, prediction)
        return None if unwanted is None else unwanted.text(self._draft.snapshot)

    def _paying(
        self,
        pods: Sequence[int],
        named: Collection[int],
        landings: Sequence[Prediction],
        before: tuple[Sequence[float], Sequence[float]],
        after: tuple[Sequence[float], Sequence[float]],
    ) -> GangMove | str:
        """Return the move, or why it does not pay. ``before`` and ``after``: the potential of each term, and of each group of the guard."""
        if has_broken(before[1], after[1]):
            return "a hard rule of other pods would break where it would land"
        by_strategy: dict[str, list[float]] = {}
        for one, was, then in zip(self._terms, before[0], after[0], strict=True):
            of_strategy = by_strategy.setdefault(one.strategy, [0.0, 0.0, 0.0])
            of_strategy[one.term.entry] += one.weight * (was - then)
        gain = [sum(of_entry) for of_entry in zip(*by_strategy.values(), strict=True)]
        entry = next((e for e in range(3) if abs(gain[e]) > TOLERANCE), 0)
        if gain[entry] <= TOLERANCE or max(gain[0], gain[2]) <= TOLERANCE:
            return "nothing that a gang is moved for gets better where all of it would land"
        cost = float(self._draft.problem.costs[list(pods)].sum())
        threshold = self._draft.settings.threshold
        least = threshold.imbalance if entry == Entry.IMBALANCE else threshold.pods
        if gain[entry] / cost + TOLERANCE < least:
            return f"gain {gain[entry]:.3g} at cost {cost:.3g} for all of it, the policy asks for {least:g}"
        shares = {name: of[entry] for name, of in by_strategy.items()}
        strategy = max(shares, key=lambda name: (shares[name], name))
        return GangMove(
            tuple(pods), tuple(landings), (gain[0], gain[1], gain[2]), strategy, frozenset(named)
        )

    # -- make -------------------------------------------------------------------------------------------

    def _made(self, gang: GangKey, move: GangMove, wave: int) -> Iterator[Chosen]:
        """Make the moves of a gang in the draft, and yield them; each has an equal share in the gain."""
        draft, snapshot = self._draft, self._draft.snapshot
        reasons = self._reasons(gang, move)
        for pod, prediction, reason in zip(move.pods, move.landings, reasons, strict=True):
            cls, node = int(snapshot.pods.cls[pod]), int(snapshot.pods.node[pod])
            draft.move(pod, cls, prediction)
            ready = snapshot.pods.is_ready(pod)
            draft.allowance.spend(cls, node, move.strategy, ready=ready)
            yield Chosen(
                pod,
                cls,
                node,
                move.share,
                prediction,
                move.strategy,
                reason,
                wave,
                self._observed,
                unit=unit_of(gang),
                gang=unit_of(gang),
            )

    def _reasons(self, gang: GangKey, move: GangMove) -> list[str]:
        """Return the reason of each move; asked before the first of them is made."""
        pods = self._draft.snapshot.pods
        how = "in turn" if self._draft.snapshot.surge_of(move.pods) else "together"
        whole = f"{count(len(move.pods), 'pod')} of {gang[1]} leave {how}"
        reasons = []
        for pod in move.pods:
            pair = int(pods.cls[pod]), int(pods.node[pod])
            texts = (one.term.describe(*pair) for one in self._terms if pod in move.named)
            with_first = f"goes with {self._draft.snapshot.pod_ref(move.pods[0])}"
            reasons.append(f"{next(filter(None, texts), with_first)}; {whole}")
        return reasons


class GangCheck:
    """Judges the moves of gangs again on a newer snapshot, all moves of one gang together."""

    def __init__(self, draft: Draft, moves: Sequence[Move]) -> None:
        self._draft = draft
        self._moves: dict[str, list[Move]] = {}
        """Unit -> the moves of its pods."""
        self._torn: set[str] = set()
        """Units with moves in two waves, or with others between them."""
        by_itself = [move for move in moves if move.room is None]
        of_gangs = groupby(by_itself, key=lambda move: (move.gang, move.wave))
        for (unit, _), together in of_gangs:
            if unit in self._moves:
                self._torn.add(unit)
            if unit:
                self._moves.setdefault(unit, []).extend(together)
        self._known: dict[str, Mapping[str, Verdict] | str] = {}

    def verdict(self, move: Move, *, now: bool) -> Verdict | str:
        """Return the verdict on a move, or why its gang must not move. ``now``: see :meth:`GangPlan.move_of`."""
        unit = move.unit
        if unit not in self._known:
            self._known[unit] = self._judge(unit, now=now)
        known = self._known[unit]
        return known if isinstance(known, str) else known[move.uid]

    def _judge(self, unit: str, *, now: bool) -> Mapping[str, Verdict] | str:
        snapshot = self._draft.snapshot
        gang = next((gang for gang in snapshot.gangs if unit_of(gang) == unit), None)
        if gang is None:
            return f"{unit} is gone"
        if not is_unit(self._draft, gang):
            return f"the pods of {unit} are not kept together any more: left to the next run"
        if unit in self._torn:
            return f"{unit} stays as a whole: the plan does not move its pods one right after the other in one wave"
        how = method_of(snapshot, snapshot.gangs[gang])
        if other := next((one.method for one in self._moves[unit] if one.method is not how), None):
            return f"{unit} stays as a whole: planned as {other}, it would be {how} now"
        move = GangPlan(self._draft, self._draft.enforced).move_of(gang, now=now)
        if isinstance(move, str):
            return f"{unit} stays as a whole: {move}"
        uids = [snapshot.pods.uid[pod] for pod in move.pods]
        if set(uids) != {one.uid for one in self._moves[unit]}:
            return f"{unit} stays as a whole: other pods of it would go than planned"
        gain = move.share
        return {
            uid: Verdict(landing, gain, gain, {move.strategy: max(gain)}, None)
            for uid, landing in zip(uids, move.landings, strict=True)
        }


def method_of(snapshot: Snapshot, pods: Sequence[int] | Int32s) -> Method:
    """Return how ``pods``, all of a unit, move."""
    return Method.RESTART if snapshot.surge_of(pods) else Method.EVICT


def is_unit(draft: Draft, gang: GangKey) -> bool:
    """Return whether the policy moves the pods of this gang together; other gangs move pod by pod."""
    protected = draft.problem.protected[draft.snapshot.gangs[gang]]
    return bool((protected & BY_UNIT).any())


def units_of(draft: Draft, mine: Bools) -> dict[int, Int32s]:
    """Return pod -> all pods of its gang, for the gangs that may move as a whole and lie entirely in ``mine`` (P,).

    For other gangs, record in the draft why they stay.
    """
    units: dict[int, Int32s] = {}
    for gang, pods in draft.snapshot.gangs.items():
        if not is_unit(draft, gang):
            continue
        why = why_unfit(draft, gang) or why_moved(draft, pods.tolist())
        why = why or why_fails(draft.snapshot, pods.tolist())
        why = why or exceeds_disruptions(draft, pods.tolist())
        if why is None and not mine[pods].all():
            why = "the select of the strategy does not match all of its pods"
        if why is None:
            units |= dict.fromkeys(pods.tolist(), pods)
        else:
            draft.gangs_that_stay[gang] = why
    return units


def going(snapshot: Snapshot, gang: GangKey, named: Collection[int]) -> list[int]:
    """Return the pods that leave where the ``named`` ones have to: these if enough of the gang stay, else all, the named ones first.

    Of a gang whose controllers need not make all of it again only the named ones leave, too, where a Job would fail by the others.
    """
    others = sorted(set(snapshot.gangs[gang].tolist()) - set(named))
    whole = [*named, *others]
    if is_enough(snapshot, gang, len(others)):
        return list(named)
    if why_fails(snapshot, whole) and _is_divisible(snapshot, gang):
        return list(named)
    return whole


def _is_divisible(snapshot: Snapshot, gang: GangKey) -> bool:
    classes = np.unique(snapshot.pods.cls[snapshot.gangs[gang]]).tolist()
    return all(snapshot.classes[cls].membership.divisible for cls in classes)


def why_fails(snapshot: Snapshot, pods: Sequence[int]) -> str | None:
    """Return which Job would fail for good, or might, if all of ``pods`` were evicted; None if none would."""
    leave: dict[tuple[str, str], tuple[PodClass, int]] = {}
    for cls, number in Counter(snapshot.pods.cls[list(pods)].tolist()).items():
        of_class = snapshot.classes[cls]
        if of_class.controller == JOB:
            job = of_class.controller_name, of_class.controller_uid
            leave[job] = of_class, number + leave.get(job, (of_class, 0))[1]
    for (name, _), (of_class, number) in sorted(leave.items(), key=lambda item: item[0]):
        if of_class.job is None:
            return f"its Job {name} was not read: how many failed pods it allows is not known"
        if not of_class.job.allows(number):
            return (
                f"its Job {name} would fail: it {of_class.job.text}; "
                f"{count(number, 'pod')} would be evicted at once"
            )
    return None


def leaders_first(snapshot: Snapshot, pods: Sequence[int]) -> list[int]:
    """Return ``pods`` in the order in which their controllers make them again: the others of a group follow its leader."""
    return sorted(pods, key=lambda pod: not _membership(snapshot, pod).leads)


def why_unsure(snapshot: Snapshot, pod: int, landing: Prediction) -> str | None:
    """Return why it is not known where a group lands that has a domain to itself; None if ``pod`` does not lead one."""
    of = _membership(snapshot, pod)
    if not of.leads or of.domain is None:
        return None
    key, shares = of.domain[0], Counter[str]()
    for node, share in zip(landing.nodes.tolist(), landing.probability.tolist(), strict=True):
        shares[snapshot.nodes.labels.of(node).get(key, "")] += share
    if not shares or sum(shares.values()) - max(shares.values()) <= BACK:
        return None
    where = and_more(sorted(shares), _DOMAINS)
    return f"not predictable: it may land in each {key} of {where}, and its controller has the others of {of.gang} follow it"


def _membership(snapshot: Snapshot, pod: int) -> Membership:
    return snapshot.classes[int(snapshot.pods.cls[pod])].membership


def missing_of(snapshot: Snapshot, gang: GangKey) -> str | None:
    """Return that pods of a gang are still to be made; None if none are, as far as its pods and their Jobs say it."""
    if (why := _of_size(snapshot, gang)) is not None:
        return why
    classes = snapshot.pods.cls[snapshot.gangs[gang]].tolist()
    of_job = Counter(snapshot.classes[cls].controller_uid for cls in classes)
    for of in (snapshot.classes[cls] for cls in dict.fromkeys(classes)):
        if of.job is not None and of_job[of.controller_uid] < of.job.runs:
            there = f"{of_job[of.controller_uid]} of {count(of.job.runs, 'pod')}"
            return f"{there} of its Job {of.controller_name} exist: it is not whole now"
    return None


def _of_size(snapshot: Snapshot, gang: GangKey) -> str | None:
    """Return that a gang has fewer pods than its pods say; None if it has not, or they say nothing."""
    pods = snapshot.gangs[gang]
    classes = np.unique(snapshot.pods.cls[pods]).tolist()
    said = max((snapshot.classes[cls].membership.size or 0 for cls in classes), default=0)
    if len(pods) >= said:
        return None
    return f"{len(pods)} of {count(said, 'pod')} of it exist: it is not whole now"


def is_enough(snapshot: Snapshot, gang: GangKey, stay: int) -> bool:
    """Return whether a gang is of use, and may be disrupted, while so many of its pods stay."""
    groups = [
        snapshot.group_of(snapshot.classes[cls])
        for cls in np.unique(snapshot.pods.cls[snapshot.gangs[gang]]).tolist()
    ]
    if any(group is not None and group.together for group in groups):
        return False
    return stay >= snapshot.gang_least.get(gang, np.inf)


def why_unfit(draft: Draft, gang: GangKey) -> str | None:
    """Return why a pod of a gang prevents its move; None if no pod does."""
    snapshot = draft.snapshot
    pods = snapshot.gangs[gang]
    gone = (snapshot.pods.node[pods] < 0) | ((snapshot.pods.flags[pods] & PodFlag.TERMINATING) != 0)
    if gone.any():
        return f"{count(int(gone.sum()), 'pod')} of it {'is' if gone.sum() == 1 else 'are'} starting or ending: it is not whole now"
    if (why := _of_size(snapshot, gang)) is not None:
        return why
    for pod in pods.tolist():
        if bits := int(draft.problem.protected[pod]) & ~ALONE:
            texts = {name: text_of(snapshot, pod, name) for name in names_of(bits)}
            return f"{snapshot.pod_ref(pod)} is protected: {sentence_of(texts)}"
        if not draft.problem.selected[pod]:
            return f"no strategy selects {snapshot.pod_ref(pod)}"
        of_class = snapshot.classes[int(snapshot.pods.cls[pod])]
        if of_class.restarts and not of_class.membership.surge:
            return f"{snapshot.pod_ref(pod)} moves by a restart of its rollout, which is not sent together with evictions"
    return None


def why_moved(draft: Draft, pods: Sequence[int]) -> str | None:
    """Return that one of ``pods`` has moved in the draft, if so: none moves twice in a plan."""
    at_home = draft.state.at_home(np.array(pods, np.int32))
    return None if at_home.all() else "it moves already in this plan"


def exceeds_disruptions(draft: Draft, pods: Sequence[int]) -> str | None:
    """Return why PodDisruptionBudgets forbid the eviction of all ``pods`` at once; None if they allow it."""
    snapshot, disruptions = draft.snapshot, draft.problem.disruptions
    spent: Counter[int] = Counter()
    for pod in pods:
        cls, ready = int(snapshot.pods.cls[pod]), snapshot.pods.is_ready(pod)
        if len(disruptions.of(cls)) > 1:
            forbidden = disruptions.forbidden(cls)
            return f"{snapshot.pod_ref(pod)}: {forbidden.text(snapshot) if forbidden else ''}"
        spent.update(disruptions.spent_by(cls, ready=ready))
    for index, number in sorted(spent.items()):
        budget = snapshot.budgets[index]
        if number > budget.allowed:
            return (
                f"{budget.ref} {_allows(budget, number)}; {count(number, 'pod')} would go at once"
            )
    return None


def exceeds_budgets(draft: Draft, pods: Sequence[int], strategy: str) -> str | None:
    """Return the limit that the moves of ``pods`` at once would exceed, the policy's or the strategy's; None if there is none.

    They count as so many moves in the limits per run and hour. In those in flight they may begin if each of them might: smaller
    steps do not exist.
    """
    snapshot, allowance = draft.snapshot, draft.allowance
    quota = QuotaLedger(snapshot)
    # So many replacements there are beside what they replace.
    beside = snapshot.surge_of(pods) or len(pods)
    for number, pod in enumerate(pods):
        cls, node = int(snapshot.pods.cls[pod]), int(snapshot.pods.node[pod])
        if (limit := allowance.over(strategy, cls)) is not None:
            return limit
        if not allowance.has_room_for(len(pods), strategy, cls):
            return f"{count(len(pods), 'move')} at once are more than the budgets of this run leave"
        ready = snapshot.pods.is_ready(pod)
        if (limit := allowance.waits(cls, node, strategy, ready=ready)) is not None:
            return limit
        if number < beside and not snapshot.waits(cls):
            if (lack := quota.lacks(cls)) is not None:
                return lack
            quota.take(cls)
    return None


def potentials(
    draft: Draft, terms: Sequence[Term], guard: Guard, pods: Sequence[int]
) -> tuple[list[float], tuple[float, ...]]:
    """Return the potential of each of ``terms``, of all that moves of ``pods`` may change, and of each group of the guard."""
    snapshot = draft.snapshot
    pairs = {
        (cls, snapshot.classes[cls].replacement) for cls in snapshot.pods.cls[list(pods)].tolist()
    }
    for term in terms:
        for pair in sorted(pairs):
            # A term makes the groups of a class once it is asked about it.
            term.concerns(*pair)
    return [term.potential() for term in terms], guard.of_each()


def has_broken(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether a group of the guard is violated more than ``before``."""
    return any(then > was + TOLERANCE for was, then in zip(before, after, strict=True))


def _allows(budget: DisruptionBudget, number: int) -> str:
    """Return what a budget allows, and whether it could ever allow ``number`` at once."""
    now = f"allows {count(max(0, budget.allowed), 'disruption')} now"
    most = max(0, budget.expected - budget.desired)
    return f"{now}, and never more than {most}" if budget.expected and most < number else now
