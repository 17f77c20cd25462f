"""The policy's sections on the cluster: its scheduler, and the safety limits of a run."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from rebalancer.plain_text import shown
from rebalancer.policy.params import Section
from rebalancer.policy.values import Duration, LabelKey, Limit, LimitField, PositiveDuration

_VERSION = re.compile(r"v?1\.(\d{2,3})(?:\.\d+)?\Z", re.ASCII)


def _version(value: Any) -> str:
    # An unquoted 1.40 is the number 1.4 in YAML, and 1.4 is no version of today.
    text = str(value) if isinstance(value, float) else value
    match = _VERSION.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            f'{shown(value)} is no Kubernetes version; write it in quotes, like "1.36"'
        )
    return f"1.{match[1]}"


ScorePlugin = Literal[
    "ImageLocality",
    "InterPodAffinity",
    "NodeAffinity",
    "NodeResourcesBalancedAllocation",
    "NodeResourcesFit",
    "PodTopologySpread",
    "TaintToleration",
]
"""The plug-ins of the default scheduler whose scores are modelled."""


class SpreadDefault(Section):
    """A topology spread constraint that the scheduler applies to pods without one."""

    topology_key: LabelKey = Field(description="Node label whose values are the domains.")
    max_skew: int = Field(ge=1, le=2**31 - 1, description="Largest allowed difference in pods.")
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        default="ScheduleAnyway", description="DoNotSchedule (hard) or ScheduleAnyway (soft)."
    )


class Scheduler(Section):
    """Differences between the cluster's scheduler and a default kube-scheduler of the API server's version."""

    version: Annotated[str, BeforeValidator(_version)] | None = Field(
        default=None,
        description="kube-scheduler's version, like \"1.36\"; absent: the API server's.",
    )
    weights: dict[ScorePlugin, Annotated[int, Field(ge=0, le=100)]] = Field(
        default_factory=dict,
        description="Score plug-in to weight, where it differs from the default; 0 disables its score.",
    )
    default_constraints: tuple[SpreadDefault, ...] | None = Field(
        default=None,
        description="PodTopologySpread's defaultConstraints; absent: the system's; empty: none.",
    )
    percentage_of_nodes_to_score: int | None = Field(
        default=None, ge=0, le=100, description="As in its configuration; absent or 0: adaptive."
    )
    hard_pod_affinity_weight: int = Field(
        default=1, ge=0, le=100, description="InterPodAffinity's hardPodAffinityWeight."
    )

    def version_pair(self) -> tuple[int, int] | None:
        """Return the version as (major, minor), or None for the API server's."""
        return None if self.version is None else (1, int(self.version[2:]))


class Safety(Section):
    """When a run moves nothing, because data are unreliable or the cluster is unhealthy.

    A run also moves nothing if a list could not be read to its end.
    """

    max_not_ready_nodes: LimitField = Field(
        default=Limit.parse("20%"),
        description="With more NotReady nodes, nothing is moved; a share is at least 1.",
    )
    max_pending_pods: LimitField = Field(
        default=Limit.parse("10%"),
        description="With more unscheduled pods (share of all pods), nothing is moved; a share is at least 10.",
    )
    max_clock_skew: Duration = Field(
        default=timedelta(seconds=60),
        description="Largest difference between the clocks of the run and of the API server.",
    )
    max_pending_time: PositiveDuration = Field(
        default=timedelta(seconds=30),
        description="The run ends if a replacement has no node after this time.",
    )
    max_ready_time: PositiveDuration = Field(
        default=timedelta(minutes=2),
        description="The run ends if a wave's replacements are not Ready after this time.",
    )

    def not_ready_nodes_of(self, nodes: int) -> int:
        """Return how many of ``nodes`` may be NotReady."""
        return self.max_not_ready_nodes.of(nodes, 1)

    def pending_pods_of(self, pods: int) -> int:
        """Return how many of ``pods`` may be unscheduled."""
        return self.max_pending_pods.of(pods, 10)
