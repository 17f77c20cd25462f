"""Check nodes before anything is changed: where pods would land, what to wait for, and obstacles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.base.plain_text import and_more
from rebalancer.kube.client import Client
from rebalancer.kube.evict import AnswerKind, EvictionAnswer, Restart, evict
from rebalancer.machines.drain.triage import Fate, Triaged
from rebalancer.machines.reasons import DrainVerdict, Obstacle, Reason
from rebalancer.plan.plan import Code, Cost, Method, Move, Plan, Skip
from rebalancer.planner.disruption import DisruptionBudgets
from rebalancer.planner.gangs import unit_of
from rebalancer.planner.problem import Problem
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.model import GangKey, PodClass, Snapshot
from rebalancer.snapshot.protect import CANNOT_SURGE, TEXTS
from rebalancer.snapshot.state import ClusterState
from rebalancer.snapshot.zones import closed_zones
from rebalancer.wire.times import rfc3339

STRATEGY = "leaving"
_LIMITS = frozenset({Code.BUDGET, Code.PDB})
"""Codes of temporary obstacles: the next round checks again."""


REFUSING = frozenset(
    {DrainVerdict.NO_ROOM, DrainVerdict.NEVER, DrainVerdict.MISCONFIGURED, DrainVerdict.REFUSED}
)
"""Verdicts that end a drain before it begins: it would never be done."""
_ORDER = list(DrainVerdict)
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class PodCheck:
    """The check of one pod on a node to be emptied."""

    pod: int
    fate: Fate
    verdict: DrainVerdict
    code: str
    """Stable: a ``rebalancer.machines.reasons.FateReason``, or a reason code of plans."""
    message: str
    move: Move | None = None
    """Where its replacement is expected; None if it has none, or none is foreseen."""
    full: tuple[str, ...] = ()
    """Where none is foreseen: nodes that only the requests of other pods keep from taking it."""
    method: Method = Method.EVICT
    """The method by which it would leave."""
    fellows: tuple[Move, ...] = ()
    """Moves of pods on other nodes, which leave with it: by the same restart of a rollout, or as a gang."""


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """The check of one node to be emptied."""

    name: str
    verdict: DrainVerdict
    pods: tuple[PodCheck, ...]

    @staticmethod
    def worst_of(pods: Sequence[PodCheck]) -> DrainVerdict:
        """Return the verdict on a node with these pods."""
        return max((one.verdict for one in pods), key=_ORDER.index, default=DrainVerdict.DRAINABLE)

    @property
    def worst(self) -> tuple[PodCheck, ...]:
        """The pods that decide the verdict."""
        return tuple(pod for pod in self.pods if pod.verdict is self.verdict)


def refuses(checks: Sequence[NodeCheck]) -> bool:
    """Return whether the drain must not start."""
    return any(check.verdict in REFUSING for check in checks)


def warn_of_outage(snapshot: Snapshot, names: Sequence[str]) -> Iterator[str]:
    """Yield why the pods of the nodes ``names`` cannot end, and which zones accept no replacement."""
    nodes = snapshot.nodes
    silent = [name for name in names if not nodes.ready[nodes.index[name]]]
    if silent:
        yield (
            f"{and_more(silent, _SHOWN)} not Ready: evicted pods stay Terminating until the kubelet answers, or the node is"
            " deleted"
        )
    if why := closed_zones(snapshot):
        yield why


def without_budgets(snapshot: Snapshot) -> Snapshot:
    """Return ``snapshot`` without PodDisruptionBudgets, which do not affect room."""
    return replace(snapshot, budgets=())


def check(
    snapshot: Snapshot,
    names: Sequence[str],
    pods: Sequence[Triaged],
    room: Plan,
    *,
    without_landing: bool,
    together: Bools | None = None,
    fellows: Sequence[Triaged] = (),
) -> list[NodeCheck]:
    """Return one check per node of ``names``, given the fates of the ``pods`` there.

    ``room`` is the plan on :func:`without_budgets`: it places all pods together, each in the state after the earlier
    ones. ``without_landing``: pods without a landing in that plan may leave anyway, except those that leave only
    ``together`` (P,) with the others of their gang. ``fellows``: what is decided on the pods on other nodes that leave
    together with some of ``pods``.
    """
    look = _Check(
        snapshot, names, room, without_landing=without_landing, together=together, fellows=fellows
    )
    by_node: dict[str, list[PodCheck]] = {name: [] for name in names}
    for one in pods:
        node = snapshot.nodes.names[int(snapshot.pods.node[one.pod])]
        by_node[node].append(look.pod(one))
    return [
        NodeCheck(name, NodeCheck.worst_of(checks), tuple(checks))
        for name, checks in by_node.items()
    ]


class _Check:
    def __init__(
        self,
        snapshot: Snapshot,
        names: Sequence[str],
        room: Plan,
        *,
        without_landing: bool,
        together: Bools | None,
        fellows: Sequence[Triaged],
    ) -> None:
        self._snapshot, self._without_landing = snapshot, without_landing
        self._of_gang = np.zeros(len(snapshot.pods), bool) if together is None else together
        self._moves: Mapping[str, Move] = {move.uid: move for move in room.moves}
        self._skips: Mapping[tuple[str, str], Skip] = {
            (skip.namespace, skip.pod): skip for skip in room.skips
        }
        self._disruptions = DisruptionBudgets(snapshot)
        self._fellows: dict[GangKey, list[Triaged]] = {}
        """Rollout -> its pods on other nodes."""
        for one in fellows:
            of_class = snapshot.classes[int(snapshot.pods.cls[one.pod])]
            if of_class.membership.surge:
                self._fellows.setdefault((of_class.namespace, of_class.gang), []).append(one)
        self._elsewhere: dict[str, list[Move]] = {}
        """Gang -> the moves of its pods on other nodes."""
        for move in room.moves:
            if move.of_gang and move.method is Method.EVICT and move.node not in names:
                self._elsewhere.setdefault(move.gang, []).append(move)
        of_gangs = {move.uid: move.gang for move in room.moves if move.of_gang}
        together_of: dict[str, list[int]] = {}
        for pod in snapshot.pods.uid.rows_of(set(of_gangs)).tolist() if of_gangs else ():
            together_of.setdefault(of_gangs[snapshot.pods.uid[pod]], []).append(pod)
        self._at_once = {
            gang: self._disruptions.at_once(pods) for gang, pods in together_of.items()
        }
        """Gang -> why its pods cannot be evicted at once now; None if they can."""

    def pod(self, one: Triaged) -> PodCheck:
        of_class = self._snapshot.classes[int(self._snapshot.pods.cls[one.pod])]
        method = Method.RESTART if of_class.restarts else Method.EVICT
        uids = (self._snapshot.pods.uid[other.pod] for other in self._fellows_of(of_class))
        fellows = [self._moves[uid] for uid in uids if uid in self._moves]
        checked = self._check(one)
        if checked.fate is Fate.EVICT and checked.move is not None:
            fellows += self._elsewhere.get(checked.move.gang, ())
        return replace(checked, method=method, fellows=tuple(fellows))

    def _fellows_of(self, of_class: PodClass) -> Sequence[Triaged]:
        """Return the pods elsewhere that the restart of a rollout with pods of the class moves, too."""
        if not of_class.membership.surge:
            return ()
        return self._fellows.get((of_class.namespace, of_class.gang), ())

    def _check(self, one: Triaged) -> PodCheck:
        move = self._moves.get(self._snapshot.pods.uid[one.pod])
        if one.fate is not Fate.EVICT:
            verdict = _OF_FATE[one.fate]
            return PodCheck(one.pod, one.fate, verdict, one.why.value, one.message)
        for verdict, code, message in self._obstacles(one.pod, move):
            return PodCheck(one.pod, one.fate, verdict, code, message, move)
        if move is None and (skip := self._skip(one.pod)) is not None and skip.code in _LIMITS:
            return PodCheck(
                one.pod, one.fate, DrainVerdict.DRAINABLE, skip.code.value, skip.message
            )
        message = one.message or self._gap(one.pod)
        if move is not None and move.of_gang and move.method is Method.EVICT:
            message = f"leaves together with the other pods of {move.gang}"
        return PodCheck(one.pod, one.fate, DrainVerdict.DRAINABLE, one.why.value, message, move)

    def _gap(self, pod: int) -> str:
        """Return why the eviction of a pod leaves a gap that the policy wants to avoid; empty if it leaves none."""
        pods, cls = self._snapshot.pods, int(self._snapshot.pods.cls[pod])
        why, owner = self._snapshot.classes[cls].cannot_surge, self._snapshot.owner_of(cls)
        if not why or not pods.is_ready(pod) or owner is None or owner.replicas > 1:
            return ""
        return f"evicted, with a gap: {TEXTS[CANNOT_SURGE]}: {why}"

    def _obstacles(self, pod: int, move: Move | None) -> Iterator[tuple[DrainVerdict, str, str]]:
        """Yield the obstacles to an eviction, the worst first."""
        snapshot, pods = self._snapshot, self._snapshot.pods
        cls, node = int(pods.cls[pod]), int(pods.node[pod])
        gang = move.gang if move is not None and move.of_gang else ""
        refusals = (
            self._disruptions.forbidden(cls, node, ready=pods.is_ready(pod)),
            self._at_once.get(gang),
        )
        of_budgets = [
            (_verdict_on(one), *one.shown(snapshot)[:2]) for one in refusals if one is not None
        ]
        yield from (one for one in of_budgets if one[0] in REFUSING)
        yield from self._of_others(pod, snapshot.classes[cls], move)
        if move is None and not self._without_landing and (why := self.no_landing(pod)) is not None:
            yield DrainVerdict.NO_ROOM, *why
        yield from of_budgets

    def _of_others(
        self, pod: int, of_class: PodClass, move: Move | None
    ) -> Iterator[tuple[DrainVerdict, str, str]]:
        """Yield what keeps a pod in place because others of its rollout or its gang would leave with it."""
        for other in self._fellows_of(of_class):
            if other.fate is Fate.REFUSE:
                ref = self._snapshot.pod_ref(other.pod)
                text = f"{ref}, which a restart of its rollout moves, too: {other.message}"
                yield DrainVerdict.REFUSED, other.why.value, text
        if move is None and self._of_gang[pod]:
            why = self.no_landing(pod) or Reason(Code.GANG)
            refused = Obstacle.GANG.of(why=why.message, gang=of_class.gang)
            yield DrainVerdict.REFUSED, *refused

    def _skip(self, pod: int) -> Skip | None:
        pods = self._snapshot.pods
        namespace = self._snapshot.classes[int(pods.cls[pod])].namespace
        return self._skips.get((namespace, pods.name[pod]))

    def no_landing(self, pod: int) -> Reason[Code] | None:
        """Return why the replacement of a pod has no predicted landing; None if there will be no replacement."""
        snapshot = self._snapshot
        cls = snapshot.classes[int(snapshot.pods.cls[pod])]
        if cls.owner < 0 or cls.per_node:
            return None
        skip = self._skip(pod)
        if skip is None:
            return Obstacle.NO_NODE_EVER.of()
        if skip.code is Code.WHOLE_ROLLOUT:
            # What else would keep it is looked at by itself.
            return Reason(Code.NO_ROOM, skip.message)
        return None if skip.code in _LIMITS else Reason(skip.code, skip.message)


def _verdict_on(refusal: Refusal) -> DrainVerdict:
    """Return the verdict on a pod that PodDisruptionBudgets keep."""
    why = refusal.facts["why"].why if refusal.why is Why.OF_POD else refusal.why
    if why is Why.PDB_AT_ONCE and refusal.facts["never"]:
        return DrainVerdict.NEVER
    verdicts = {Why.PDB_CONFLICT: DrainVerdict.MISCONFIGURED, Why.PDB_NEVER: DrainVerdict.NEVER}
    return verdicts.get(why, DrainVerdict.BLOCKED)


_OF_FATE = {
    Fate.WAIT: DrainVerdict.WAITS,
    Fate.STAY: DrainVerdict.DRAINABLE,
    Fate.REFUSE: DrainVerdict.REFUSED,
}


_READ = 10.0
"""Seconds for each read before a restart."""
_VERDICTS = {
    AnswerKind.BLOCKED: (DrainVerdict.BLOCKED, Code.PDB.value),
    AnswerKind.MISCONFIGURED: (DrainVerdict.MISCONFIGURED, Code.PDB_CONFLICT.value),
    # The Deployment has changed since it was read.
    AnswerKind.DROPPED: (DrainVerdict.BLOCKED, Code.CANNOT_SURGE.value),
}
_FINE = (AnswerKind.EVICTED, AnswerKind.RESTARTED, AnswerKind.GONE)


def ask_server(client: Client, snapshot: Snapshot, checks: Sequence[NodeCheck]) -> list[NodeCheck]:
    """Return the checks with the API server's answer for each pod that would be evicted, or restarted."""
    return [
        replace(check, pods=pods, verdict=NodeCheck.worst_of(pods))
        for check in checks
        for pods in [tuple(_ask(client, snapshot, one) for one in check.pods)]
    ]


