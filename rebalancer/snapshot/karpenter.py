"""Karpenter's NodeClaims and NodePools: which nodes it adds, takes away, and may take away next."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rebalancer.base.durations import parse_go_duration
from rebalancer.wire import objects as o
from rebalancer.wire.times import unix_seconds

POOL = "karpenter.sh/nodepool"
"""Label of a node, and of its NodeClaim, with the NodePool's name."""
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
CONSOLIDATES = ("WhenEmptyOrUnderutilized", "Balanced")
"""The consolidation policies by which Karpenter also takes nodes that have pods."""
_EMPTY, _UNDERUTILIZED, _DRIFTED = "Empty", "Underutilized", "Drifted"
_DEFAULT_POLICY = CONSOLIDATES[0]
_NEVER = "Never"


class Takes(enum.Flag):
    """Reasons for which the NodePool of a node lets Karpenter take it."""

    NOTHING = 0
    EMPTY = 1
    UNDERUTILIZED = 2
    DRIFTED = 4


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """A NodeClaim with what its NodePool says."""

    name: str
    node: str
    """Name of its node; empty while there is none."""
    machine: str
    """Name of its machine at the provider, as its node says it (``spec.providerID``); empty before it is launched."""
    created: float
    """Unix seconds."""
    ready: bool
    """Its node is registered and ready for pods (condition Initialized)."""
    going: str = ""
    """Why it is going now, in words; empty if it is not."""
    drifted: bool = False
    expires: float = math.inf
    """Unix seconds."""
    consolidatable_since: float = 0.0
    """Unix seconds since when no pod has come or gone for ``consolidateAfter``; 0: one has."""
    takes: Takes = Takes.NOTHING
    paced: bool = False
    """A budget of the pool may hold Karpenter up, so that a node that it has not taken yet may still be taken."""
    labels: Mapping[str, str] | None = None
    """Those that its node will have, as far as they are known."""
    taints: tuple[o.Taint, ...] = ()
    allocatable: Mapping[str, str | int | float] | None = None
    """What its node will have; None while that is not known."""


def fold_node_claims(
    claims: Iterable[o.NodeClaimObject], pools: Iterable[o.NodePool]
) -> tuple[NodeClaim, ...]:
    """Return the NodeClaims by name, each with what its NodePool lets Karpenter do."""
    of_pool = {pool.metadata.name: pool for pool in pools}
    named = sorted(claims, key=lambda claim: claim.metadata.name)
    return tuple(
        _fold(claim, of_pool.get((claim.metadata.labels or {}).get(POOL, ""))) for claim in named
    )


def _fold(claim: o.NodeClaimObject, pool: o.NodePool | None) -> NodeClaim:
    meta, status = claim.metadata, claim.status
    true = {one.type: one for one in status.conditions or () if one.status == "True"}
    created = unix_seconds(meta.creation_timestamp)
    going = ""
    if meta.deletion_timestamp is not None:
        going = f"NodeClaim {meta.name} is being deleted"
    elif (reason := true.get("DisruptionReason")) is not None:
        going = f"Karpenter is removing it ({reason.reason})"
    kept = (meta.annotations or {}).get(DO_NOT_DISRUPT) == "true"
    since = true.get("Consolidatable")
    return NodeClaim(
        name=meta.name,
        node=status.node_name,
        machine=status.provider_id,
        created=created,
        ready="Initialized" in true,
        going=going,
        drifted="Drifted" in true,
        expires=created + _seconds(claim.spec.expire_after),
        consolidatable_since=0.0 if since is None else unix_seconds(since.last_transition_time),
        takes=Takes.NOTHING if pool is None or kept else _takes(pool),
        paced=pool is not None and _is_paced(pool),
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


def _takes(pool: o.NodePool) -> Takes:
    """Return the reasons for which Karpenter may take nodes of a pool, at least at some times."""
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
        if any(_forbids(budget, reason) for budget in disruption.budgets or ()):
            takes &= ~one
    return takes


def _forbids(budget: o.NodePoolBudget, reason: str) -> bool:
    """Return whether a budget never lets a node go for ``reason``; one with a schedule does at times."""
    counts = budget.reasons is None or reason in budget.reasons
    return counts and budget.schedule is None and budget.nodes in ("0", "0%")


def _is_paced(pool: o.NodePool) -> bool:
    return any(budget.schedule is not None for budget in pool.spec.disruption.budgets or ())


def _seconds(text: str) -> float:
    """Return a duration in seconds; infinite for ``Never``, none, and what is not understood."""
    try:
        return parse_go_duration(text).total_seconds() if text and text != _NEVER else math.inf
    except ValueError:
        return math.inf
