"""Karpenter's NodeClaims and NodePools: which nodes it adds, removes, and may remove next."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from rebalancer.base.durations import parse_go_duration
from rebalancer.policy.windows import Window
from rebalancer.wire import objects as o
from rebalancer.wire.times import unix_seconds

POOL = "karpenter.sh/nodepool"
"""Label of a node, and of its NodeClaim, with the NodePool's name."""
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
CONSOLIDATES = ("WhenEmptyOrUnderutilized", "Balanced")
"""The consolidation policies by which Karpenter also removes nodes with pods."""
_EMPTY, _UNDERUTILIZED, _DRIFTED = "Empty", "Underutilized", "Drifted"
_DEFAULT_POLICY = CONSOLIDATES[0]
_NEVER = "Never"
SOON = 900.0
"""Seconds: no pod lands on a node that Karpenter may remove sooner; also the longest for which a node being removed counts as a change."""
_SCHEDULES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Takes(enum.Flag):
    """Reasons for which the NodePool of a node lets Karpenter take it."""

    NOTHING = 0
    EMPTY = 1
    UNDERUTILIZED = 2
    DRIFTED = 4


@dataclass(frozen=True, slots=True)
class PoolRules:
    """The rules of a NodePool for removing its nodes."""

    takes: Takes = Takes.NOTHING
    consolidate_after: float = math.inf
    """Seconds without added or removed pods after which a node may be removed."""
    held_until: float = 0.0
    """Until when scheduled budgets of 0 stop Karpenter, or did so last (Unix seconds)."""
    drift_limits: tuple[str, ...] = ()
    """How many drifted nodes may be replaced at once: numbers, or shares of the pool's nodes in percent; all of them apply."""
    registers: bool = True
    """Nodes of the pool have registered of late, as far as is known."""

    def limit_drift(self, size: int) -> int:
        """Return how many of the ``size`` nodes may be replaced at once for drift."""
        return min((_scale(limit, size) for limit in self.drift_limits), default=size)


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """A NodeClaim with the settings of its NodePool."""

    name: str
    node: str
    """Name of its node; empty while there is none."""
    machine: str
    """Name of its machine at the provider, as in its node's ``spec.providerID``; empty before it is launched."""
    created: float
    """Creation time in Unix seconds."""
    ready: bool
    """Whether its node is registered and ready for pods (condition Initialized)."""
    going: str = ""
    """Why it is going now, in words; empty if it is not."""
    going_since: float = 0.0
    """When its removal began, in Unix seconds; 0: it is not being removed."""
    drifted_since: float = 0.0
    """Unix seconds; 0: it is not drifted."""
    waits_for_pods: bool = True
    """Pods that may not be evicted delay its replacement: it has no ``terminationGracePeriod``."""
    expires: float = math.inf
    """Expiry time in Unix seconds."""
    consolidatable_since: float = 0.0
    """Unix seconds since when no pod has come or gone for ``consolidateAfter``; 0: one has."""
    consolidatable_from: float = 0.0
    """Unix seconds from which that may be so: the last pod that came or went, and ``consolidateAfter``."""
    takes: Takes = Takes.NOTHING
    pool: PoolRules = PoolRules()
    labels: Mapping[str, str] | None = None
    """The labels that its node will have, as far as they are known."""
    taints: tuple[o.Taint, ...] = ()
    allocatable: Mapping[str, str | int | float] | None = None
    """The allocatable amounts that its node will have; None while they are not known."""


def fold_node_claims(
    claims: Iterable[o.NodeClaimObject], pools: Iterable[o.NodePool], now: float
) -> tuple[NodeClaim, ...]:
    """Return the NodeClaims by name, each with the rules of its NodePool from ``now`` on (Unix seconds)."""
    of_pool = {pool.metadata.name: _fold_pool(pool, now) for pool in pools}
    named = sorted(claims, key=lambda claim: claim.metadata.name)
    return tuple(
        _fold(claim, of_pool.get((claim.metadata.labels or {}).get(POOL, ""), PoolRules()))
        for claim in named
    )


def _fold_pool(pool: o.NodePool, now: float) -> PoolRules:
    disruption = pool.spec.disruption
    until = [(one, _holds_until(one, now)) for one in disruption.budgets or ()]
    holding = [one for one, end in until if end - now > SOON]
    states = {one.type: one.status for one in pool.status.conditions or ()}
    return PoolRules(
        takes=_takes(pool, holding),
        consolidate_after=_seconds(disruption.consolidate_after or "0s"),
        held_until=max(
            (end for one, end in until if one.schedule is not None and _is_zero(one)), default=0.0
        ),
        drift_limits=tuple(one.nodes for one in holding if _counts(one, _DRIFTED)),
        registers=states.get("NodeRegistrationHealthy") != "False",
    )


