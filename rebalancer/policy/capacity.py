"""Policy sections about machines: the provider, when a node can be removed, and which group grows first."""

from __future__ import annotations

import enum
import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from rebalancer.policy.values import LabelKey, Percent, Section

STARTUP_TAINTS = (
    "ebs.csi.aws.com/agent-not-ready",
    "efs.csi.aws.com/agent-not-ready",
    "fsx.csi.aws.com/agent-not-ready",
    "node.cilium.io/agent-not-ready",
)
"""Those of agents that ask for one in their installation guides."""


class Expander(enum.StrEnum):
    """Which of the suitable groups is scaled up."""

    LEAST_WASTE = "least-waste"
    """The one whose new nodes have the smallest share of cpu and memory left over."""
    MOST_PODS = "most-pods"
    """The one that takes the most pods."""
    PRIORITY = "priority"
    """The one whose name matches the earliest pattern of ``priorities``; without a match it is not increased."""


class Beside(enum.StrEnum):
    """What to do if another autoscaler is found in the cluster."""

    ADVISE = "advise"
    """Nothing is done to machines: the report says what would be."""
    ACT = "act"
    """As without it: it looks after other machines, or what shows it is none."""


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


Pattern = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_pattern)]


class CapacitySettings(Section):
    """Settings of ``rebalancer capacity``."""

    under: Percent = Field(
        default=0.5,
        description="Only nodes of whose cpu and memory at most so much is requested can be removed; of nodes with GPUs, of these alone.",
    )
    expander: Expander = Field(
        default=Expander.LEAST_WASTE,
        description="Which group is increased where several would help: least-waste, most-pods, or priority.",
    )
    priorities: tuple[Pattern, ...] = Field(
        default=(),
        description="For expander: priority. Regular expressions that groups' names contain, the first ones first; others are not increased.",
    )

    startup_taints: tuple[LabelKey, ...] = Field(
        default=STARTUP_TAINTS,
        description="Keys of taints that a node has until its agents are ready: until then it is an upcoming machine. Those that begin with"
        " startup-taint.cluster-autoscaler.kubernetes.io/ or ignore-taint.cluster-autoscaler.kubernetes.io/ always count.",
    )
    max_nodes: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Most nodes of the cluster, with upcoming machines, to which groups are increased; absent: only their own maxima count.",
    )
    beside_autoscaler: Beside = Field(
        default=Beside.ADVISE,
        description="What scale-in and scale-out do where Cluster Autoscaler or Karpenter is seen: advise, or act (it looks after other machines).",
    )

    @model_validator(mode="after")
    def _goes_together(self) -> CapacitySettings:
        if (self.expander is Expander.PRIORITY) != bool(self.priorities):
            raise ValueError("expander: priority and priorities go together")
        return self
