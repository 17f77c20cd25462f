"""Similar groups: groups whose new nodes are interchangeable, and how new nodes are shared among them.

As Cluster Autoscaler's ``--balance-similar-node-groups`` (``processors/nodegroupset``: basic and AWS's comparator).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rebalancer.machines.capacity.groups import GroupTemplate
from rebalancer.machines.capacity.packing import NewNode
from rebalancer.providers.labelled import GROUP_LABELS
from rebalancer.snapshot.labels import ZONE_KEYS

_CLOSE = 0.05
_IGNORED_LABELS = frozenset(
    {
        *ZONE_KEYS,
        *GROUP_LABELS,
        "topology.ebs.csi.aws.com/zone",
        "topology.k8s.aws/zone-id",
        "alpha.eksctl.io/instance-id",
        "eks.amazonaws.com/sourceLaunchTemplateId",
        "eks.amazonaws.com/sourceLaunchTemplateVersion",
        "k8s.amazonaws.com/eniConfig",
    }
)
"""Labels in which similar groups differ."""


def similar(one: GroupTemplate, other: GroupTemplate) -> bool:
    """Return whether new nodes of two groups are interchangeable, except for their place.

    Their allocatable differs by 5 % at most; labels are equal except those of the place, of the group and of its
    launch template; taints are equal.
    """
    if one.max_pods != other.max_pods or set(one.taints) != set(other.taints):
        return False
    least, most = (
        np.minimum(one.allocatable, other.allocatable),
        np.maximum(one.allocatable, other.allocatable),
    )
    close = bool((most - least <= _CLOSE * most).all())
    return close and _compared(one.labels) == _compared(other.labels)


def balanced(
    sizes: Mapping[str, int], open_to: Mapping[str, Iterator[NewNode]], count: int
) -> list[NewNode]:
    """Return ``count`` new nodes, each added to the smallest group; fewer if ``open_to`` has no more.

    ``sizes``: group -> number of nodes. ``open_to``: group -> its next nodes.
    """
    sizes, open_to = dict(sizes), dict(open_to)
    nodes: list[NewNode] = []
    while open_to and len(nodes) < count:
        smallest = min(open_to, key=lambda name: (sizes[name], name))
        if (node := next(open_to[smallest], None)) is None:
            del open_to[smallest]
            continue
        sizes[smallest] += 1
        nodes.append(node)
    return nodes


def _compared(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in _IGNORED_LABELS}
