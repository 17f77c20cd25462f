"""Which grace period the policy gives which evicted pod."""

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.snapshot.selected import grace_periods
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.support.worlds import read_policy

OBJECTS = [
    node("a", labels={"pool": "spot"}),
    node("b"),
    *workload("web", ["a", "b"], namespace="shop"),
    *workload("db", ["a", "b"], namespace="data"),
]


def policy(method):
    return read_policy(f"method: {method}\nstrategies: {{duplicates: {{}}}}\n").policy


SHOP = "{select: {namespaces: [shop]}, gracePeriod: 20s}"
SPOT = "{select: {nodes: {pool: spot}}, gracePeriod: 10s}"
LONG = "{select: {namespaces: [data]}, gracePeriod: 5m}"


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("{}", {}),
        ("{gracePeriod: 30s}", {"web-0": 30, "web-1": 30, "db-0": 30, "db-1": 30}),
        (f"{{gracePeriods: [{SHOP}]}}", {"web-0": 20, "web-1": 20}),
        # The least of those that match, in any order; the general one only where none does.
        (f"{{gracePeriods: [{SHOP}, {SPOT}]}}", {"web-0": 10, "web-1": 20, "db-0": 10}),
        (f"{{gracePeriods: [{SPOT}, {SHOP}]}}", {"web-0": 10, "web-1": 20, "db-0": 10}),
        (
            f"{{gracePeriod: 30s, gracePeriods: [{LONG}]}}",
            {"web-0": 30, "web-1": 30, "db-0": 300, "db-1": 300},
        ),
    ],
)
def test_the_least_of_those_that_match_holds(method, expected):
    snapshot = snapshot_of(OBJECTS)
    name_of = {snapshot.pods.uid[pod]: snapshot.pods.name[pod] for pod in range(4)}
    given = grace_periods(snapshot, policy(method).method, name_of)
    assert {name_of[uid]: seconds for uid, seconds in given.items()} == expected
    one = next(iter(name_of))
    assert set(grace_periods(snapshot, policy(method).method, [one])) <= {one}


def test_a_pod_that_is_not_in_the_snapshot_has_the_general_one():
    method = policy(f"{{gracePeriod: 30s, gracePeriods: [{SHOP}]}}").method
    assert grace_periods(snapshot_of(OBJECTS), method, ["ended"]) == {"ended": 30}


@pytest.mark.parametrize(
    "rule",
    [
        "{gracePeriod: 20s}",
        "{select: {}, gracePeriod: 20s}",
        "{select: {namespaces: [a]}}",
        "{select: {namespaces: [a]}, gracePeriod: 0s}",
    ],
)
def test_a_rule_says_for_whom_and_how_long(rule):
    with pytest.raises(PolicyError, match=r"gracePeriods\[0\]"):
        policy(f"{{gracePeriods: [{rule}]}}")
