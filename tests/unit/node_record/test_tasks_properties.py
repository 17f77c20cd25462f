"""Whoever comes and goes, in whatever order: a node is open at the end unless people have closed it."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.machines.capacity.writing import change_state
from rebalancer.machines.drain.cordon import cordon, enter, give_back, give_up, let_go
from rebalancer.node_record import protocol
from rebalancer.node_record.protocol import EXCLUDE
from rebalancer.node_record.records import DRAINS, SCALE_INS, Order, ReplacePhase, Stage
from rebalancer.wire.marks import Phase, ScaleInRecord

UID, NAME = "5f0c", "pool-3"


class Desk:
    """A node in memory, and whether it is people who have closed it."""

    def __init__(self) -> None:
        self.node = NodeView(NAME, UID, "1", False, {}, "", ())
        self.by_people = False

    def write(self, change: NodeChange) -> None:
        node = self.node
        annotations: dict[str, str | None] = {**node.annotations, **change.annotations}
        labels: dict[str, str | None] = {**node.labels, **change.labels}
        closed = change.unschedulable
        self.node = replace(
            node,
            unschedulable=node.unschedulable if closed is None else closed,
            annotations={key: text for key, text in annotations.items() if text is not None},
            labels={key: text for key, text in labels.items() if text is not None},
            taints=node.taints if change.taints is None else change.taints,
        )

    @property
    def is_ours(self) -> bool:
        """Whether a record says that the cordon is its own."""
        order, scaled = DRAINS.read(self.node), SCALE_INS.read(self.node)
        return bool((order and order.cordoned) or (scaled and scaled.cordoned))

    # -- those who come and go ---------------------------------------------------------------------

    def people_close(self) -> None:
        # Of a cordon on a node that is closed nothing is seen, nor whether one of ours was taken away and set again.
        self.by_people = self.by_people or not (self.node.unschedulable or self.is_ours)
        self.write(NodeChange(unschedulable=True))

    def people_open(self) -> None:
        self.by_people = False
        self.write(NodeChange(unschedulable=False))

    def drain(self, by: str, *, excludes: bool = True) -> None:
        cordon(self.client, NAME, Order(by, "disk", "t", UID, excludes=excludes))

    def stage(self, phase: ReplacePhase) -> None:
        stage, order = Stage(phase, "r", 5.0, UID), Order("r", "old", "t", UID)
        closes = order if phase is ReplacePhase.EMPTYING else None
        enter(self.client, NAME, stage, may=lambda *_: True, order=closes)

    def give_back(self) -> None:
        give_back(self.client, NAME, UID)

    def go(self, by: str) -> None:
        let_go(self.client, NAME, by)

    def give_up(self, by: str) -> None:
        give_up(self.client, NAME, by)

    def scale_in(self, phase: Phase | None) -> None:
        before = SCALE_INS.standing(self.node)
        coming = None if phase is None else ScaleInRecord(phase, "t", "t", "s")
        if coming is not None and before is not None:
            coming = msgspec.structs.replace(before, phase=coming.phase)
        change_state(self.client, NAME, coming, None if before is None else before.phase)

    @property
    def client(self) -> Any:
        return self


def change_in_memory(client: Any, _name: str, change: Any) -> NodeView:
    desk: Desk = client
    made = change(desk.node)
    if made is not None:
        desk.write(made)
    return desk.node


ACTS = {
    "people close": Desk.people_close,
    "people open": Desk.people_open,
    "a drains": lambda desk: desk.drain("a"),
    "b drains": lambda desk: desk.drain("b", excludes=False),
    "a goes": lambda desk: desk.go("a"),
    "b goes": lambda desk: desk.go("b"),
    "a gives up": lambda desk: desk.give_up("a"),
    "r empties": lambda desk: desk.stage(ReplacePhase.EMPTYING),
    "r removes": lambda desk: desk.stage(ReplacePhase.REMOVING),
    "r fails": lambda desk: desk.stage(ReplacePhase.EMPTY),
    "r gives back": Desk.give_back,
    "scale-in begins": lambda desk: desk.scale_in(Phase.LEAVING),
    "scale-in ends": lambda desk: desk.scale_in(Phase.ENDING),
    "scale-in cancels": lambda desk: desk.scale_in(None),
}


def settle(desk: Desk) -> None:
    """Let all go that are still there."""
    desk.scale_in(None)
    if (order := DRAINS.read(desk.node)) is not None:
        if order.stage is not None and order.stage.phase is ReplacePhase.REMOVING:
            desk.stage(ReplacePhase.EMPTY)
        desk.give_back()
    if (order := DRAINS.read(desk.node)) is not None:
        desk.go(order.by)


@settings(max_examples=400, deadline=None)
@given(acts=st.lists(st.sampled_from(sorted(ACTS)), max_size=14))
def test_the_last_who_goes_opens_what_one_of_ours_has_closed(acts):
    desk = Desk()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "change_node", change_in_memory)
        for act in acts:
            ACTS[act](desk)
        settle(desk)
    assert desk.node.unschedulable is desk.by_people
    assert (EXCLUDE in desk.node.labels, desk.node.taints) == (False, ())
    assert not {DRAINS.key, SCALE_INS.key} & desk.node.annotations.keys()
