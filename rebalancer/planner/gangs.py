"""Gangs in a plan: pods that move as one unit, and the reasons why a gang cannot move.

A PodGroup, LeaderWorkerSet or JobSet is of use only as long as enough of its pods run. If the minimum number of its pods
is known, and that many remain, only some of them move; else all, in one wave. All pods of a Deployment that moves by a
restart of its rollout are such a unit, too: a rollout replaces every one of them, wherever it runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from rebalancer.base.plain_text import and_more, count
from rebalancer.plan.plan import Method
from rebalancer.planner.draft import Draft
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.membership import Membership
from rebalancer.snapshot.model import GangKey, PodClass, PodFlag, Snapshot
from rebalancer.snapshot.protect import ALONE, BY_UNIT, JOB, names_of, text_of

BACK = 0.05
"""The largest probability, 0 to 1, with which a replacement may land on the node that its pod has to leave."""
_DOMAINS = 3
"""So many domains are named in a message."""


def unit_of(gang: GangKey) -> str:
    """Return the name of a gang for ``Move.unit``."""
    return f"{gang[0]}: {gang[1]}"


def method_of(snapshot: Snapshot, pods: Sequence[int] | Int32s) -> Method:
    """Return how ``pods``, all of a unit, move."""
    return Method.RESTART if snapshot.surge_of(pods) else Method.EVICT


def is_unit(draft: Draft, gang: GangKey) -> bool:
    """Return whether the policy moves the pods of this gang together; other gangs move pod by pod."""
    protected = draft.problem.protected[draft.snapshot.gangs[gang]]
    return bool((protected & BY_UNIT).any())


def units_of(draft: Draft, mine: Bools) -> dict[int, Int32s]:
    """Return pod -> all pods of its gang, for the gangs that may move as a whole and lie entirely in ``mine`` (P,).

    For other gangs, record in the draft why they are not moved.
    """
    units: dict[int, Int32s] = {}
    for gang, pods in draft.snapshot.gangs.items():
        if not is_unit(draft, gang):
            continue
        why = why_unfit(draft, gang) or why_moved(draft, pods.tolist())
        why = why or why_fails(draft.snapshot, pods.tolist())
        why = why or exceeds_disruptions(draft, pods.tolist())
        if why is None and not mine[pods].all():
            why = Refusal.of(Why.GANG_NOT_SELECTED)
        if why is None:
            units |= dict.fromkeys(pods.tolist(), pods)
        else:
            draft.gangs_that_stay[gang] = why
    return units


def going(snapshot: Snapshot, gang: GangKey, named: Collection[int]) -> list[int]:
    """Return the pods that must leave with the ``named`` ones: only these if enough of the gang remain, else all, the named ones first.

    If the gang's controllers can replace single pods, and evicting the others would make a Job fail, only the named ones leave.
    """
    others = sorted(set(snapshot.gangs[gang].tolist()) - set(named))
    whole = [*named, *others]
    if is_enough(snapshot, gang, len(others)):
        return list(named)
    # All pods of a gang have the same kind of controllers.
    divisible = _membership(snapshot, whole[0]).divisible
    return list(named) if divisible and why_fails(snapshot, whole) else whole


def why_fails(snapshot: Snapshot, pods: Sequence[int]) -> Refusal | None:
    """Return which Job would fail for good, or might, if all of ``pods`` were evicted; None if none would."""
    leave: dict[tuple[str, str], tuple[PodClass, int]] = {}
    for cls, number in Counter(snapshot.pods.cls[list(pods)].tolist()).items():
        of_class = snapshot.classes[cls]
        if of_class.controller == JOB:
            job = of_class.controller_name, of_class.controller_uid
            leave[job] = of_class, number + leave.get(job, (of_class, 0))[1]
    for (name, _), (of_class, number) in sorted(leave.items(), key=lambda item: item[0]):
        if of_class.job is None:
            return Refusal.of(Why.JOB_NOT_READ, job=name)
        if not of_class.job.allows(number):
            return Refusal.of(Why.JOB_FAILS, job=name, allows=of_class.job.text, pods=number)
    return None


def leaders_first(snapshot: Snapshot, pods: Sequence[int]) -> list[int]:
    """Return ``pods`` in the order in which their controllers make them again: the others of a group follow its leader."""
    return sorted(pods, key=lambda pod: not _membership(snapshot, pod).leads)


def why_unsure(snapshot: Snapshot, pod: int, landing: Prediction) -> Refusal | None:
    """Return why it is not known where a group lands that has a domain to itself; None if ``pod`` does not lead one."""
    of = _membership(snapshot, pod)
    if not of.leads or of.domain is None:
        return None
    key, shares = of.domain[0], Counter[str]()
    for node, share in zip(landing.nodes.tolist(), landing.probability.tolist(), strict=True):
        shares[snapshot.nodes.labels.of(node).get(key, "")] += share
    if not shares or sum(shares.values()) - max(shares.values()) <= BACK:
        return None
    domains = and_more(sorted(shares), _DOMAINS)
    return Refusal.of(Why.LEADER_UNSURE, key=key, domains=domains, gang=of.gang)


def _membership(snapshot: Snapshot, pod: int) -> Membership:
    return snapshot.classes[int(snapshot.pods.cls[pod])].membership


def missing_of(snapshot: Snapshot, gang: GangKey) -> Refusal | None:
    """Return that pods of a gang are still to be made; None if none are, as far as its pods and their Jobs say it."""
    if (why := _of_size(snapshot, gang)) is not None:
        return why
    classes = snapshot.pods.cls[snapshot.gangs[gang]].tolist()
    of_job = Counter(snapshot.classes[cls].controller_uid for cls in classes)
    for of in (snapshot.classes[cls] for cls in dict.fromkeys(classes)):
        if of.job is not None and of_job[of.controller_uid] < of.job.runs:
            there = of_job[of.controller_uid]
            what = f"its Job {of.controller_name}"
            return Refusal.of(Why.TOO_FEW_EXIST, there=there, pods=of.job.runs, what=what)
    return None


def _of_size(snapshot: Snapshot, gang: GangKey) -> Refusal | None:
    """Return that a gang has fewer pods than its pods say; None if it has not, or they say nothing."""
    pods = snapshot.gangs[gang]
    classes = np.unique(snapshot.pods.cls[pods]).tolist()
    said = max((snapshot.classes[cls].membership.size or 0 for cls in classes), default=0)
    if len(pods) >= said:
        return None
    return Refusal.of(Why.TOO_FEW_EXIST, there=len(pods), pods=said, what="it")


def is_enough(snapshot: Snapshot, gang: GangKey, stay: int) -> bool:
    """Return whether a gang still works, and may be disrupted, while only this number of its pods remains."""
    groups = [
        snapshot.group_of(snapshot.classes[cls])
        for cls in np.unique(snapshot.pods.cls[snapshot.gangs[gang]]).tolist()
    ]
    if any(group is not None and group.together for group in groups):
        return False
    return stay >= snapshot.gang_least.get(gang, np.inf)


def why_unfit(draft: Draft, gang: GangKey) -> Refusal | None:
    """Return why a pod of a gang prevents its move; None if no pod does."""
    snapshot = draft.snapshot
    pods = snapshot.gangs[gang]
    gone = (snapshot.pods.node[pods] < 0) | ((snapshot.pods.flags[pods] & PodFlag.TERMINATING) != 0)
    if gone.any():
        are = "is" if gone.sum() == 1 else "are"
        return Refusal.of(Why.STARTS_OR_ENDS, pods=int(gone.sum()), are=are)
    if (why := _of_size(snapshot, gang)) is not None:
        return why
    for pod in pods.tolist():
        if bits := int(draft.problem.protected[pod]) & ~ALONE:
            texts = {name: text_of(snapshot, pod, name) for name in names_of(bits)}
            return Refusal.of(Why.POD_PROTECTED, pod=pod, texts=texts)
        if not draft.problem.selected[pod]:
            return Refusal.of(Why.POD_NOT_SELECTED, pod=pod)
        of_class = snapshot.classes[int(snapshot.pods.cls[pod])]
        if of_class.restarts and not of_class.membership.surge:
            return Refusal.of(Why.RESTARTS, pod=pod)
    return None


def why_moved(draft: Draft, pods: Sequence[int]) -> Refusal | None:
    """Return that one of ``pods`` has moved in the draft, if so: none moves twice in a plan."""
    at_home = draft.state.at_home(np.array(pods, np.int32))
    return None if at_home.all() else Refusal.of(Why.MOVES_ALREADY)


def exceeds_disruptions(draft: Draft, pods: Sequence[int]) -> Refusal | None:
    """Return why PodDisruptionBudgets forbid the eviction of all ``pods`` at once; None if they allow it."""
    return draft.problem.disruptions.at_once(pods)


def exceeds_budgets(draft: Draft, pods: Sequence[int], strategy: str) -> Refusal | None:
    """Return the limit that the moves of ``pods`` at once would exceed, the policy's or the strategy's; None if there is none.

    They count as so many moves in the limits per run and hour. In those in flight they may begin if each of them might: smaller
    steps do not exist.
    """
    snapshot, allowance = draft.snapshot, draft.allowance
    # So many replacements there are beside what they replace.
    beside = snapshot.surge_of(pods) or len(pods)
    for pod in pods:
        cls, node = int(snapshot.pods.cls[pod]), int(snapshot.pods.node[pod])
        if (limit := allowance.over(strategy, cls)) is not None:
            return Refusal.of(Why.BUDGET, limit=limit)
        if not allowance.has_room_for(len(pods), strategy, cls):
            limit = (
                f"{count(len(pods), 'move')} at once are more than the budgets of this run leave"
            )
            return Refusal.of(Why.BUDGET, limit=limit)
        ready = snapshot.pods.is_ready(pod)
        if (limit := allowance.waits(cls, node, strategy, ready=ready)) is not None:
            return Refusal.of(Why.BUDGET, limit=limit)
    lack = allowance.lacks_for([int(snapshot.pods.cls[pod]) for pod in pods[:beside]])
    return None if lack is None else Refusal.of(Why.QUOTA, limit=lack)


def exceeds_limits(draft: Draft, pods: Sequence[int], strategy: str) -> Refusal | None:
    """Return the limit that keeps ``pods`` from leaving at once; None if there is none."""
    return exceeds_disruptions(draft, pods) or exceeds_budgets(draft, pods, strategy)


class RoomGangs:
    """The gangs that may be evicted as a whole for waiting pods."""

    def __init__(self, draft: Draft, mine: Bools) -> None:
        """``mine`` (P,): the pods that the strategy may move. The draft records why other gangs are not moved."""
        self._snapshot, self._units = draft.snapshot, units_of(draft, mine)

    @property
    def pods(self) -> list[int]:
        """The pods of these gangs."""
        return list(self._units)

    def unit_of(self, pod: int) -> str:
        """Return the name of the gang of ``pod``; empty for a pod that leaves by itself."""
        return unit_of(self._gang(pod)) if pod in self._units else ""

    def are_whole(self, pods: Int32s) -> Bools:
        """Return which of ``pods`` (K,) may still leave: those of a gang only if all of it are among them."""
        here = frozenset(pods.tolist())
        broken = {pod for pod, unit in self._units.items() if not here.issuperset(unit.tolist())}
        return np.array([pod not in broken for pod in pods.tolist()], bool)

    def others(self, victims: Sequence[int], gone: Collection[int], limit: int) -> list[int] | None:
        """Return the pods that have to leave with ``victims``, where those ``gone`` have left already.

        None if one of them has a higher priority than ``limit``.
        """
        others: list[int] = []
        if not (gangs := {self._gang(pod) for pod in victims if pod in self._units}):
            return others
        for gang in sorted(gangs):
            members = self._snapshot.gangs[gang].tolist()
            named = [pod for pod in members if pod in gone or pod in victims]
            others += going(self._snapshot, gang, named)[len(named) :]
        classes = self._snapshot.pods.cls[others].tolist()
        too_high = any(self._snapshot.classes[cls].priority > limit for cls in classes)
        return None if too_high else others

    def _gang(self, pod: int) -> GangKey:
        of = self._snapshot.classes[int(self._snapshot.pods.cls[pod])]
        return of.namespace, of.gang
