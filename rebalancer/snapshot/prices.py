"""The prices of nodes, by a policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from rebalancer.policy.model import SPOT, Prices
from rebalancer.snapshot.columns import Floats
from rebalancer.snapshot.model import Snapshot

_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_SPOT: Mapping[str, str] = {
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "node.kubernetes.io/lifecycle": "spot",
}
"""The labels by which EKS, Karpenter, GKE, AKS and kOps name a Spot machine."""


@dataclass(frozen=True, slots=True)
class NodePrices:
    """The prices of the nodes of a snapshot, for an hour."""

    hourly: Floats
    """(N,) NaN where it is not known."""
    least_saving: float
    """Least price that a node must save for each pod that leaves it."""

    @property
    def known(self) -> Floats:
        """The prices (N,); 0 where one is not known."""
        known: Floats = np.nan_to_num(self.hourly)
        return known


def node_prices(prices: Prices, snapshot: Snapshot) -> NodePrices | None:
    """Return the prices of the nodes; None if the policy names none."""
    if not prices.given:
        return None
    labels = snapshot.nodes.labels
    keys = [*([] if prices.label is None else [prices.label]), *_TYPES, *_SPOT]
    # Nodes of one kind have one price: thousands of them are a handful of questions.
    kinds = np.stack([labels.column(key) for key in keys])
    _, first, of_node = np.unique(kinds, axis=1, return_index=True, return_inverse=True)
    asked = [price_of(prices, labels.of(node)) for node in first.tolist()]
    return NodePrices(np.array(asked, np.float64)[of_node.reshape(-1)], prices.least_saving)


def price_of(prices: Prices, labels: Mapping[str, str]) -> float:
    """Return the price for an hour of a node with these labels; NaN if it is not known.

    A Spot machine of which the table has only the type has no price: the type's is that of an on-demand machine.
    """
    if prices.label is not None and (price := _parse(labels.get(prices.label, ""))) is not None:
        return price
    kind = next((labels[key] for key in _TYPES if key in labels), "")
    return prices.table.get(kind + SPOT if is_spot(labels) else kind, math.nan)


def is_spot(labels: Mapping[str, str]) -> bool:
    """Return whether the labels of a node name a Spot machine."""
    return any(labels.get(key) == value for key, value in _SPOT.items())


def days_stale(prices: Prices, now: float) -> int | None:
    """Return how many days old the table is if it is older than ``max_age``; None if it is not. ``now``: epoch seconds."""
    if prices.as_of is None:
        return None
    age = datetime.fromtimestamp(now, UTC).date() - prices.as_of
    return age.days if age > prices.max_age else None


def _parse(text: str) -> float | None:
    """Parse the value of a price label; None if it is not a price."""
    try:
        price = float(text)
    except ValueError:
        return None
    return price if math.isfinite(price) and price >= 0 else None
