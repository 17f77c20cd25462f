"""No replacement lands on a node of another operating system than its pod runs on."""

import pytest

from rebalancer.plan.plan import Code
from rebalancer.planner.settings import Settings
from rebalancer.testing.snapshots import ZONE, node, spread, workload
from tests.unit.planner.conftest import plan_of

OS = "kubernetes.io/os"


def on(system, name, zone="east", **more):
    return node(name, zone, labels={OS: system}, **more)


LINUX = [on("linux", "lin0"), on("linux", "lin1")]
WINDOWS = [on("windows", "win0", "west"), on("windows", "win1", "west")]
NAMED = {"os": {"name": "linux"}}


@pytest.mark.parametrize("spec", [{}, NAMED], ids=["as-ready-pods", "as-spec-says"])
@pytest.mark.parametrize(
    ("strategy", "rule"),
    [
        ("duplicates", {}),
        ("low-utilisation", {}),
        ("topology-spread", spread("web")),
        ("topology-spread", spread("web", ZONE, hard=True)),
    ],
)
def test_nodes_of_another_system_are_no_reason_to_move(strategy, rule, spec):
    web = workload("web", ["lin0"] * 3 + ["lin1"] * 3, cpu="900m", spec={**rule, **spec})
    plan = plan_of([*LINUX, *WINDOWS, *web], strategies=[strategy])
    assert not plan.moves
    assert not plan.unmet


@pytest.mark.parametrize("steer", [False, True])
def test_a_move_that_might_end_there_is_refused(steer):
    # lin0 must be left, and lin1 is fuller than the nodes of the other system.
    leaving = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    nodes = [on("linux", "lin0", taints=[leaving]), LINUX[1], *WINDOWS]
    objects = [*nodes, *workload("full", ["lin1"] * 2, cpu="1"), *workload("web", ["lin0"] * 2)]
    plan = plan_of(objects, strategies=["leaving"], settings=Settings(steer=steer))
    if steer:
        assert {landing.node for move in plan.moves for landing in move.landings} == {"lin1"}
        assert plan.moves
    else:
        assert {skip.code for skip in plan.skips} == {Code.OTHER_OS}
        assert "another operating system" in plan.skips[0].message


def test_windows_pods_keep_off_linux_nodes():
    web = workload("web", ["win0", "win0"])
    plan = plan_of([*LINUX, WINDOWS[0], *web], strategies=["duplicates"])
    assert not plan.moves
    plan = plan_of(
        [*LINUX, *WINDOWS, *workload("full", ["lin0", "lin1"], cpu="3"), *web],
        strategies=["duplicates"],
    )
    assert [{landing.node for landing in move.landings} for move in plan.moves] == [{"win1"}]
