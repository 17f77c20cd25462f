"""What records say is shown by conditions: which, whose, and for how long."""

from typing import Any

import msgspec
import pytest

from rebalancer.kube.client import connect
from rebalancer.kube.nodes import NodeChange, NodeView, change_node
from rebalancer.node_record.conditions import NodeConditions, conditions_due
from rebalancer.node_record.records import Order, ReplacePhase, Stage
from rebalancer.plan.machines import StepStatus
from rebalancer.signals.state import (
    STATE,
    PipelineState,
    RecordedInterruption,
    StepState,
    encode_state,
)
from rebalancer.snapshot.leaving import DRAIN
from rebalancer.testing.objects import EmbeddedCluster
from rebalancer.wire.marks import SCALE_IN, Phase, ScaleInRecord

UID, NOW = "uid-1", 1000.0
D, R, A, S = (
    "RebalancerDrain",
    "RebalancerReplacement",
    "RebalancerInterruption",
    "RebalancerScaleIn",
)
PLANNED, DRAINING, DRAINED, MAINTAINED = (
    "MaintenancePlanned",
    "DrainInProgress",
    "Drained",
    "MaintenanceInProgress",
)


def drain(uid=UID, by="a", **more):
    order = Order(by=by, why="disk", at="2026-01-01T00:00:00Z", uid=uid, cordoned=True, **more)
    return {DRAIN: msgspec.json.encode(order).decode()}


def stage(phase, uid=UID, **more):
    """A replacement at this phase, whose drain has emptied the node unless ``more`` says something else."""
    left = more or {"ended": True, "empty": True}
    return drain(uid, stage=Stage(phase, "a", 1.0, uid), **left)


def scale_in(phase, uid=UID, **more):
    return {SCALE_IN: ScaleInRecord(phase, "s", "t", "a", uid=uid, **more).value}


def spot(uid=UID, *, deadline: float | None = 1120.0, held=False, begun=900.0, ended=0.0, **steps):
    cause = RecordedInterruption("1", "spot", "queue", deadline, held=held)
    states = {name.replace("_", "-"): StepState(StepStatus(step)) for name, step in steps.items()}
    return {STATE: encode_state(PipelineState((cause,), begun, states, ended, uid))}


def node(*records, unschedulable=True):
    annotations = {key: value for record in records for key, value in record.items()}
    return NodeView("n", UID, "1", unschedulable, annotations, "", ())