def _ask(client: Client, snapshot: Snapshot, one: PodCheck) -> PodCheck:
    if one.fate is not Fate.EVICT or one.verdict is not DrainVerdict.DRAINABLE:
        return one
    pods, namespace = snapshot.pods, snapshot.classes[int(snapshot.pods.cls[one.pod])].namespace
    if one.method is Method.RESTART:
        answer = _rehearse_restart(client, snapshot, one.pod)
    else:
        name, uid = pods.name[one.pod], pods.uid[one.pod]
        answer = evict(client, namespace, name, uid, dry_run=True)
    if answer.kind in _FINE:
        return one
    verdict, code = _VERDICTS.get(answer.kind, (DrainVerdict.REFUSED, answer.kind.value))
    return replace(one, verdict=verdict, code=code, message=answer.message)


def _rehearse_restart(client: Client, snapshot: Snapshot, pod: int) -> EvictionAnswer:
    pods, cls = snapshot.pods, int(snapshot.pods.cls[pod])
    owner = snapshot.owner_of(cls)
    return Restart(
        client,
        snapshot.classes[cls].namespace,
        pods.name[pod],
        pods.uid[pod],
        deployment="" if owner is None else owner.uid,
        at=rfc3339(int(snapshot.captured_at)),
        seconds=_READ,
        replicas=1 if owner is None else owner.replicas,
        ordered=True,
        dry_run=True,
    ).ask()


