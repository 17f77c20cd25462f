"""A strategy of another project, over the public plug-in surface only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from rebalancer.api import CapGroup, Domains, DomainTerm, Entry, Params, Term, View


class PerRackParams(Params):
    """Options of per-rack."""

    key: str = Field(default="example.com/rack", description="Node label that names the rack.")
    cap: int = Field(default=2, ge=1, description="Most pods of one owner in a rack.")


class PerRack:
    """Keeps the pods of one owner from crowding into one rack."""

    Params = PerRackParams

    def terms(self, view: View, params: PerRackParams) -> Sequence[Term]:
        """Return one soft term."""
        racks = Domains.of(view, params.key, np.ones(len(view.snapshot.nodes), bool))
        groups = [
            CapGroup(
                view,
                label=f"{owner.ref} per rack",
                domains=racks,
                counted=view.classes_of_owner(index),
                cap=params.cap,
            )
            for index, owner in enumerate(view.snapshot.owners)
        ]
        return [DomainTerm(view, Entry.SOFT, groups)]
