"""The order in which the scheduler searches nodes: zones round robin (``backend/cache/node_tree.go``)."""

from __future__ import annotations

import numpy as np

from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.labels import MISSING
from rebalancer.snapshot.model import Nodes

_ZONE = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")


def search_order(nodes: Nodes) -> Int32s:
    """Return the nodes (N,) in the order of the scheduler's search.

    Within a zone the scheduler uses the order in which it first saw the nodes. No API shows that order, so creation
    time and then name are used.
    """
    known = np.lexsort((np.arange(len(nodes)), nodes.created))
    zones = _first(nodes, _ZONE), _first(nodes, _REGION)
    zone = np.unique(np.stack(zones), axis=1, return_inverse=True)[1].reshape(-1)[known]
    _, first, of_node = np.unique(zone, return_index=True, return_inverse=True)
    appearance = np.argsort(np.argsort(first))[of_node]
    by_zone = np.argsort(appearance, kind="stable")
    starts = np.searchsorted(appearance[by_zone], np.arange(len(first)))
    rank = np.empty(len(nodes), np.int64)
    rank[by_zone] = np.arange(len(nodes)) - starts[appearance[by_zone]]
    order: Int32s = known[np.lexsort((appearance, rank))].astype(np.int32)
    return order


def _first(nodes: Nodes, keys: tuple[str, str]) -> Int32s:
    """Return per node (N,) the value id of the first key, or of the second key (shifted) if the first is absent."""
    old, new = (nodes.labels.column(key) for key in keys)
    names = nodes.labels.values(keys[0]), nodes.labels.values(keys[1])
    ids = {name: index for index, name in enumerate(dict.fromkeys((*names[0], *names[1])))}
    maps = [np.array([ids[name] for name in of_key] + [ids.get("", MISSING)]) for of_key in names]
    return np.where(old != MISSING, maps[0][old], maps[1][new]).astype(np.int32)