def with_refusals(
    checks: Sequence[NodeCheck], problem: Problem, moves: Sequence[Move], stays: Bools
) -> list[NodeCheck]:
    """Return ``checks`` with the scheduler's reason for each pod that fits on no node after ``moves``.

    ``stays`` (N,): the nodes that are not emptied.
    """
    if not any(_lacks(one) for of in checks for one in of.pods):
        return list(checks)
    state = _after(problem, moves)
    return [
        replace(
            of,
            pods=tuple(
                _with_reason(problem, state, stays, one) if _lacks(one) else one for one in of.pods
            ),
        )
        for of in checks
    ]


def _lacks(check: PodCheck) -> bool:
    return check.code == Code.NO_ROOM.value and check.move is None


def _after(problem: Problem, moves: Sequence[Move]) -> ClusterState:
    """Return the state with the pods of ``moves`` on their most probable nodes."""
    snapshot, state = problem.snapshot, ClusterState(problem.snapshot)
    rows = {
        snapshot.pods.uid[row]: row for row in snapshot.pods.uid.rows_of({m.uid for m in moves})
    }
    for move in moves:
        if (row := rows.get(move.uid)) is not None and move.landings:
            likely = max(move.landings, key=lambda one: one.probability).node
            state.evict(row)
            cls = snapshot.classes[int(snapshot.pods.cls[row])].replacement
            state.place(row, cls, snapshot.nodes.index[likely])
    state.reap()
    return state


