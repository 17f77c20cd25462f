"""kube-rebalancer: moves running pods to where they should be.

The way of a run, and of a reader: ``kube`` reads the cluster, ``snapshot`` folds it into arrays,
``strategies`` (a package beside this one) hand terms of one ``cost`` over, ``scheduler`` predicts where a
replacement lands, ``planner`` chooses the moves, ``run`` puts these together and carries the moves out, ``report`` shows
the result. ``serve`` makes run after run; ``commands`` are the command line's; ``embedded`` is a cluster in a process.
"""

from __future__ import annotations

TYPE_CHECKING = False  # imported from typing it would cost more time than all that comes before a signal is handled
if TYPE_CHECKING:
    from typing import Final

__version__ = "0.1.0"
API_VERSION: Final = "rebalancer/v1"
"""``apiVersion`` of all data that the package writes and reads again: policies, reports, plans."""
