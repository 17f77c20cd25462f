"""What the peer and we would evict of one cluster, pod by pod: each difference by its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peer.policies import STRATEGY_OF
from rebalancer.policy.model import Policy
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope, names_of, protect

UNNAMED = "unnamed"


@dataclass(slots=True)
class Comparison:
    """One cluster under one policy."""

    both: int = 0
    ours: int = 0
    theirs: int = 0
    outside: list[str] = field(default_factory=list)
    """Pods that we would evict, and that the peer could not under its policy."""
    kinds: Counter[str] = field(default_factory=Counter)
    unnamed: list[str] = field(default_factory=list)


def compared(
    snapshot: Snapshot,
    policy: Policy,
    report: Mapping[str, Any],
    theirs: Mapping[str, str],
    scope: Collection[str],
    *,
    limited: bool,
) -> Comparison:
    """Compare our report with what the peer evicts (pod -> plug-in), and could (``scope``).

    ``limited``: the peer's policy limits how many it evicts.
    """
    acting = [move for move in report["moves"] if not move["observed"]]
    ours = {f"{m['namespace']}/{m['pod']}": m["strategy"] for m in acting}
    result = Comparison(len(ours.keys() & theirs.keys()), len(ours), len(theirs))
    result.outside = sorted(ours.keys() - set(scope))
    owner_of = _owners(snapshot)
    our_owners = {owner_of.get(pod) for pod in ours}
    their_owners = {owner_of.get(pod) for pod in theirs}
    for pod in sorted(ours.keys() - theirs.keys()):
        strategy = policy.strategy_of(ours[pod])
        if owner_of.get(pod) in their_owners:
            kind = "another pod of the same workload"
        elif limited:
            kind = "its limits are used up there"
        else:
            kind = f"fixed here, left alone there: {strategy}"
        result.kinds[f"only ours: {kind}"] += 1
    stays = _stays(snapshot, policy, report)
    for pod in sorted(theirs.keys() - ours.keys()):
        strategy = STRATEGY_OF[theirs[pod]]
        named = [n for n in policy.strategies if policy.strategy_of(n) == strategy]
        if pod in stays:
            kind = stays[pod]
        elif owner_of.get(pod) in our_owners:
            kind = "another pod of the same workload"
        elif named:
            kind = f"fewer moves: no rule of {strategy} is left unmet by it here"
        else:
            result.unnamed.append(f"{pod} by {theirs[pod]}")
            kind = UNNAMED
        result.kinds[f"only there: {kind}"] += 1
    return result


def _stays(snapshot: Snapshot, policy: Policy, report: Mapping[str, Any]) -> dict[str, str]:
    """Return why pods stay: a reason code, a protection, or that a strategy only observes."""
    bits = protect(snapshot, policy.protect, Scope(policy_select=policy.select))
    reasons = {
        snapshot.pod_ref(pod): f"protected here: {names_of(int(bits[pod]))[0]}"
        for pod in range(len(snapshot.pods))
        if bits[pod]
    }
    for move in report["moves"]:
        if move["observed"]:
            reasons[f"{move['namespace']}/{move['pod']}"] = "the strategy only observes here"
    for skip in report["skipped"]:
        reasons.setdefault(f"{skip['namespace']}/{skip['pod']}", f"stays here: {skip['code']}")
    return reasons


def _owners(snapshot: Snapshot) -> dict[str, str]:
    return {
        snapshot.pod_ref(pod): owner.ref
        for pod in range(len(snapshot.pods))
        if (owner := snapshot.owner_of(int(snapshot.pods.cls[pod]))) is not None
    }
