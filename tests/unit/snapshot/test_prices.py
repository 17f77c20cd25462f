"""The prices of nodes: by a label, or by a table of types."""

from datetime import date

import numpy as np
import pytest

from rebalancer.policy.model import Prices
from rebalancer.snapshot.prices import days_stale, node_prices
from rebalancer.testing.snapshots import node, snapshot_of

TYPE = "node.kubernetes.io/instance-type"
TABLE = Prices(
    table={"m5.large": 0.1, "m5.large/spot": 0.04, "c5.large": 0.09}, as_of=date(2027, 1, 1)
)
LABEL = Prices(label="example.com/price")


@pytest.mark.parametrize(
    ("prices", "labels", "price"),
    [
        (TABLE, {TYPE: "m5.large"}, 0.1),
        (TABLE, {"beta.kubernetes.io/instance-type": "m5.large"}, 0.1),
        (TABLE, {TYPE: "c5.large", "beta.kubernetes.io/instance-type": "m5.large"}, 0.09),
        (TABLE, {TYPE: "m5.large", "eks.amazonaws.com/capacityType": "SPOT"}, 0.04),
        (TABLE, {TYPE: "m5.large", "karpenter.sh/capacity-type": "on-demand"}, 0.1),
        (TABLE, {TYPE: "m5.large", "karpenter.sh/capacity-type": "spot"}, 0.04),
        (TABLE, {TYPE: "m5.large", "cloud.google.com/gke-spot": "true"}, 0.04),
        (TABLE, {TYPE: "m5.large", "kubernetes.azure.com/scalesetpriority": "spot"}, 0.04),
        # The price of the type is that of an on-demand machine.
        (TABLE, {TYPE: "c5.large", "karpenter.sh/capacity-type": "spot"}, None),
        (TABLE, {TYPE: "r5.large"}, None),
        (TABLE, {}, None),
        (LABEL, {"example.com/price": "0.25"}, 0.25),
        (LABEL, {"example.com/price": "free"}, None),
        (LABEL, {"example.com/price": "-1"}, None),
        (LABEL, {"example.com/price": "inf"}, None),
        (
            TABLE.model_copy(update={"label": "example.com/price"}),
            {TYPE: "m5.large", "example.com/price": "0.25"},
            0.25,
        ),
        (
            TABLE.model_copy(update={"label": "example.com/price"}),
            {TYPE: "m5.large", "example.com/price": "?"},
            0.1,
        ),
    ],
)
def test_the_price_of_a_node(prices, labels, price):
    known = node_prices(prices, snapshot_of([node("n0", labels=labels)]))
    assert known is not None
    assert np.isnan(known.hourly[0]) if price is None else known.hourly[0] == price
    assert known.known[0] == (price or 0.0)


def test_nodes_of_one_kind_have_one_price_and_others_their_own():
    kinds = [{TYPE: "m5.large"}, {TYPE: "c5.large"}, {TYPE: "m5.large"}, {}, {TYPE: "m5.large"}]
    nodes = [node(f"n{n}", labels={**of, "name": f"n{n}"}) for n, of in enumerate(kinds)]
    known = node_prices(TABLE, snapshot_of(nodes))
    assert known is not None
    assert known.known.tolist() == [0.1, 0.09, 0.1, 0.0, 0.1]
    empty = node_prices(TABLE, snapshot_of([]))
    assert empty is not None
    assert empty.hourly.shape == (0,)


def test_a_policy_without_prices_has_none():
    assert node_prices(Prices(), snapshot_of([node("n0")])) is None


def test_a_table_is_stale_after_its_time():
    newyear = date(2027, 1, 1)
    day = 86_400.0
    start = 1_798_761_600.0  # of 2027
    assert TABLE.as_of == newyear
    assert days_stale(TABLE, start + 90 * day) is None
    assert days_stale(TABLE, start + 91 * day) == 91
    assert days_stale(LABEL, start + 1000 * day) is None