def _fold(claim: o.NodeClaimObject, pool: PoolRules) -> NodeClaim:
    meta, status = claim.metadata, claim.status
    true = {one.type: one for one in status.conditions or () if one.status == "True"}
    times = {of: unix_seconds(one.last_transition_time) for of, one in true.items()}
    created = unix_seconds(meta.creation_timestamp)
    going, going_since = "", 0.0
    if meta.deletion_timestamp is not None:
        going = f"NodeClaim {meta.name} is being deleted"
        going_since = unix_seconds(meta.deletion_timestamp)
    elif (reason := true.get("DisruptionReason")) is not None:
        going = f"Karpenter is removing it ({reason.reason})"
        going_since = times["DisruptionReason"]
    kept = (meta.annotations or {}).get(DO_NOT_DISRUPT) == "true"
    last_event = unix_seconds(status.last_pod_event_time) or times.get("Initialized", 0.0)
    return NodeClaim(
        name=meta.name,
        node=status.node_name,
        machine=status.provider_id,
        created=created,
        ready="Initialized" in true,
        going=going,
        going_since=going_since,
        drifted_since=times.get("Drifted", 0.0),
        waits_for_pods=claim.spec.termination_grace_period is None,
        expires=created + _seconds(claim.spec.expire_after),
        consolidatable_since=times.get("Consolidatable", 0.0),
        consolidatable_from=last_event + pool.consolidate_after,
        takes=Takes.NOTHING if kept else pool.takes,
        pool=pool,
        labels=_labels(claim),
        taints=claim.spec.taints or (),
        allocatable=status.allocatable,
    )


def _labels(claim: o.NodeClaimObject) -> dict[str, str]:
    asked = {
        one.key: one.values[0]
        for one in claim.spec.requirements or ()
        if one.operator == "In" and one.values is not None and len(one.values) == 1
    }
    return {**asked, **(claim.metadata.labels or {})}


def _takes(pool: o.NodePool, holding: Sequence[o.NodePoolBudget]) -> Takes:
    """Return the reasons for which Karpenter may remove nodes of a pool soon. ``holding``: the budgets that apply until then."""
    disruption = pool.spec.disruption
    takes = Takes.DRIFTED
    # A pool with replicas keeps its number of nodes.
    if pool.spec.replicas is None and disruption.consolidate_after != _NEVER:
        takes |= Takes.EMPTY
        if (disruption.consolidation_policy or _DEFAULT_POLICY) in CONSOLIDATES:
            takes |= Takes.UNDERUTILIZED
    for reason, one in (
        (_EMPTY, Takes.EMPTY),
        (_UNDERUTILIZED, Takes.UNDERUTILIZED),
        (_DRIFTED, Takes.DRIFTED),
    ):
        if any(_counts(budget, reason) and _is_zero(budget) for budget in holding):
            takes &= ~one
    return takes


def _holds_until(budget: o.NodePoolBudget, now: float) -> float:
    """Return until when a budget applies, or did so last; infinite without a schedule, and with one that cannot be parsed.

    Source: ``Budget.IsActive`` of Karpenter: schedules are in UTC.
    """
    if budget.schedule is None:
        return math.inf
    text = budget.schedule.strip()
    try:
        length = parse_go_duration(budget.duration)
        window = Window.model_validate({"deny": _SCHEDULES.get(text, text), "for": length})
    except (ValueError, ValidationError):
        return math.inf
    end = window.end_of_last(now) or 0.0
    for start in window.openings(now) if end > now else ():
        if start > end or end - now > SOON:
            break
        end = start + length.total_seconds()
    return end


def _counts(budget: o.NodePoolBudget, reason: str) -> bool:
    return budget.reasons is None or reason in budget.reasons


def _is_zero(budget: o.NodePoolBudget) -> bool:
    return budget.nodes in ("0", "0%")


def _scale(limit: str, size: int) -> int:
    """Return a budget's number of nodes, percentages of ``size`` rounded up; none where it is not understood, as Karpenter does."""
    number = limit.removesuffix("%")
    if not (number.isascii() and number.isdigit()):
        return 0
    return -(-int(number) * size // 100) if limit.endswith("%") else int(number)


def _seconds(text: str) -> float:
    """Return a duration in seconds; infinite for ``Never``, none, and what is not understood."""
    try:
        return parse_go_duration(text).total_seconds() if text and text != _NEVER else math.inf
    except ValueError:
        return math.inf
