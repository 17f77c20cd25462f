"""The scheduler profile that a policy configures."""

from __future__ import annotations

from rebalancer.base.errors import PolicyError
from rebalancer.policy.cluster import FitScoring
from rebalancer.policy.model import Policy
from rebalancer.scheduler.configured import profiles_of
from rebalancer.scheduler.profile import SchedulerProfile, ScoringStrategy
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.objects import TopologySpreadConstraint


def scheduler_profile(policy: Policy, snapshot: Snapshot) -> SchedulerProfile:
    """Return the profile of the cluster's scheduler: the policy's, else that of the server's version.

    Raises PolicyError if the policy names a ConfigMap that has not been read.
    """
    given = policy.scheduler
    version = given.version_pair() or snapshot.version
    if given.configuration is not None:
        return profiles_of(given.configuration).at(version)
    if given.from_config is not None:
        message = "scheduler.fromConfig names a ConfigMap, which only a cluster has: give what it holds as a file,"
        raise PolicyError([f"{message} --set scheduler.fromConfig=FILE"])
    return SchedulerProfile.for_version(
        version,
        weights=dict(given.weights),
        default_constraints=_default_constraints(policy),
        scoring=_scoring(given.scoring_strategy),
        percentage_of_nodes_to_score=given.percentage_of_nodes_to_score,
        hard_pod_affinity_weight=given.hard_pod_affinity_weight,
    )


def _scoring(given: FitScoring) -> ScoringStrategy:
    ratio = given.requested_to_capacity_ratio
    return ScoringStrategy(
        type=given.type,
        resources=tuple((resource.name, resource.weight) for resource in given.resources),
        shape=() if ratio is None else tuple((p.utilization, p.score) for p in ratio.shape),
    )


def _default_constraints(policy: Policy) -> tuple[TopologySpreadConstraint, ...] | None:
    given = policy.scheduler.default_constraints
    if given is None:
        return None
    return tuple(
        TopologySpreadConstraint(
            max_skew=one.max_skew,
            topology_key=one.topology_key,
            when_unsatisfiable=one.when_unsatisfiable,
        )
        for one in given
    )
