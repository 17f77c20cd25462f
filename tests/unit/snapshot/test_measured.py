"""What was measured, from the objects of the metrics API to the columns of a snapshot."""

from typing import Any

import pytest

from rebalancer.snapshot.model import Snapshot, Usage
from rebalancer.testing.snapshots import snapshot_of
from tests.unit.snapshot.measurements import (
    MIB,
    NOW,
    node,
    node_metrics,
    pod,
    pod_metrics,
    replica_set,
)


def usage_of(*objects: Any) -> Usage:
    usage = snapshot_of(objects, now=NOW).usage
    assert usage is not None
    return usage


def of_class(snapshot: Snapshot, cpu_request: int) -> tuple[int, int]:
    """What a pod of the one class uses that requests so many millicores."""
    assert snapshot.usage is not None
    [cls] = [k for k, asked in enumerate(snapshot.requests[0].tolist()) if asked == cpu_request]
    cpu, memory = snapshot.usage.classes[:, cls].tolist()
    return cpu, memory


def test_without_measured_nodes_there_is_no_usage():
    assert snapshot_of([node("n1"), pod("a", "web", "n1")]).usage is None
    of_pod = pod_metrics("a", ("5m", "1Mi"))
    assert snapshot_of([node("n1"), pod("a", "web", "n1"), of_pod], now=NOW).usage is None


@pytest.mark.parametrize(
    ("cpu", "memory", "measured"),
    [
        ("1234567n", "12Ki", (1, 12 * 1024)),
        ("1500001n", "0", (2, 0)),
        ("500m", "1234567", (500, 1234567)),
        ("0", "0", (0, 0)),
        ("250m", "1Gi", (250, 1 << 30)),
        ("2", "129e6", (2000, 129_000_000)),
        ("1600u", "1536", (2, 1536)),
        (1, 5, (1000, 5)),
    ],
)
def test_quantities_of_a_node_are_in_the_units_of_the_snapshot(cpu, memory, measured):
    usage = usage_of(node("n1"), node_metrics("n1", cpu, memory))
    assert tuple(usage.nodes[:, 0].tolist()) == measured
    assert usage.known.tolist() == [True]


UNREADABLE: list[Any] = [
    "",
    "fast",
    "-5n",
    "n",
    "²n",
    "1n2",
    None,
    [],
    {"a": 1},
    True,
    "9" * 5000,
    "8Ei",
]


@pytest.mark.parametrize("odd", UNREADABLE)
@pytest.mark.parametrize("where", ["cpu", "memory"])
def test_what_cannot_be_read_was_not_measured(odd, where):
    bad = ("5m", odd) if where == "memory" else (odd, "1Mi")
    usage = usage_of(
        node("n1"),
        node("n2"),
        node_metrics("n1", *bad),
        node_metrics("n2", "1", "1Mi"),
        pod("a", "web", "n2", cpu="70m"),
        pod_metrics("a", ("5m", "1Mi"), bad),
    )
    assert usage.known.tolist() == [False, True]
    assert usage.nodes.tolist() == [[0, 1000], [0, MIB]]
    # Not even the container that could be read: half of a pod is no pod.
    assert usage.classes[:, 0].tolist() == [70, 64 * MIB]


@pytest.mark.parametrize("gap", ["usage", "timestamp", "containers"])
def test_metrics_with_a_gap_are_no_measurement(gap):
    of_node, of_pod = node_metrics("n1", "1", "1Mi"), pod_metrics("a", ("5m", "1Mi"))
    for metrics in (of_node, of_pod):
        metrics.pop(gap, None)
    usage = usage_of(node("n1"), pod("a", "web", "n1"), of_node, of_pod)
    assert usage.known.tolist() == [gap == "containers"]
    assert usage.classes[0].tolist() == [5 if gap == "usage" else 100]


@pytest.mark.parametrize(("age", "known"), [(-60, True), (30, True), (300, True), (301, False)])
def test_an_old_measurement_says_nothing_of_now(age, known):
    usage = usage_of(
        node("n1"),
        node_metrics("n1", "1", age=age),
        pod("a", "web", "n1"),
        pod_metrics("a", ("5m", "1Mi"), age=age),
    )
    assert usage.known.tolist() == [known]
    assert usage.nodes[0].tolist() == [1000 if known else 0]
    assert usage.classes[0].tolist() == [5 if known else 100]
    assert usage.at == NOW - age


