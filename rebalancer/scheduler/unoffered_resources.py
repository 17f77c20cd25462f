"""Extended resources that pods use on nodes that do not offer them: DeviceClasses provide these.

A pod may request an extended resource that no device plug-in offers; if a DeviceClass names it, the scheduler
allocates devices for it (KEP-5004). DeviceClasses and ResourceSlices are not read.
"""

from __future__ import annotations

import numpy as np

from rebalancer.scheduler.resources import Resources, extended
from rebalancer.snapshot.model import Snapshot


class UnofferedResources:
    """Finds the extended resources that, at least in part, do not come from device plug-ins."""

    def __init__(self, snapshot: Snapshot, resources: Resources) -> None:
        self._snapshot, self._resources = snapshot, resources
        self._unoffered: dict[int, bool] = {}

    def of(self, cls: int) -> list[str]:
        """Return the resources of a class that may be allocated without appearing in the node's allocatable."""
        names = self._resources.names
        return [
            names[row]
            for row in self._resources.asked(cls)
            if _extended(names[row]) and self._is_unoffered(row)
        ]

    def _is_unoffered(self, row: int) -> bool:
        unoffered = self._unoffered.get(row)
        if unoffered is None:
            offered = self._snapshot.nodes.allocatable[row] > 0
            pods = self._snapshot.pods
            using = (pods.node >= 0) & (self._snapshot.requests[row] > 0)[pods.cls]
            elsewhere = not offered[pods.node[using]].all()
            unoffered = self._unoffered[row] = elsewhere or not np.any(offered)
        return unoffered


def _extended(name: str) -> bool:
    """Return whether a DeviceClass may provide a resource (``IsDRAExtendedResourceName``)."""
    return name.startswith("deviceclass.resource.kubernetes.io/") or extended(name)
