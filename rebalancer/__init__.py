"""kube-rebalancer: moves running pods to better nodes.

The order of a run, and of a reader: ``kube`` reads the cluster, ``snapshot`` turns it into arrays, ``strategies`` (a
package beside this one) return the terms of one ``cost``, ``scheduler`` predicts where a replacement lands,
``planner`` chooses the moves, ``run`` combines these and executes the moves, ``report`` shows the result. ``serve``
repeats runs; ``commands`` has the commands; ``embedded`` is a simulated cluster.
"""

from __future__ import annotations

TYPE_CHECKING = False  # imported from typing it would cost more time than all that comes before a signal is handled
if TYPE_CHECKING:
    from typing import Final

__version__ = "0.1.0"
API_VERSION: Final = "rebalancer/v1"
"""``apiVersion`` of all data that the package writes and reads again: policies, reports, plans."""
