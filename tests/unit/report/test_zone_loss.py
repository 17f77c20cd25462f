"""What is lost with each zone: workloads as a whole, and what PodDisruptionBudgets ask for."""

import pytest

from rebalancer.report.zone_loss import report_zones, workload_data
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import disruption_budget, node, snapshot_of, workload

NODES = [node(f"{zone}{i}", zone) for zone in "pqr" for i in range(2)]
SHUT = [node(f"{zone}{i}", zone, unschedulable=zone == "r") for zone in "pqr" for i in range(2)]
ALONE = [node("s0"), node("s1")]


def losses_of(objects):
    """Zone -> (names of workloads that lose all, of those that fall below a budget), where there are some."""
    return {
        loss.zone: tuple(
            [one.workload.rpartition("/")[2] for one in of] for of in (loss.lost, loss.below)
        )
        for loss in report_zones(snapshot_of(objects)).notable
    }


@pytest.mark.parametrize(
    ("nodes", "places", "asked", "losses"),
    [
        (NODES, ["p0", "q0", "r0"], None, {}),
        (NODES, ["p0", "p1", "p1"], None, {"p": (["web"], [])}),
        # One pod is lost with any zone.
        (NODES, ["p0"], None, {}),
        (NODES, ["p0", "p1", "q0", "r0"], 3, {"p": ([], ["web"])}),
        (NODES, ["p0", "p1", "q0", "r0"], 2, {}),
        # What loses all is not said to fall below its budget, too.
        (NODES, ["p0", "p1"], 1, {"p": (["web"], [])}),
        # It has too few pods whatever goes.
        (NODES, ["p0", "q0"], 4, {}),
        # Pods in r do not serve: all that do are in p.
        (SHUT, ["p0", "p1", "r0", "r1"], None, {"p": (["web"], [])}),
        # Pods on nodes without a zone stay.
        ([*NODES, *ALONE], ["p0", "p1", "s0"], None, {}),
        # With one zone there is nothing to compare.
        (NODES[:2], ["p0", "p1"], 1, {}),
    ],
)
def test_what_is_lost_with_a_zone(nodes, places, asked, losses):
    budgets = []
    if asked is not None:
        healthy = len(places)
        budgets = [disruption_budget("b", "web", allowed=healthy - asked, healthy=healthy)]
    given = [*nodes, *workload("web", places), *budgets]
    assert losses_of(given) == losses
    assert losses_of(reversed(given)) == losses


def test_each_workload_says_how_many_pods_serve_in_each_zone():
    nodes = [*NODES, *ALONE]
    pods = [*workload("b", ["p0", "q0", "q1", "s0"]), *workload("a", ["r0"], kind="StatefulSet")]
    assert list(workload_data(report_zones(snapshot_of([*nodes, *pods])))) == [
        {
            "workload": "Deployment/default/b",
            "serving": {"p": 1, "q": 2},
            "withoutZone": 1,
            "lostWith": None,
            "belowBudgetWithout": {},
        },
        {
            "workload": "StatefulSet/default/a",
            "serving": {"r": 1},
            "withoutZone": 0,
            "lostWith": "r",
            "belowBudgetWithout": {},
        },
    ]


def test_a_line_names_the_zone_and_the_largest_workloads():
    pods = [one for i in range(5) for one in workload(f"w{i}", ["p0"] * (i + 2))]
    budget = disruption_budget("b", "x", allowed=0, healthy=2)
    (loss,) = report_zones(
        snapshot_of([*NODES, *pods, *workload("x", ["p0", "q0"]), budget])
    ).losses[:1]
    assert str(loss) == (
        "p: 5 workloads lose all pods (Deployment/default/w4, Deployment/default/w3,"
        " Deployment/default/w2 and 2 more); 1 workload falls below its PodDisruptionBudget"
        " (Deployment/default/x)"
    )


@pytest.mark.parametrize(
    ("scope", "named"),
    [
        (Scope(), ["Deployment/shop/till", "Deployment/lab/rat"]),
        (Scope(namespace="lab"), ["Deployment/lab/rat"]),
        (Scope(namespace="none"), []),
    ],
)
def test_with_flags_only_what_they_ask_for_is_named(scope, named):
    pods = [
        *workload("till", ["p0", "p1"], namespace="shop"),
        *workload("rat", ["p0", "p0"], namespace="lab"),
    ]
    zones = report_zones(snapshot_of([*NODES, *pods]), scope)
    assert sorted(one.workload for one in zones.workloads) == sorted(named)
    assert [len(loss.lost) for loss in zones.notable] == ([len(named)] if named else [])
