"""Scale-out: groups of machines are increased for pending pods that no node takes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, Literal

from pydantic import Field

from rebalancer.api import (
    Duration,
    Params,
    Strategy,
    Term,
    View,
)


class ScaleOutParams(Params):
    """Options of scale-out. Which group is increased is ``capacity.expander``."""

    scales: ClassVar[Literal["in", "out"] | None] = "out"

    new_pod_delay: Duration = Field(
        default=timedelta(0), description="Younger pods trigger no scale-out."
    )
    provision_time: Duration = Field(
        default=timedelta(minutes=15),
        description="A group has failed when requested machines are no ready nodes after so long; its back-off is"
        " 5 minutes, then 10, 20, 30.",
    )
    cool_down: Duration = Field(
        default=timedelta(0),
        description="A group is not increased again sooner. Upcoming machines count anyway.",
    )


class ScaleOut(Strategy):
    """Adds machines to groups, within their maximum, for pods that no node takes.

    It moves no pod. What is done is in ``rebalancer.machines.capacity.scale_out``.
    """

    Params = ScaleOutParams

    def terms(self, view: View, params: ScaleOutParams) -> Sequence[Term]:  # noqa: ARG002
        """See Strategy: it says nothing of where pods are."""
        return ()
