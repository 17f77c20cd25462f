from dataclasses import replace

import pytest

from rebalancer.plan.plan import Cause, Status
from rebalancer.report import pictures as of
from rebalancer.report.changes import Changes
from rebalancer.report.pictures import pod_map
from rebalancer.report.render import render
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.unit.report.report_examples import landing, move, outcome


def drawn(given):
    return pod_map(given, Changes(given))


def on_nodes(panel):
    """Node -> (number, state) of each square that lies on it."""
    by_node: dict[str, list[tuple[str, str]]] = {box.title: [] for box in panel.nodes}
    for square in panel.squares:
        (box,) = (
            box
            for box in panel.nodes
            if box.x < square.x < box.x + 126 and box.y < square.y < box.y + box.height
        )
        by_node[box.title].append((square.number, square.state))
    return {name: squares for name, squares in by_node.items() if squares}


@pytest.fixture
def web(report, snapshot):
    """A report with moves of the pods web-0, web-1 and so on."""

    def made(*moves, **more):
        with_uids = [
            replace(each, uid=snapshot.pods.uid[int(each.pod[-1])], landings=each.landings)
            for each in moves
        ]
        return report(moves=with_uids, **more)

    return made


def test_a_pod_leaves_and_its_replacement_stands_on_its_node(web):
    now, planned = drawn(web(move("web-0", landing("node-c2", 1.0)))).panels
    assert (now.caption, planned.caption) == ("Now", "As planned")
    assert on_nodes(now) == {
        "node-a1": [("1", "leaves")],
        "node-a2": [("1", "")],
        "node-b1": [("1", "")],
    }
    assert on_nodes(planned) == {
        "node-a2": [("1", "")],
        "node-b1": [("1", "")],
        "node-c2": [("1", "new")],
    }
    assert [zone for _, zone in now.zones] == ["zone-a", "zone-b", "zone-c"]


def test_a_replacement_for_which_nodes_are_tied_stands_on_none_of_them(web):
    split = (landing("node-c2", 0.5), landing("node-c1", 0.5))
    _, planned = drawn(web(move("web-0", *split))).panels
    (box,) = (one for one in planned.nodes if one.tied)
    (column,) = {one.x for one in planned.nodes if one.name.startswith("node-c")}
    assert (box.name, box.x) == ("one of several", column)
    assert on_nodes(planned)[box.title] == [("1", "new")]
    (new,) = (square for square in planned.squares if square.state == "new")
    assert new.title == "replaces shop/web-0, on one of node-c2 50%, node-c1 50%"
    assert "one of several in zone-c 1" in planned.label


@pytest.mark.parametrize(
    ("status", "landed", "before", "after"),
    [
        (Status.EVICTED, "node-c3", [("1", "leaves")], {"node-c3": [("1", "new")]}),
        # Where a replacement has no node yet, none is drawn.
        (Status.EVICTED, None, [("1", "leaves")], {}),
        (Status.BLOCKED, None, [("1", "")], {"node-a1": [("1", "")]}),
    ],
)
def test_after_a_run_pods_are_where_they_landed_or_stayed(web, status, landed, before, after):
    planned = web(move("web-0"))
    came = outcome(planned.plan.moves[0], status, landed=landed)
    given = replace(planned, dry_run=False, outcomes=(came,))
    then, now = drawn(given).panels
    assert (then.caption, now.caption) == ("Before", "Now")
    assert on_nodes(then)["node-a1"] == before
    still = {"node-a2": [("1", "")], "node-b1": [("1", "")]}
    assert on_nodes(now) == still | after


def test_nothing_is_drawn_without_moves_or_of_too_many_nodes_or_pods(web, monkeypatch):
    assert drawn(web()) is None
    given = web(move("web-0"))
    for limit, most in (("_MAX_NODES", 7), ("_MAX_PODS", 2), ("_MAX_WORKLOADS", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(of, limit, most)
            assert drawn(given) is None
            patch.setattr(of, limit, most + 1)
            assert drawn(given) is not None


def test_squares_lie_within_their_nodes_in_rows_of_five(web):
    nodes = [node("node-a1"), node("node-b1"), node("node-c1")]
    crowd = snapshot_of([*nodes, *workload("web", ["node-a1"] * 12, namespace="shop")])
    given = web(move("web-0"))
    picture = drawn(replace(given, snapshot=crowd))
    squares = picture.panels[0].squares
    assert len(squares) == 12
    assert len({(square.x, square.y) for square in squares}) == 12
    assert sorted({square.y for square in squares}) == [squares[0].y + step for step in (0, 22, 44)]
    (box,) = (box for box in picture.panels[0].nodes if box.name == "node-a1")
    assert box.y + box.height >= max(square.y for square in squares) + picture.side
    assert picture.panels[0].height >= box.y + box.height


def test_what_keeps_pods_off_a_node_and_long_names_are_written_on_it(web):
    long = "ip-10-0-123-45.eu-west-1.compute.internal"
    taint = {"key": "dedicated", "value": "<gpu>", "effect": "NoSchedule"}
    nodes = [node(long), node("node-a1", unschedulable=True), node("node-c1", taints=[taint])]
    pods = workload("web", ["node-a1"], namespace="shop")
    given = replace(web(move("web-0")), snapshot=snapshot_of([*nodes, *pods]))
    boxes = {box.title: (box.name, box.note) for box in drawn(given).panels[0].nodes}
    assert boxes == {
        long: ("ip-10-0-123-45.e\u2026", ""),
        "node-a1, cordoned": ("node-a1", "cordoned"),
        "node-c1, tainted": ("node-c1", "tainted"),
    }


def test_keys_name_the_workloads_and_the_page_has_all_of_it(web):
    given = web(move("web-0"))
    assert [key.text for key in drawn(given).keys] == [
        "Deployment/shop/web: 1 move",
        "leaves",
        "its replacement",
    ]
    text = "".join(render(given, "html"))
    parts = [part.partition("</svg>")[0] for part in text.split('<svg class="pods"')[1:]]
    assert [part.count('<g class="pod ') for part in parts] == [3, 3, 3]
    assert "<title>replaces shop/web-0</title>" in parts[1]


@pytest.mark.parametrize(
    ("status", "before", "after"),
    [
        (Status.EVICTED, [("1", ""), ("1", "leaves")], [("1", "")]),
        (Status.REFUSED, [("1", ""), ("1", "")], [("1", ""), ("1", "")]),
    ],
)
def test_a_pod_that_has_ended_is_drawn_until_it_is_removed(report, status, before, after):
    ended = replace(move("web-9"), landings=(), cause=Cause.ENDED)
    then, now = drawn(report(moves=[ended], outcomes=[outcome(ended, status)])).panels
    assert sorted(on_nodes(then)["node-a1"]) == before
    assert sorted(on_nodes(now)["node-a1"]) == after
