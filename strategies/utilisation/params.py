"""The options of low-utilisation."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from rebalancer.api import MEASURED, Direction, Params, Percent


class LowUtilisationParams(Params):
    """Options of low-utilisation. Percentages are shares of a node's allocatable."""

    direction: ClassVar[Direction | None] = Direction.SPREAD

    under: dict[str, Percent] = Field(
        default={"cpu": 0.2, "memory": 0.2, "pods": 0.2},
        description="A node below all of these is under-used.",
    )
    over: dict[str, Percent] = Field(
        default={"cpu": 0.5, "memory": 0.5, "pods": 0.5},
        description="A node above any of these is over-used, and gives pods while one is under-used.",
    )
    gap: Percent | None = Field(
        default=None,
        description="An over-used node also gives pods while another node is below it by this much. "
        "Default: the distance from under to over; 100%: only under-used nodes count.",
    )
    deviation: bool = Field(
        default=False, description="Thresholds are distances from the mean over all nodes."
    )
    signal: Literal["requests", "usage", "larger"] = Field(
        default="requests",
        description="What cpu and memory utilisation is computed from: requests, usage (of metrics.k8s.io), or "
        "the larger of both. Other resources and pods count as requested in any case.",
    )
    runs: int = Field(
        default=3,
        ge=1,
        le=100,
        description="By usage, a node gives pods after it was over-used in this number of runs in a row, this one "
        "included. More than 1 needs the memory (--memory).",
    )

    @property
    def measured(self) -> bool:
        """Whether measured usage has an effect."""
        return self.signal != "requests" and not set(MEASURED).isdisjoint(self.over)

    @model_validator(mode="after")
    def _same_resources(self) -> LowUtilisationParams:
        if set(self.under) != set(self.over):
            raise ValueError("under and over must name the same resources")
        for name, low in self.under.items():
            if not self.deviation and low > self.over[name]:
                raise ValueError(f"under.{name} is above over.{name}")
        return self