DUE: list[tuple[str, list[dict[str, str]], dict[str, str]]] = [
    ("nothing of ours", [], {}),
    ("a drain", [drain()], {DRAINING: D}),
    ("a drain that gave up", [drain(ended=True)], {}),
    (
        "a drain that is over, and has left its label",
        [drain(ended=True, empty=True, excluded=True)],
        {DRAINED: D},
    ),
    (
        "a replacement's, too",
        [stage(ReplacePhase.EMPTYING, ended=True, empty=True, excluded=True)],
        {PLANNED: R, DRAINED: R},
    ),
    ("a drain of another Node of that name", [drain("uid-0")], {}),
    ("a replacement, not begun with", [drain(replaces=True)], {PLANNED: R}),
    ("one that stepped back", [stage(ReplacePhase.WAITING, replaces=True)], {PLANNED: R}),
    ("its turn has come", [stage(ReplacePhase.EMPTYING, replaces=True)], {PLANNED: R, DRAINING: R}),
    ("it is empty", [stage(ReplacePhase.EMPTYING)], {PLANNED: R, DRAINED: R}),
    ("it could not be emptied", [stage(ReplacePhase.EMPTYING, replaces=True, ended=True)], {}),
    ("its machine could not be removed", [stage(ReplacePhase.EMPTY)], {PLANNED: R, DRAINED: R}),
    ("its machine ends", [stage(ReplacePhase.REMOVING)], {MAINTAINED: R, DRAINED: R}),
    (
        "its machine ends, and the record stays",
        [stage(ReplacePhase.REMOVING, replaces=True)],
        {MAINTAINED: R, DRAINED: R},
    ),
    ("its machine has ended", [stage(ReplacePhase.DONE)], {MAINTAINED: R, DRAINED: R}),
    ("removed", [scale_in(Phase.LEAVING)], {PLANNED: S, DRAINING: S}),
    ("removed, waits empty", [scale_in(Phase.LEAVING, empty="t")], {PLANNED: S, DRAINED: S}),
    ("scale-in ends it", [scale_in(Phase.ENDING)], {MAINTAINED: S, DRAINED: S}),
    ("announced", [spot()], {PLANNED: A}),
    ("announced, and closed", [spot(cordon="done")], {PLANNED: A}),
    ("pods leave", [spot(cordon="done", leave="running")], {PLANNED: A, DRAINING: A}),
    ("they left", [spot(leave="done")], {PLANNED: A, DRAINED: A}),
    ("time was over", [spot(leave="timed-out")], {PLANNED: A, DRAINING: A}),
    (
        "what was left is deleted",
        [spot(leave="timed-out", escalate="running")],
        {PLANNED: A, DRAINING: A},
    ),
    ("it is", [spot(leave="timed-out", escalate="done")], {PLANNED: A, DRAINED: A}),
    ("all is done, before its time", [spot(leave="done", ended=950.0)], {PLANNED: A, DRAINED: A}),
    (
        "all is done, and it goes",
        [spot(leave="done", ended=950.0, deadline=990.0)],
        {MAINTAINED: A, DRAINED: A},
    ),
    (
        "it was held, and goes",
        [spot(leave="done", ended=950.0, deadline=None, held=True)],
        {MAINTAINED: A, DRAINED: A},
    ),
    ("nothing more is tried", [spot(leave="timed-out", ended=950.0)], {PLANNED: A}),
    ("withdrawn", [spot(ended=950.0)], {}),
    ("another machine's", [spot("uid-0")], {}),
    (
        "drained while it is announced: empty for the one, not for the other",
        [drain(), spot(leave="done")],
        {DRAINING: D, PLANNED: A},
    ),
    (
        "announced while it is removed",
        [scale_in(Phase.ENDING), spot(leave="running")],
        {PLANNED: A, DRAINING: A, MAINTAINED: S},
    ),
]


@pytest.mark.parametrize(("records", "due"), [row[1:] for row in DUE], ids=[row[0] for row in DUE])
def test_conditions_follow_from_records(records, due):
    assert {one.type: one.reason for one in conditions_due(node(*records), NOW)} == due


@pytest.mark.parametrize(("records", "due"), [row[1:] for row in DUE], ids=[row[0] for row in DUE])
def test_of_a_node_that_people_opened_only_what_was_announced_holds(records, due):
    there = conditions_due(node(*records, unschedulable=False), NOW)
    assert {one.reason for one in there} <= {A}
    assert {one.type for one in there} <= set(due) | {DRAINED}


