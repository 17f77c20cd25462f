"""Events about machines: what was done, and what has changed since an earlier run."""

from dataclasses import replace

import pytest

from rebalancer.kube.events import Subject
from rebalancer.machines.capacity.announcements import MAX_EVENTS, Announced, announcements
from rebalancer.machines.capacity.state import (
    REFUSED,
    TIMEOUT,
    GroupState,
    note_failure,
)
from rebalancer.machines.reasons import ScaleInCode, ScaleOutCode
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.snapshot.autoscalers import Autoscaler
from rebalancer.testing.snapshots import node, workload
from tests.unit.machines.capacity.conftest import group

_NOW = 1_800_000_000.0
_MAP = Subject("ConfigMap", "default", "machines", "uid-of-map")


def _act(code, status=ActStatus.DONE, *, of="pool", on=""):
    return MachineAct(strategy="scale", code=code, status=status, group=of, message="why", node=on)


def _announced(report, acts=(), earlier=None, groups=None):
    state = Announced.of(report, groups or {})
    made = announcements(earlier or Announced(), state, report, acts, _MAP)
    return [(one.about.kind, one.about.name, one.reason, one.warning) for one in made], state


@pytest.fixture
def pending(machines):
    """A full node of a group that may grow, a pod that would let it, and one that nothing helps."""
    objects = [
        node("a"),
        *workload("on-a", ["a"], cpu="4", memory="1Gi"),
        *workload("fits", [""], cpu="1"),
        *workload("huge", [""], cpu="9"),
    ]
    return machines.report(objects, [group("pool", "a")])


def test_a_group_that_grew_and_the_pod_for_which_it_did(pending):
    said, _ = _announced(pending, [_act(ScaleOutCode.SCALED_OUT)])
    assert said == [
        ("ConfigMap", "machines", "ScaledUpGroup", False),
        ("Pod", "fits-0", "TriggeredScaleUp", False),
        ("Pod", "huge-0", "NotTriggerScaleUp", False),
    ]


@pytest.mark.parametrize("status", [ActStatus.PLANNED, ActStatus.WAITS])
def test_what_was_not_done_triggers_nothing(pending, status):
    said, _ = _announced(pending, [_act(ScaleOutCode.SCALED_OUT, status)])
    assert [reason for _, _, reason, _ in said] == ["NotTriggerScaleUp"]


def test_what_was_said_before_is_not_said_again(pending):
    _, state = _announced(pending)
    assert _announced(pending, earlier=state)[0] == []


def test_a_group_that_failed_is_named_once(pending):
    memory = {"pool": note_failure(GroupState(), TIMEOUT, "did not come", _NOW)}
    _, before = _announced(pending)
    said, state = _announced(pending, earlier=before, groups=memory)
    assert said == [("ConfigMap", "machines", "ScaleUpTimedOut", True)]
    assert _announced(pending, earlier=state, groups=memory)[0] == []
    refused = {"pool": note_failure(GroupState(), REFUSED, "no", _NOW)}
    act = _act(ScaleOutCode.FAILED, ActStatus.FAILED)
    assert _announced(pending, [act], before, refused)[0] == [
        ("ConfigMap", "machines", "FailedToScaleUpGroup", True)
    ]


def test_a_node_of_which_something_else_is_said_now(machines):
    _, before = _announced(machines.report([node("a"), node("b")], [group("pool", "a", "b")]))
    full = [node("a"), node("b"), *workload("w", ["a", "b"], cpu="3", memory="1Gi")]
    said, state = _announced(machines.report(full, [group("pool", "a", "b")]), earlier=before)
    assert said == [("Node", "a", "NoScaleDown", False), ("Node", "b", "NoScaleDown", False)]
    back, _ = _announced(
        machines.report([node("a"), node("b")], [group("pool", "a", "b")]), earlier=state
    )
    assert ("Node", "a", "ScaleDownCandidate", False) in back


def test_a_node_that_is_new_is_no_change(machines):
    assert _announced(machines.report([node("a")], [group("pool", "a")]))[0] == []


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        (ScaleInCode.DRAIN_STARTED, ActStatus.DONE, "ScaleDownEmpty"),
        (ScaleInCode.TERMINATED, ActStatus.DONE, "ScaleDown"),
        (ScaleInCode.TERMINATED, ActStatus.FAILED, "ScaleDownFailed"),
        (ScaleInCode.FAILED, ActStatus.FAILED, "ScaleDownFailed"),
        (ScaleInCode.CANCELLED, ActStatus.DONE, "NoScaleDown"),
        (ScaleInCode.DRAIN_STARTED, ActStatus.PLANNED, None),
        (ScaleInCode.DRAINING, ActStatus.WAITS, None),
        (ScaleInCode.UNNEEDED, ActStatus.DONE, None),
    ],
)
def test_what_scale_in_does_to_a_node(machines, code, status, reason):
    report = machines.report([node("a"), node("b")], [group("pool", "a", "b")])
    empty = next(one for one in report.nodes if one.code == "Empty")
    name = report.snapshot.nodes.names[empty.node]
    said, _ = _announced(report, [_act(code, status, on=name)])
    note_failure = reason == "ScaleDownFailed"
    assert said == ([] if reason is None else [("Node", name, reason, note_failure)])


def test_a_node_with_pods_that_is_taken_out(machines):
    objects = [node("a"), node("b"), *workload("w", ["a", "b"], cpu="1")]
    report = machines.report(objects, [group("pool", "a", "b")])
    said, _ = _announced(report, [_act(ScaleInCode.DRAIN_STARTED, on="a")])
    assert said == [("Node", "a", "ScaleDown", False)]


def test_beside_another_autoscaler_only_what_was_done(pending):
    report = replace(pending, autoscalers=(Autoscaler("Karpenter", "a label"),))
    assert _announced(report)[0] == []
    assert len(_announced(report, [_act(ScaleOutCode.FAILED, ActStatus.FAILED)])[0]) == 1


def test_one_run_writes_so_many_and_no_more(machines):
    objects = [node("a"), *workload("huge", [""] * (MAX_EVENTS + 50), cpu="9")]
    said, state = _announced(machines.report(objects, [group("pool", "a")]))
    assert len(said) == MAX_EVENTS
    assert len(state.pods) == MAX_EVENTS + 50
