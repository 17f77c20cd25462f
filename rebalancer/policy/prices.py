"""What machines cost, so that the most money is saved for the fewest evictions."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated

from pydantic import Field, model_validator

from rebalancer.policy.values import LabelKey, PositiveDuration, Section

Price = Annotated[float, Field(ge=0, le=1e6)]
"""Of a machine, for an hour, in any currency."""

SPOT = "/spot"
"""At the end of a machine's type: its price as a Spot machine."""


class Prices(Section):
    """Where the price of a node comes from: its own label, then the table. No prices are built in: they would grow stale."""

    label: LabelKey | None = Field(
        default=None, description="A label of nodes whose value is the node's price for an hour."
    )
    table: dict[str, Price] = Field(
        default={},
        description="Price for an hour by the label node.kubernetes.io/instance-type; TYPE/spot is that of a Spot machine.",
    )
    as_of: date | None = Field(
        default=None, description="The day of the table, as 2026-11-01; needed with it."
    )
    max_age: PositiveDuration = Field(
        default=timedelta(days=90), description="A table that is older is warned of."
    )
    least_saving: Price = Field(
        default=0.0,
        description="Least price for an hour that a node must save for each pod that is evicted from it.",
    )

    @property
    def given(self) -> bool:
        """Whether any price may be known."""
        return self.label is not None or bool(self.table)

    @model_validator(mode="after")
    def _goes_together(self) -> Prices:
        if bool(self.table) != (self.as_of is not None):
            raise ValueError(
                "table and asOf go together: prices change, and a table must say of which day it is"
            )
        if self.least_saving and not self.given:
            raise ValueError("leastSaving needs prices: give label or table")
        return self