class Scene:
    """A node of an embedded cluster, and one that writes its conditions."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster, self.time = cluster, NOW
        self.client = connect(kubeconfig=cluster.kubeconfig, environ={})
        self.warnings: list[str] = []
        self.conditions = NodeConditions(True, lambda: self.time, self.warnings.append)

    @property
    def uid(self) -> str:
        return str(self.cluster.get("Node", "n")["metadata"]["uid"])

    def write(self, annotations, *, unschedulable: bool | None = True) -> None:
        change = NodeChange(unschedulable=unschedulable, annotations=annotations)
        change_node(self.client, "n", lambda _: change)

    def show(self, **more: Any) -> None:
        self.conditions.show(self.client, "n", **more)

    def set_foreign(self, type_, reason, status="True") -> None:
        body = {"type": type_, "status": status, "reason": reason, "message": "theirs"}
        patch = msgspec.json.encode({"status": {"conditions": [body]}})
        kind = "application/strategic-merge-patch+json"
        assert self.client.patch("/api/v1/nodes/n/status", patch, content_type=kind).ok

    @property
    def every(self) -> dict[str, dict[str, Any]]:
        return {one["type"]: one for one in self.cluster.get("Node", "n")["status"]["conditions"]}

    @property
    def ours(self) -> dict[str, str]:
        return {
            type_: one["reason"]
            for type_, one in self.every.items()
            if str(one.get("reason")).startswith("Rebalancer")
        }


@pytest.fixture
def scene():
    with EmbeddedCluster() as cluster:
        cluster.add_node("n", "zone-a")
        cluster.settle()
        yield Scene(cluster)


def test_a_drain_begins_ends_and_the_node_is_opened(scene):
    others = {type_: one["status"] for type_, one in scene.every.items()}
    scene.write(drain(scene.uid))
    scene.show()
    assert scene.ours == {DRAINING: D}
    said = scene.every[DRAINING]
    assert said["message"] == "drained by a since 2026-01-01T00:00:00Z: disk"
    assert said["lastTransitionTime"] == said["lastHeartbeatTime"] == "1970-01-01T00:16:40Z"
    scene.show(emptied_by="a")
    assert scene.ours == {DRAINED: D}
    scene.write({DRAIN: None})
    scene.show()
    assert scene.ours == {DRAINED: D}, "it outlasts the record"
    scene.write({}, unschedulable=False)
    scene.show()
    assert scene.ours == {}
    assert {type_: one["status"] for type_, one in scene.every.items()} == others
    assert scene.warnings == []


def test_a_second_drain_overwrites_nothing_of_the_first(scene):
    scene.write(drain(scene.uid))
    scene.show()
    first = scene.every[DRAINING]
    scene.time += 60
    scene.write(drain(scene.uid, by="b"))
    scene.show()
    scene.show(emptied_by="a")
    assert scene.every[DRAINING] == first
    scene.show(emptied_by="b")
    assert scene.ours == {DRAINED: D}


def test_a_drain_that_gave_up_after_another_had_emptied_the_node_says_nothing_any_more(scene):
    scene.write(drain(scene.uid))
    scene.show(emptied_by="a")
    scene.write(drain(scene.uid, by="b"))
    scene.show()
    assert scene.ours == {DRAINING: D}
    scene.write(drain(scene.uid, by="b", ended=True))
    scene.show()
    assert scene.ours == {}


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_what_somebody_else_says_stays(scene, status):
    scene.set_foreign(DRAINING, "KubectlDrainStarted", status)
    scene.set_foreign(MAINTAINED, "", status)
    theirs = scene.every
    scene.show()
    assert scene.warnings == []
    scene.write(stage(ReplacePhase.REMOVING, scene.uid))
    scene.show()
    scene.show()
    assert scene.ours == {DRAINED: R}
    assert len(scene.warnings) == 1, scene.warnings
    assert f"{MAINTAINED} ({status}, no reason) is somebody else's" in scene.warnings[0]
    scene.write({DRAIN: None}, unschedulable=False)
    scene.show()
    assert scene.every == theirs


def test_it_is_confirmed_now_and_then_and_repaired_when_somebody_takes_it_away(scene):
    scene.write(drain(scene.uid))
    scene.show()
    scene.time += 300
    scene.show()
    said = scene.every[DRAINING]
    assert said["lastTransitionTime"] == "1970-01-01T00:16:40Z"
    assert said["lastHeartbeatTime"] == "1970-01-01T00:21:40Z"
    assert said["reason"] == D
    scene.set_foreign(DRAINING, D, "False")
    scene.show()
    assert scene.every[DRAINING]["status"] == "True"


def test_another_cause_goes_on_where_the_first_ends(scene):
    scene.write({**drain(scene.uid), **scale_in(Phase.LEAVING, scene.uid)})
    scene.show()
    assert scene.ours == {DRAINING: D, PLANNED: S}
    scene.time += 60
    scene.write({DRAIN: None})
    scene.show()
    assert scene.ours == {DRAINING: S, PLANNED: S}
    assert scene.every[DRAINING]["lastTransitionTime"] == "1970-01-01T00:16:40Z"


def test_it_does_nothing_unless_asked(scene):
    scene.conditions.on = False
    scene.write(drain(scene.uid))
    scene.show()
    assert scene.ours == {}


def test_a_node_that_is_gone_is_no_trouble(scene):
    scene.conditions.show(scene.client, "nobody")
    assert scene.warnings == []
