"""Low utilisation: move pods off over-used nodes while other nodes are under-used."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.api import (
    Strategy,
    Term,
    View,
)
from strategies.utilisation.measured import MeasuredTerm
from strategies.utilisation.requested import LowUtilisationParams, UtilisationTerm


class LowUtilisation(Strategy):
    """Moves pods off over-used nodes while other nodes are under-used, or emptier by more than a gap.

    Every move is predicted: a pod that would overload another node stays. New nodes are filled until no node is
    emptier than an over-used one by more than ``gap``, and not only up to the threshold ``under``.
    """

    Params = LowUtilisationParams

    def terms(self, view: View, params: LowUtilisationParams) -> Sequence[Term]:
        """Return one term of imbalance."""
        return [MeasuredTerm(view, params) if params.measured else UtilisationTerm(view, params)]

    def needs_usage(self, params: LowUtilisationParams) -> bool:
        """Return whether the options use measured usage."""
        return params.measured
