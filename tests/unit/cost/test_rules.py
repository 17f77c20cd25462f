"""Spread constraints as rules: which nodes count, and what makes two rules one group."""

import pytest

from rebalancer.cost.spread_group import SpreadRule
from rebalancer.cost.term import Entry
from rebalancer.testing.snapshots import ZONE, node, spread, workload
from tests.unit.cost.small import class_of, view_on

GPU = [{"key": "gpu", "effect": "NoSchedule"}]
NODES = [
    node("a1", "a"),
    node("a2", "a", labels={"disk": "ssd"}),
    node("b1", "b", taints=GPU),
    node("x1"),
]


def rules(spec):
    view = view_on([*NODES, *workload("web", ["a1", "b1"], spec=spec)])
    return SpreadRule.of(view, class_of(view, "web-0"))


def counting(rule):
    return [
        NODES[index]["metadata"]["name"] for index, counts in enumerate(rule.eligible) if counts
    ]


SSD = {"nodeSelector": {"disk": "ssd"}}


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        # Nodes without the topology key do not count; taints are ignored.
        (spread("web"), ["a1", "a2", "b1"]),
        (spread("web", nodeTaintsPolicy="Honor"), ["a1", "a2"]),
        # Node affinity is honoured unless the constraint says otherwise.
        (spread("web") | SSD, ["a2"]),
        (spread("web", nodeAffinityPolicy="Ignore") | SSD, ["a1", "a2", "b1"]),
    ],
)
def test_nodes_that_count(spec, nodes):
    (rule,) = rules(spec)
    assert counting(rule) == nodes


def test_a_node_needs_the_keys_of_all_constraints_of_that_kind():
    constraints = [
        *spread("web", hard=True)["topologySpreadConstraints"],
        *spread("web", "disk", hard=True)["topologySpreadConstraints"],
        *spread("web")["topologySpreadConstraints"],
    ]
    zone, disk, soft = rules({"topologySpreadConstraints": constraints})
    assert (counting(zone), counting(disk)) == (["a2"], ["a2"])
    assert counting(soft) == ["a1", "a2", "b1"], "a soft one does not ask for the keys of hard ones"


def test_min_domains_is_of_hard_constraints_only():
    (hard,) = rules(spread("web", hard=True, minDomains=3))
    (soft,) = rules(spread("web", minDomains=3))
    assert (hard.entry, hard.min_domains) == (Entry.HARD, 3)
    assert (soft.entry, soft.min_domains) == (Entry.SOFT, None)


def test_a_class_without_constraints_has_no_rules():
    assert rules({}) == ()


def test_equal_constraints_of_two_classes_are_one_group():
    labels = {"tier": "front"}
    constraint = spread("web", labelSelector={"matchLabels": labels})
    view = view_on(
        [
            *NODES,
            *workload("web", ["a1"], spec=constraint, labels=labels),
            *workload("shop", ["b1"], spec=constraint, labels=labels | {"app": "shop"}),
        ]
    )
    (web,) = SpreadRule.of(view, class_of(view, "web-0"))
    (shop,) = SpreadRule.of(view, class_of(view, "shop-0"))
    assert web.identity() == shop.identity()
    assert web.counted.tolist() == sorted({class_of(view, "web-0"), class_of(view, "shop-0")})
    assert web.key == ZONE
