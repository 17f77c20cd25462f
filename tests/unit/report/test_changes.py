from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.plan.plan import Cause, Status
from rebalancer.report.changes import Changes, WorkloadChange, _shift, group_alike
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.unit.report.report_examples import landing, move, outcome

WEB = "Deployment/shop/web"
HALF = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]}


@pytest.fixture
def changes(report):
    """Of web: two on node-a1, one on node-b1, and whatever else is given."""

    def made(moves=(), outcomes=None, nodes=None, **more):
        zoned = [node("node-a1", "zone-a"), node("node-b1", "zone-b"), node("node-c1", "zone-c")]
        web = workload("web", ["node-a1", "node-a1", "node-b1"], namespace="shop", spec=HALF)
        given = report(
            moves=moves, outcomes=outcomes, snapshot=snapshot_of([*(nodes or zoned), *web]), **more
        )
        return Changes(given)

    return made


def to(pod, target, source="node-a1", **more):
    return move(pod, landing(target, 1.0), node=source, uid=f"shop/{pod}", **more)


def test_a_plan_shows_pods_by_zone_now_and_as_planned(changes):
    (web,) = changes([to("web-0", "node-c1")]).workloads
    assert (web.owner, web.moves, web.by) == (WEB, 1, "zone")
    assert web.domains == ("zone-a", "zone-b", "zone-c")
    assert web.counts == ((2, 1, 0), (1, 1, 1))


@pytest.mark.parametrize(
    ("status", "landed", "after"),
    [
        (Status.EVICTED, "node-c1", (1, 1, 1)),
        (Status.EVICTED, "node-b1", (1, 2, 0)),
        (Status.EVICTED, None, (1, 1, 0)),
        (Status.BLOCKED, None, (2, 1, 0)),
    ],
    ids=["as planned", "elsewhere", "not landed yet", "not evicted"],
)
def test_a_run_shows_what_came_of_it_besides(changes, status, landed, after):
    one = to("web-0", "node-c1")
    (web,) = changes([one], [outcome(one, status, landed=landed)]).workloads
    assert web.counts == ((2, 1, 0), (1, 1, 1), after)


def test_moves_within_a_zone_are_shown_by_node(changes):
    nodes = [node(f"node-a{i}", "zone-a") for i in (1, 2)] + [node("node-b1", "zone-b")]
    (web,) = changes([to("web-0", "node-a2")], nodes=nodes).workloads
    assert (web.by, web.domains) == ("node", ("node-a1", "node-a2"))
    assert web.counts == ((2, 0), (1, 1))


def test_moves_that_leave_zones_less_even_are_shown_by_node(changes):
    # As a move for duplicates may: 2/1/0 would read as harm.
    moves = [to("web-0", "node-b1"), to("web-1", "node-b1")]
    (web,) = changes(moves).workloads
    assert (web.by, web.domains) == ("node", ("node-a1", "node-b1"))
    assert web.counts == ((2, 1), (0, 3))
    (web,) = changes([to("web-0", "node-b1")]).workloads
    assert web.by == "zone", "1/2/0 is as even as 2/1/0"


def of(owner, *counts, by="zone", moves=1):
    names = tuple(f"{owner}-{i}" if by == "node" else f"zone-{i}" for i in range(len(counts[0])))
    return WorkloadChange(owner, moves, by, names, counts)


def test_workloads_that_change_alike_are_one_story():
    web, api = of("web", (2, 0), (1, 1), moves=2), of("api", (2, 0), (1, 1), moves=3)
    other = of("other", (0, 2), (1, 1))
    stories = group_alike([other, web, api])
    assert [(one.owners, one.moves) for one in stories] == [(("web", "api"), 5), (("other",), 1)]
    assert stories[0].first is web


def test_by_node_workloads_are_alike_if_they_lose_as_many_pods():
    web = of("web", (3, 0, 2), (2, 1, 2), by="node")
    api = of("api", (0, 3), (1, 2), by="node")
    far = of("far", (2, 0), (1, 1), by="node")
    assert [one.owners for one in group_alike([web, api, far])] == [("web", "api"), ("far",)]
    zoned = of("zoned", (3, 0), (2, 1))
    assert len(group_alike([web, zoned])) == 2


def test_nodes_that_only_may_get_a_pod_are_not_named():
    web = of("web", (2, 0, 0, 1), (1, 0.25, 0.75, 2), by="node")
    assert list(web.list_changes()) == [("web-0", (2, 1)), ("web-3", (1, 2))]
    zoned = of("web", (2, 0, 0), (1, 0.25, 0.75))
    assert len(list(zoned.list_changes())) == 3


def test_without_zones_pods_are_shown_by_node(changes):
    nodes = [node("node-a1"), node("node-b1"), node("node-c1")]
    result = changes([to("web-0", "node-c1")], nodes=nodes)
    assert not result.has_zones
    assert result.workloads[0].domains == ("node-a1", "node-c1")
    assert result.still == ()


def test_workloads_without_moves_stand_beside_the_others(changes):
    assert [one.owner for one in changes().still] == [WEB]
    assert changes([to("web-0", "node-c1")]).still == ()


def test_a_move_takes_its_requests_along(changes):
    nodes = {one.name: one for one in changes([to("web-0", "node-c1")]).nodes}
    assert nodes["node-a1"].cpu == (0.25, 0.125)
    assert nodes["node-c1"].cpu == (0.0, 0.125)
    assert nodes["node-b1"].memory == (0.0625, 0.0625)
    assert [nodes[name].pods for name in sorted(nodes)] == [(2, 1), (1, 1), (0, 1)]


def test_a_pod_of_a_reviewed_plan_that_is_gone_changes_nothing(changes):
    result = changes([to("gone-0", "node-c1", source="node-c1", owner="Deployment/shop/old")])
    before, planned = result.workloads[0].counts
    assert before == planned
    assert {one.pods[0] - one.pods[1] for one in result.nodes} == {0}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["web-0", "web-1", "web-2"]),
            st.sampled_from(["node-a1", "node-b1", "node-c1", "nowhere"]),
        ),
        unique_by=lambda one: one[0],
    )
)
def test_moves_neither_make_nor_lose_pods(moved):
    stand = defaultdict(float, {"node-a1": 2.0, "node-b1": 1.0})
    sources = {"web-0": "node-a1", "web-1": "node-a1", "web-2": "node-b1"}
    for pod, target in moved:
        _shift(stand, sources[pod], [(target, 1.0)])
    assert sum(stand.values()) == 3
    assert min(stand.values()) >= 0


def test_the_removal_of_a_pod_that_has_ended_changes_nothing_that_stands(changes):
    ended = to("web-9", "node-c1", cause=Cause.ENDED)
    result = changes([replace(ended, landings=())])
    assert result.workloads == ()
    assert [one.owner for one in result.still] == [WEB]
    assert all(len(set(one.pods)) == 1 for one in result.nodes)
    both = changes([to("web-0", "node-c1"), replace(ended, landings=())])
    (web,) = both.workloads
    assert (web.moves, web.counts) == (1, ((2, 1, 0), (1, 1, 1)))