def _with_reason(problem: Problem, state: ClusterState, stays: Bools, check: PodCheck) -> PodCheck:
    """Return the check with the scheduler's reason, and with the nodes where only other pods prevent it."""
    snapshot, model = problem.snapshot, problem.scheduler
    cls = snapshot.classes[int(snapshot.pods.cls[check.pod])].replacement
    with model.pending.before_landing(state, check.pod):
        evaluation = model.evaluate(state, cls)
        full = snapshot.without_foreign(model.full(state, cls) & stays, cls)
    counts = Counter(
        text for node in np.flatnonzero(stays).tolist() for text in evaluation.reasons(node)
    )
    said = ", ".join(f"{number} {text}" for text, number in counts.most_common())
    message = f"{check.message}: {said}" if said else check.message
    names = snapshot.nodes.names
    return replace(check, message=message, full=tuple(names[n] for n in np.flatnonzero(full)))


def unforeseen(snapshot: Snapshot, checks: Iterable[NodeCheck]) -> list[Move]:
    """Return moves without a landing, for pods that may leave although the plan cannot move them.

    They have no replacement, or one that fits on no node; or they are not Ready, so that the API evicts them
    although their PodDisruptionBudget allows no disruption.
    """
    disruptions = DisruptionBudgets(snapshot)

    def is_forbidden(pod: int) -> bool:
        cls, node = int(snapshot.pods.cls[pod]), int(snapshot.pods.node[pod])
        return disruptions.forbidden(cls, node) is not None

    leaving = [
        one.pod
        for check in checks
        for one in check.pods
        if one.fate is Fate.EVICT
        and one.verdict is DrainVerdict.DRAINABLE
        and one.code not in _LIMITS
        and not (one.move is not None and one.move.of_gang)
        and (one.move is None or is_forbidden(one.pod))
    ]
    # With one pod of a rollout go all, wherever they are: once each, and one after the other.
    every = dict.fromkeys(
        pod for one in leaving for pod in (one, *_fellows_of(snapshot, one).tolist())
    )
    return [_unforeseen(snapshot, pod, disruptions) for pod in every]