def test_the_newest_measurement_of_a_node_that_is_there_counts_as_the_time():
    usage = usage_of(
        node("n1"),
        node("n2"),
        node_metrics("n1", "1", age=50),
        node_metrics("n2", "1", age=20),
        node_metrics("gone", "1", age=5),
    )
    assert usage.at == NOW - 20


def test_a_pod_uses_what_its_containers_use_and_a_class_the_mean_of_its_pods():
    snapshot = snapshot_of(
        [
            node("n1"),
            node_metrics("n1", "1"),
            # Names alike in two namespaces, as those of StatefulSets are.
            pod("web-0", "web", "n1", cpu="50m"),
            pod("web-1", "web", "n1", cpu="50m"),
            pod("web-2", "web", "n1", cpu="50m"),
            pod("web-0", "web", "n1", namespace="other", cpu="60m"),
            pod_metrics("web-0", ("1500000n", "1Mi"), ("2m", "3Mi")),
            pod_metrics("web-1", ("5500000n", "2Mi")),
            pod_metrics("web-0", ("70m", "9Mi"), namespace="other"),
            pod_metrics("web-9", ("1", "9Gi")),
        ],
        now=NOW,
    )
    assert of_class(snapshot, 50) == (4, 3 * MIB)  # 3.5 and 5.5; the third was not measured
    assert of_class(snapshot, 60) == (70, 9 * MIB)


def test_pods_on_their_way_out_do_not_count():
    snapshot = snapshot_of(
        [
            node("n1"),
            node_metrics("n1", "1"),
            pod("a", "web", "n1", cpu="50m"),
            pod("b", "web", "n1", cpu="50m", going=True),
            pod_metrics("a", ("4m", "1Mi")),
            pod_metrics("b", ("8m", "3Mi")),
        ],
        now=NOW,
    )
    assert of_class(snapshot, 50) == (4, MIB)


def test_what_was_measured_of_an_earlier_pod_of_that_name_does_not_count():
    snapshot = snapshot_of(
        [
            node("n1"),
            node_metrics("n1", "1"),
            pod("db-0", "db", "n1", cpu="50m", age=10),
            pod_metrics("db-0", ("4m", "1Mi"), age=20),
        ],
        now=NOW,
    )
    assert of_class(snapshot, 50) == (50, 64 * MIB)


@pytest.mark.parametrize(("made", "known"), [(10, False), (20, True), (30, True)])
def test_what_was_measured_of_an_earlier_node_of_that_name_does_not_count(made, known):
    usage = usage_of(node("n1", created=NOW - made), node_metrics("n1", "4", age=20))
    assert usage.known.tolist() == [known]
    assert usage.nodes[0].tolist() == [4000 if known else 0]


def test_a_replacement_that_was_never_seen_uses_what_it_replaces_uses():
    pods = [pod("a", "web", "n1", cpu="50m"), pod("b", "web", "n1", cpu="60m")]
    world = [node("n1"), node_metrics("n1", "1"), *pods, replica_set("web", "200m")]
    measured = [pod_metrics("a", ("4m", "1Mi")), pod_metrics("b", ("8m", "3Mi"))]
    assert of_class(snapshot_of([*world, *measured], now=NOW), 200) == (6, 2 * MIB)
    # One of the two alone; and none.
    assert of_class(snapshot_of([*world, measured[1]], now=NOW), 200) == (8, 3 * MIB)
    assert of_class(snapshot_of(world, now=NOW), 200) == (200, 64 * MIB)


def test_each_class_of_an_owner_has_a_mean_of_its_own():
    snapshot = snapshot_of(
        [
            node("n1"),
            node_metrics("n1", "1"),
            pod("a", "web", "n1", cpu="50m"),
            pod("b", "web", "n1", cpu="200m"),
            pod_metrics("a", ("4m", "1Mi")),
            pod_metrics("b", ("8m", "3Mi")),
        ],
        now=NOW,
    )
    assert of_class(snapshot, 50) == (4, MIB)
    assert of_class(snapshot, 200) == (8, 3 * MIB)


def test_columns_cannot_be_written_to():
    usage = usage_of(node("n1"), node_metrics("n1", "1"), pod("a", "web", "n1"))
    assert not any(c.flags.writeable for c in (usage.nodes, usage.known, usage.classes))
