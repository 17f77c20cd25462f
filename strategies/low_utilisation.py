"""Low utilisation: pods leave nodes above a threshold while other nodes are nearly empty, or far below."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.api import (
    Strategy,
    Term,
    View,
)
from strategies.utilisation.measured import MeasuredTerm
from strategies.utilisation.params import LowUtilisationParams
from strategies.utilisation.requested import UtilisationTerm


class LowUtilisation(Strategy):
    """Moves pods off over-used nodes while other nodes are under-used or far below, if they land better.

    Every move is predicted: a pod that would overload another node instead stays. New nodes are filled until
    none is further below an over-used one than ``gap``, and not only to the threshold ``under``.
    """

    Params = LowUtilisationParams

    def terms(self, view: View, params: LowUtilisationParams) -> Sequence[Term]:
        """Return one term of imbalance."""
        return [MeasuredTerm(view, params) if params.measured else UtilisationTerm(view, params)]

    def needs_usage(self, params: LowUtilisationParams) -> bool:
        """See Strategy."""
        return params.measured
