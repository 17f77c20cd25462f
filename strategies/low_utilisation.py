"""Low utilisation: pods leave nodes above a threshold while others stand nearly empty, or far below."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.api import Term, View
from strategies.utilisation.measured import MeasuredTerm
from strategies.utilisation.params import LowUtilisationParams
from strategies.utilisation.requested import UtilisationTerm


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