def _fellows_of(snapshot: Snapshot, pod: int) -> Int32s:
    """Return all pods that the restart of a pod's rollout replaces; none if it is moved by itself."""
    of_class = snapshot.classes[int(snapshot.pods.cls[pod])]
    if not of_class.membership.surge:
        return np.zeros(0, np.int32)
    return snapshot.gangs[of_class.namespace, of_class.gang]


def _unforeseen(snapshot: Snapshot, pod: int, disruptions: DisruptionBudgets) -> Move:
    cls = int(snapshot.pods.cls[pod])
    of_class = snapshot.classes[cls]
    unit = unit_of((of_class.namespace, of_class.gang)) if of_class.membership.surge else ""
    owner = snapshot.owner_of(cls)
    node = snapshot.nodes.names[int(snapshot.pods.node[pod])]
    return Move(
        namespace=of_class.namespace,
        pod=snapshot.pods.name[pod],
        uid=snapshot.pods.uid[pod],
        owner=owner.ref if owner else "",
        node=node,
        landings=(),
        strategy=STRATEGY,
        reason=f"{node} must be empty: it is drained",
        method=Method.RESTART if of_class.restarts else Method.EVICT,
        unit=unit,
        gang=unit,
        gain=Cost(hard=1.0),
        cost=1.0,
        wave=1,
        budgets=disruptions.refs(pod),
    )
