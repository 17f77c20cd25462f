"""Two who want one node closed: whoever lets go first hands the cordon over, and the last one opens the node."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import msgspec
import pytest

from rebalancer.kube.nodes import NodeView
from rebalancer.node_record.protocol import Claims
from rebalancer.node_record.records import DRAINS, Order, is_handed_over
from rebalancer.node_record.records import let_go as let_go_of
from rebalancer.plan.machines import StepStatus
from rebalancer.signals.notice import NOTICE
from rebalancer.signals.state import STATE, PipelineState, StepState, encode_state, state_in
from rebalancer.snapshot.leaving import DRAIN, LEAVE
from rebalancer.wire.marks import SCALE_IN, Phase, ScaleInRecord, scale_in_of

UID = "uid-1"


def open_or_hand_over(there, holder):
    return let_go_of(there, holder, Claims(cordon=True))


def drain(uid=UID, *, cordoned=False, ended=False):
    order = Order(by="a", why="w", at="", uid=uid, cordoned=cordoned, ended=ended)
    return {DRAIN: msgspec.json.encode(order).decode()}


def interruption(uid=UID, *, cordoned=False, step="cordon"):
    left = "ours" if cordoned else ""
    return {
        STATE: encode_state(
            PipelineState((), 1.0, {step: StepState(StepStatus.DONE, left=left)}, uid=uid)
        )
    }


def scale_in(uid=UID, *, cordoned=False, phase=Phase.LEAVING):
    return {SCALE_IN: ScaleInRecord(phase, "", "", uid=uid, cordoned=cordoned).value}


OURS: dict[str, Any] = {DRAIN: drain, STATE: interruption, SCALE_IN: scale_in}
"""Annotation -> what one of ours writes there."""
PAIRS = [*permutations(OURS, 2)]
LEAVES = "ToBeDeletedByClusterAutoscaler"


def node(*records, taints=(), unschedulable=True):
    annotations = {key: value for record in records for key, value in record.items()}
    return NodeView(
        "n", UID, "1", unschedulable, annotations, "", tuple({"key": key} for key in taints)
    )


def owner_of(there):
    """Return the annotations of those that say that the cordon is theirs."""
    scaled = scale_in_of(there.annotations)
    order = DRAINS.read(there)
    state = state_in(there.annotations, UID)
    kept = {} if state is None else state.steps
    owns = {
        DRAIN: order is not None and order.cordoned,
        STATE: "cordon" in kept and kept["cordon"].left == "ours",
        SCALE_IN: scaled is not None and scaled.cordoned,
    }
    return {key for key, true in owns.items() if true}


def let_go(there, holder):
    """Return the node once ``holder`` has let go, and its annotation is gone."""
    owned = holder in owner_of(there)
    change = open_or_hand_over(there, holder) if owned else None
    annotations = {**there.annotations, **(change.annotations if change else {})}
    del annotations[holder]
    opened = change is not None and change.unschedulable is False
    return replace(there, annotations=annotations, unschedulable=not opened)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_each_two_of_ours_the_last_one_opens_what_one_of_them_has_cordoned(first, second):
    for owner in (first, second):
        both = node(OURS[first](cordoned=owner == first), OURS[second](cordoned=owner == second))
        one_left = let_go(both, first)
        assert one_left.unschedulable
        assert owner_of(one_left) == {second}
        assert not let_go(one_left, second).unschedulable


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_what_people_have_cordoned_before_stays_closed(first, second):
    both = node(OURS[first](), OURS[second]())
    left = let_go(let_go(both, first), second)
    assert left.unschedulable
    assert not owner_of(left)


@pytest.mark.parametrize("order", [*permutations(OURS)])
def test_of_all_three_the_last_one_opens_it(order):
    there = node(*(OURS[key](cordoned=key == SCALE_IN) for key in order))
    for number, key in enumerate(order):
        assert there.unschedulable
        assert len(owner_of(there)) == 1, number
        there = let_go(there, key)
    assert not there.unschedulable


@pytest.mark.parametrize("key", [*OURS])
def test_a_node_that_people_have_uncordoned_is_not_touched(key):
    there = node(OURS[key](cordoned=True), unschedulable=False)
    assert open_or_hand_over(there, key) == replace(open_or_hand_over(there, key), annotations={})


@pytest.mark.parametrize("key", [*OURS])
@pytest.mark.parametrize("people", [{LEAVE: "now"}, {LEAVE: "2030-01-01T00:00:00Z"}])
def test_a_node_that_people_want_empty_stays_closed(key, people):
    change = open_or_hand_over(node(OURS[key](cordoned=True), people), key)
    assert (change.unschedulable, change.annotations) == (None, {})


@pytest.mark.parametrize("key", [*OURS])
def test_a_node_that_an_autoscaler_removes_stays_closed(key):
    there = node(OURS[key](cordoned=True), taints=[LEAVES])
    assert open_or_hand_over(there, key).unschedulable is None


def test_a_notice_keeps_it_closed_but_not_for_the_interruption_that_it_was():
    notice = {NOTICE: "{}"}
    assert open_or_hand_over(node(scale_in(cordoned=True), notice), SCALE_IN).unschedulable is None
    assert (
        open_or_hand_over(node(interruption(cordoned=True), notice), STATE).unschedulable is False
    )


@pytest.mark.parametrize("other", [scale_in("another"), {SCALE_IN: "{"}])
def test_what_does_not_want_it_closed_is_no_heir(other):
    change = open_or_hand_over(node(drain(cordoned=True), other), DRAIN)
    assert (change.unschedulable, change.annotations) == (False, {})


def test_an_interruption_that_has_not_cordoned_yet_keeps_it_closed_and_is_no_heir():
    change = open_or_hand_over(node(drain(cordoned=True), interruption(step="leave")), DRAIN)
    assert (change.unschedulable, change.annotations) == (None, {})


def test_an_interruption_undoes_the_cordon_that_was_handed_over_to_it():
    both = node(scale_in(cordoned=True), interruption())
    assert not is_handed_over(both, Claims(cordon=True))
    there = let_go(both, SCALE_IN)
    assert is_handed_over(there, Claims(cordon=True))
    assert open_or_hand_over(there, STATE).unschedulable is False
