"""Two who want one node: each pair of the table in docs/drain.md, played on an API server."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.engine import Durations
from rebalancer.kube.nodes import NodeChange, change_node
from rebalancer.machines.aws.agent import write_notice
from rebalancer.machines.capacity.writing import change_state
from rebalancer.machines.drain.cordon import cordon, enter, let_go
from rebalancer.node_record.marks import remove_marks, set_mark
from rebalancer.node_record.protocol import EXCLUDE
from rebalancer.node_record.records import Order, ReplacePhase, Stage
from rebalancer.signals.notice import NodeNotice
from rebalancer.snapshot.leaving import LEAVE
from rebalancer.wire.marks import STEER, Mark, Phase, ScaleInRecord
from tests.support.clocks import NOON
from tests.unit.machines.interruption.scene import built_in, process, spot

PAGE = Path(__file__).parents[3] / "docs" / "drain.md"
NODE = "n-a"
FAR = NOON + 86_400.0


class Ground(NamedTuple):
    """A cluster of one node, and the process that attends to its interruptions."""

    cluster: Any
    here: Any

    @property
    def uid(self) -> str:
        return str(self.node["metadata"]["uid"])

    @property
    def node(self) -> Any:
        return self.cluster.get("Node", NODE)

    @property
    def closed(self) -> bool:
        return bool(self.node["spec"].get("unschedulable", False))

    def change(self, change: NodeChange) -> None:
        """Change the node as another client does, who knows nothing of records."""
        change_node(self.here.client, NODE, lambda _: change)


class Actor(NamedTuple):
    """One who wants the node, and lets go of it."""

    come: Callable[[Ground], object]
    go: Callable[[Ground], object]


def drain(by: str) -> Actor:
    def come(ground: Ground) -> None:
        cordon(ground.here.client, NODE, Order(by, "it is drained", "", ground.uid))

    return Actor(come, lambda ground: let_go(ground.here.client, NODE, by))


def replacement() -> Actor:
    closes = drain("replace")

    def come(ground: Ground) -> None:
        closes.come(ground)
        stage = Stage(ReplacePhase.EMPTYING, "replace", NOON, ground.uid)
        enter(ground.here.client, NODE, stage, may=lambda _node, before: before is None)

    return Actor(come, closes.go)


def scale_in() -> Actor:
    def come(ground: Ground) -> None:
        change_state(ground.here.client, NODE, ScaleInRecord(Phase.LEAVING, "", ""), None)

    def go(ground: Ground) -> None:
        change_state(ground.here.client, NODE, None, Phase.LEAVING)

    return Actor(come, go)


def interruption() -> Actor:
    def come(ground: Ground) -> None:
        ground.here.pipeline_run(NODE, spot(seconds=86_400.0)).run()

    def go(ground: Ground) -> None:
        ground.here.pipeline_run(NODE, spot(cancelled=True)).run()

    return Actor(come, go)


def agent() -> Actor:
    notice = NodeNotice("imds/i-1/spot", "spot", deadline="2030-01-01T00:00:00Z")
    return Actor(
        lambda ground: write_notice(ground.here.client, NODE, notice),
        lambda ground: write_notice(ground.here.client, NODE, None),
    )


def marks() -> Actor:
    return Actor(
        lambda ground: set_mark(ground.here.client, NODE, Mark(STEER, FAR, "run")),
        lambda ground: remove_marks(ground.here.client, NODE, lambda _: True),
    )


def person() -> Actor:
    return Actor(
        lambda ground: ground.change(NodeChange(unschedulable=True)),
        lambda ground: ground.change(NodeChange(unschedulable=False)),
    )


def leave() -> Actor:
    return Actor(
        lambda ground: ground.change(NodeChange(annotations={LEAVE: "now"})),
        lambda ground: ground.change(NodeChange(annotations={LEAVE: None})),
    )


def autoscaler() -> Actor:
    key = "ToBeDeletedByClusterAutoscaler"

    def tainted(ground: Ground, *more: Any) -> None:
        kept = [one for one in ground.node["spec"].get("taints", ()) if one["key"] != key]
        ground.change(NodeChange(taints=(*kept, *more)))

    taint = {"key": key, "effect": "NoSchedule"}
    return Actor(lambda ground: tainted(ground, taint), tainted)


ACTORS = {
    "drain": drain("a"),
    "replace": replacement(),
    "scale-in": scale_in(),
    "interruption": interruption(),
    "node agent": agent(),
    "mark": marks(),
    "kubectl cordon": person(),
    "rebalancer/leave": leave(),
    "Cluster Autoscaler": autoscaler(),
    "another drain": drain("b"),
}


@pytest.fixture(scope="module")
def ground():
    with EmbeddedCluster(timings=Durations(start_up=0.01, node_start_up=0.01)) as cluster:
        cluster.add_node(NODE, "a")
        cluster.settle()
        with process(cluster, [built_in("cordon"), built_in("exclude")]) as here:
            yield Ground(cluster, here)


def played(ground: Ground, first: Actor, second: Actor) -> str:
    """Return whether the node is closed once both have come and the first has gone, and once both have; in words."""
    closed = []
    for act in (first.come, second.come, first.go, second.go):
        act(ground)
        closed.append(ground.closed)
    words = ["closed" if one else "open" for one in closed]
    return ", ".join(words[2:]) if any(closed) else "never"


def of_ours(ground: Ground) -> dict[str, object]:
    """Return what of ours is left on the node."""
    metadata, taints = ground.node["metadata"], ground.node["spec"].get("taints", ())
    names = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    names |= {one["key"]: one.get("value") for one in taints}
    return {
        key: value
        for key, value in names.items()
        if key.startswith("rebalancer/") or key == EXCLUDE
    }


def table() -> dict[tuple[str, str], str]:
    """Return (first, second) -> the cell of the page."""
    lines = re.findall(r"^\|(.+)\|$", PAGE.read_text(), re.MULTILINE)
    rows = [[cell.strip().strip("`") for cell in line.split("|")] for line in lines]
    start = next(number for number, row in enumerate(rows) if row[0] == "comes first")
    heads = rows[start][1:]
    return {
        (row[0], head): cell
        for row in rows[start + 2 : start + 2 + len(heads)]
        for head, cell in zip(heads, row[1:], strict=True)
        if row[0] != head
    }


@pytest.mark.parametrize("first", ACTORS)
def test_of_each_two_who_want_one_node_the_page_says_who_opens_it(ground, first):
    said, seen = table(), {}
    for second in ACTORS.keys() - {first}:
        seen[first, second] = played(ground, ACTORS[first], ACTORS[second])
        if seen[first, second] != "closed, closed":
            assert (second, of_ours(ground)) == (second, {})
        _clean(ground)
    assert seen == {pair: cell for pair, cell in said.items() if pair[0] == first}


def test_the_page_has_each_pair():
    assert table().keys() == {(one, other) for one in ACTORS for other in ACTORS if one != other}


def _clean(ground: Ground) -> None:
    left = dict.fromkeys(of_ours(ground))
    label = {EXCLUDE: None} if EXCLUDE in left else {}
    ground.change(
        NodeChange(
            unschedulable=False,
            taints=(),
            annotations={key: None for key in left if key != EXCLUDE},
            labels=label,
        )
    )
