"""Scale-out: add machines for pending pods that fit on no node."""

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
    """Options of scale-out. ``capacity.expander`` chooses the group."""

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
    """Adds machines to groups, within their maximum, for pods that fit on no node.

    It moves no pods. ``rebalancer.machines.capacity.scale_out`` does the work.
    """

    Params = ScaleOutParams

    def terms(self, view: View, params: ScaleOutParams) -> Sequence[Term]:  # noqa: ARG002
        """Return no terms: the strategy does not judge where pods are."""
        return ()
