"""Low utilisation: pods leave nodes above a threshold while others stand nearly empty, or far below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from rebalancer.api import MEASURED, Params, Percent, Term, View
from strategies.utilisation.measured import MeasuredTerm
from strategies.utilisation.requested import UtilisationTerm


class LowUtilisationParams(Params):
    """Options of low-utilisation. Percentages are of a node's allocatable."""

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
        description="An over-used node also gives pods while another is so far below it. "
        "Default: the distance from under to over; 100%: only under-used nodes count.",
    )
    deviation: bool = Field(
        default=False, description="Thresholds are distances from the mean over all nodes."
    )
    signal: Literal["requests", "usage", "larger"] = Field(
        default="requests",
        description="What fills a node with cpu and memory: requests, usage (as metrics.k8s.io measures it), or "
        "the larger of both. Other resources and pods count as requested in any case.",
    )
    runs: int = Field(
        default=3,
        ge=1,
        le=100,
        description="By usage a node gives pods once it was over-used in so many runs in a row, this one "
        "included. More than 1 needs the memory (--memory).",
    )

    @property
    def measured(self) -> bool:
        """Whether measured use decides anything."""
        return self.signal != "requests" and not set(MEASURED).isdisjoint(self.over)

    @model_validator(mode="after")
    def _same_resources(self) -> LowUtilisationParams:
        if set(self.under) != set(self.over):
            raise ValueError("under and over must name the same resources")
        for name, low in self.under.items():
            if not self.deviation and low > self.over[name]:
                raise ValueError(f"under.{name} is above over.{name}")
        return self


class LowUtilisation:
    """Moves pods off over-used nodes while other nodes are under-used or far below, if they land better.

    Every move is predicted: a pod that would only carry the overload to another node stays. Nodes that
    joined are filled until none is further below an over-used one than ``gap``, not only until they pass
    the threshold ``under``: what started the moves must not be what ends them.
    """

    Params = LowUtilisationParams

    def terms(self, view: View, params: LowUtilisationParams) -> Sequence[Term]:
        """Return one term of imbalance."""
        return [MeasuredTerm(view, params) if params.measured else UtilisationTerm(view, params)]

    def needs_usage(self, params: LowUtilisationParams) -> bool:
        """See Measuring."""
        return params.measured
