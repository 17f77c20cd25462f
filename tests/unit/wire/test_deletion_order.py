"""The order in which a ReplicaSet deletes pods, pair by pair, as the Go source compares them."""

import pytest

from rebalancer.wire.deletion_order import (
    Replica,
    parse_deletion_cost,
    read_replicas,
    sort_replicas,
)

NOW = 2_000_000.0
PLAIN = Replica("m", "n1", "Running", True, 0, 1, NOW - 1000, (0, 0), NOW - 1000)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # Each row differs in one rule, and the rules after it say the contrary.
        ({"node": "", "phase": "Pending", "ready": False, "cost": 9}, {"cost": -9}),
        ({"phase": "Pending", "cost": 9}, {"phase": "Unknown", "cost": -9}),
        ({"phase": "Unknown", "cost": 9}, {"phase": "Running", "cost": -9}),
        ({"ready": False, "cost": 9}, {"cost": -9}),
        ({"cost": -1}, {"cost": 0, "together": 5}),
        ({"cost": 0}, {"cost": 1, "together": 5}),
        ({"together": 3, "ready_since": NOW - 9000}, {"together": 2}),
        # 1000 and 9000 seconds are different powers of two of nanoseconds; 1000 and 1050 are one.
        ({"ready_since": NOW - 1000, "restarts": (0, 0)}, {"ready_since": NOW - 9000, "restarts": (9, 0)}),
        ({"ready_since": NOW - 1050, "uid": "a"}, {"ready_since": NOW - 1000, "uid": "b"}),
        ({"ready_since": 0.0, "uid": "z"}, {"ready_since": NOW - 1, "uid": "a"}),
        ({"restarts": (2, 0), "created": NOW - 9000}, {"restarts": (1, 7)}),
        ({"restarts": (1, 2), "created": NOW - 9000}, {"restarts": (1, 1)}),
        ({"created": NOW - 1000, "uid": "z"}, {"created": NOW - 9000, "uid": "a"}),
        ({"created": NOW - 1050, "uid": "a"}, {"created": NOW - 1000, "uid": "b"}),
        ({"ready": False, "ready_since": 0.0, "created": NOW - 9}, {"ready": False, "ready_since": NOW}),
        # A pod of the future is younger than any other.
        ({"ready_since": NOW + 5, "uid": "z"}, {"ready_since": NOW - 1, "uid": "a"}),
    ],
)  # fmt: skip
def test_the_first_of_two_goes_first(first, second):
    pair = [PLAIN._replace(**first), PLAIN._replace(**second)]
    assert sort_replicas(pair, NOW) == [0, 1]
    assert sort_replicas(pair[::-1], NOW) == [1, 0]


def test_what_the_rules_leave_open_is_the_same_in_each_order():
    three = [PLAIN._replace(uid=uid) for uid in "cab"]
    assert [three[row].uid for row in sort_replicas(three, NOW)] == ["a", "b", "c"]
    assert sort_replicas(three[::-1], NOW) == [1, 0, 2]


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        (None, 0),
        ("", 0),
        ("0", 0),
        ("-0", 0),
        ("-17", -17),
        ("-017", -17),
        ("42", 42),
        ("+42", 0),
        ("042", 0),
        ("00", 0),
        (" 1", 0),
        ("1 ", 0),
        ("1\n", 0),
        ("1_0", 0),
        ("1.0", 0),
        ("-", 0),
        ("٣", 0),
        ("2147483647", 2**31 - 1),
        ("2147483648", 0),
        ("-2147483648", -(2**31)),
        ("-2147483649", 0),
        ("9" * 5000, 0),
    ],
)
def test_a_cost_is_read_as_the_controller_reads_it(text, cost):
    assert parse_deletion_cost(text) == cost


def test_pods_are_read_with_sidecars_and_those_beside_them():
    pod = {
        "metadata": {"uid": "u", "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {
            "nodeName": "n1",
            "initContainers": [{"name": "once"}, {"name": "side", "restartPolicy": "Always"}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "restartCount": 2}],
            "initContainerStatuses": [
                {"name": "once", "restartCount": 8},
                {"name": "side", "restartCount": 3},
            ],
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T10:00:10Z"}
            ],
        },
    }
    other = {"metadata": {"uid": "v"}, "spec": {"nodeName": "n1"}, "status": {}}
    first, second = read_replicas([pod, other])
    assert first.ready
    assert (first.restarts, first.together, first.ready_since - first.created) == ((2, 3), 2, 10)
    assert (second.ready, second.phase, second.created) == (False, "", 0.0)
