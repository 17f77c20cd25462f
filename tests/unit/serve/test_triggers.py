"""When a process that serves runs next, and why: by the schedule, for changes, for pods that must leave."""

import math
from typing import Any

import msgspec
import pytest

from rebalancer.base.stop import Stop
from rebalancer.serve.triggers import GAP, GAP_AFTER_NOTICE, QUIET, SOON, ClusterTriggers, Triggers
from rebalancer.wire.lists import item_decoder
from rebalancer.wire.pods import Pod
from tests.support.clocks import HandClock

LONG_AGO = -1e6


class Waits:
    """Notes for how long it is waited, and does not wait."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def set(self) -> None:
        """Nothing waits."""

    def clear(self) -> None:
        """Nothing waits."""

    def wait(self, seconds: float) -> None:
        self.seconds.append(seconds)


class Scene:
    """The triggers of a process, and the changes that a follower reports."""

    def __init__(self, schedule=lambda _: math.inf) -> None:
        self.clock = HandClock()
        self.clock.seconds = 100.0
        self.triggers = Triggers(self.clock, schedule)
        self.cluster = ClusterTriggers(self.triggers)
        waits: Any = Waits()
        self.triggers._changed, self.waits = waits, waits

    def await_next(self, *, pods_must_leave=False):
        """Return why a run is due now; nothing waits."""
        stop: Any = Stop(self.clock)
        stop.wait = self.waits.wait
        return self.triggers.await_next(stop, pods_must_leave=pods_must_leave)

    def due(self, ended: float = LONG_AGO) -> float:
        """Return when changes trigger a run. ``ended``: when the last one had."""
        changes = self.triggers._changes
        return math.inf if changes is None else changes.due(ended)


def node(**change):
    """A Ready node, as a server sends it; the keys of ``change`` replace fields of metadata, spec or status."""
    whole = {
        "metadata": {"name": "n", "labels": {"zone": "a"}, **change.get("metadata", {})},
        "spec": change.get("spec", {}),
        "status": {
            "allocatable": {"cpu": "4"},
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "lastHeartbeatTime": "2026-11-20T10:00:00Z",
                    **change.get("ready", {}),
                }
            ],
            **change.get("status", {}),
        },
    }
    return item_decoder("Node").decode(msgspec.json.encode(whole))


def tainted(key, effect="NoSchedule"):
    return node(spec={"taints": [{"key": key, "value": "1", "effect": effect}]})


PLAIN = node()
CHANGES = {
    "added": (None, PLAIN, GAP),
    "removed": (PLAIN, None, GAP),
    "listed again": (None, None, GAP),
    "larger": (PLAIN, node(status={"allocatable": {"cpu": "8"}}), GAP),
    "an autoscaler's taint": (PLAIN, tainted("ToBeDeletedByClusterAutoscaler"), GAP_AFTER_NOTICE),
    "a taint that goes": (tainted("spot"), PLAIN, GAP_AFTER_NOTICE),
    "our announcement": (PLAIN, node(metadata={"annotations": {"rebalancer/leave": "now"}}), 0.0),
    "cordoned": (PLAIN, node(spec={"unschedulable": True}), GAP_AFTER_NOTICE),
    "not Ready": (PLAIN, node(ready={"status": "Unknown"}), GAP_AFTER_NOTICE),
    "announced by a signal, whose steps call for a plan": (
        PLAIN,
        node(metadata={"annotations": {"rebalancer/notice": "{}"}}),
        None,
    ),
    "to stay": (
        PLAIN,
        node(metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}}),
        GAP_AFTER_NOTICE,
    ),
    "in maintenance": (
        PLAIN,
        node(status={"conditions": [{"type": "MaintenancePlanned", "status": "True"}]}),
        GAP_AFTER_NOTICE,
    ),
    "another zone": (PLAIN, node(metadata={"labels": {"zone": "b"}}), GAP),
    "an annotation of others": (
        node(metadata={"annotations": {"example.com/seen": "10:00:00"}}),
        node(metadata={"annotations": {"example.com/seen": "10:00:05"}}),
        None,
    ),
    "our state": (PLAIN, node(metadata={"annotations": {"rebalancer/interruption": "{}"}}), None),
    "deleted": (
        PLAIN,
        node(metadata={"deletionTimestamp": "2026-11-20T10:00:00Z"}),
        GAP_AFTER_NOTICE,
    ),
    "a heartbeat": (PLAIN, node(ready={"lastHeartbeatTime": "2026-11-20T10:05:00Z"}), None),
    "images": (PLAIN, node(status={"images": [{"names": ["x"], "sizeBytes": 1}]}), None),
    "our mark": (PLAIN, tainted("rebalancer/mark", "PreferNoSchedule"), None),
    "our mark on an emptied node": (PLAIN, tainted("rebalancer/empty", "PreferNoSchedule"), None),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changes_of_nodes(what):
    before, after, gap = CHANGES[what]
    scene = Scene()
    clock = scene.clock
    scene.cluster.object_changed("Node", before, after)
    quiet = QUIET if gap else SOON
    assert scene.due() == (math.inf if gap is None else clock.seconds + quiet)
    assert scene.due(clock.seconds) == (
        math.inf if gap is None else clock.seconds + max(gap, quiet)
    )


@pytest.mark.parametrize("kind", ["Deployment", "PodDisruptionBudget", "Namespace"])
def test_other_objects_wait_for_the_next_plan(kind):
    scene = Scene()
    scene.cluster.object_changed(kind, None, object())
    assert scene.due() == math.inf


def pod(node_name="", since="2026-11-20T10:00:00Z", reason="Unschedulable", uid="u"):
    scheduled = {"type": "PodScheduled", "status": "False", "reason": reason}
    whole = {
        "metadata": {"name": "p", "uid": uid},
        "spec": {"nodeName": node_name},
        "status": {
            "phase": "Pending",
            "conditions": [] if node_name else [{**scheduled, "lastTransitionTime": since}],
        },
    }
    return msgspec.json.decode(msgspec.json.encode(whole), type=Pod).record()


def test_a_pod_that_no_node_takes_counts_once():
    scene = Scene()
    scene.cluster.pod_changed(pod())
    assert scene.due() < math.inf
    scene.triggers.take()
    # The scheduler tries again and says so; its condition is the same.
    scene.cluster.pod_changed(pod())
    assert scene.due() == math.inf
    scene.cluster.pod_changed(pod(since="2026-11-20T10:00:01Z"))
    assert scene.due() < math.inf


def test_another_pod_that_waits_since_the_same_second_counts_too():
    """Conditions have times in whole seconds, and a run may begin within one."""
    scene = Scene()
    scene.cluster.pod_changed(pod(uid="a"))
    scene.triggers.take()
    scene.cluster.pod_changed(pod(uid="b"))
    assert scene.due() < math.inf
    scene.triggers.take()
    scene.cluster.pod_changed(pod(uid="a"))
    assert scene.due() == math.inf


@pytest.mark.parametrize("of", [pod("n"), pod(reason="SchedulingGated")])
def test_other_pods_do_not_count(of):
    scene = Scene()
    scene.cluster.pod_changed(of)
    assert scene.due() == math.inf


def test_a_burst_is_awaited_but_not_for_ever():
    scene = Scene()
    clock = scene.clock
    for _ in range(20):
        scene.cluster.object_changed("Node", None, PLAIN)
        clock.seconds += 0.1
    assert scene.due() == 101.0


def test_a_notice_among_other_changes_shortens_the_gap():
    scene = Scene()
    clock = scene.clock
    scene.cluster.object_changed("Node", None, PLAIN)
    scene.cluster.object_changed("Node", PLAIN, tainted("spot"))
    scene.cluster.object_changed("Node", None, PLAIN)
    assert scene.due(clock.seconds) == clock.seconds + GAP_AFTER_NOTICE
    scene.triggers.take()
    assert scene.due(clock.seconds) == math.inf


def test_a_node_that_is_to_be_left_is_planned_for_at_once_though_others_change():
    scene = Scene()
    clock = scene.clock
    scene.cluster.object_changed("Node", None, PLAIN)
    scene.cluster.object_changed("Node", PLAIN, CHANGES["our announcement"][1])
    scene.cluster.object_changed("Node", PLAIN, tainted("spot"))
    assert scene.due(clock.seconds) == clock.seconds + SOON
    scene.triggers.take()
    scene.cluster.object_changed("Node", PLAIN, tainted("spot"))
    assert scene.due() == clock.seconds + QUIET


def test_what_a_run_sees_is_the_first_change_and_is_said_once():
    scene = Scene()
    assert scene.triggers.take() == ""
    scene.cluster.object_changed("Node", PLAIN, tainted("spot"))
    scene.cluster.object_changed("Node", None, PLAIN)
    assert scene.triggers.take() == "node n has a new taint spot:NoSchedule"
    assert scene.triggers.take() == ""


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("cordoned", "node n was cordoned"),
        ("not Ready", "node n is not Ready"),
        ("deleted", "node n is being deleted"),
        ("to stay", "node n was announced to go or to stay"),
    ],
)
def test_a_notice_is_said_by_what_it_is(what, says):
    scene = Scene()
    scene.cluster.object_changed("Node", *CHANGES[what][:2])
    assert scene.triggers.take() == says


def test_a_list_that_is_not_followed_triggers_a_run_that_says_so():
    scene = Scene()
    scene.cluster.watch_failed("nodes", "unauthorized")
    assert scene.due(scene.clock.seconds) == scene.clock.seconds + GAP
    assert scene.triggers.take() == "changes of nodes are not received (unauthorized)"


def test_a_run_ends_early_only_by_a_call_that_came_after_its_beginning():
    triggers = Scene().triggers
    triggers.end_run_early()
    called = triggers.begin_run()
    assert called() is None
    triggers.end_run_early()
    assert called() == "pods have to leave a machine that goes"
    assert triggers.begin_run()() is None


EVERY = 120.0
STEP = 1 / 16
BEGAN, ENDED = 1000.0, 1030.0


def after_a_run(*, changed_at=None, lasted=ENDED - BEGAN):
    """A scene after a run that began at BEGAN; ``changed_at``: when a node was added, of which the run knew nothing."""
    scene = Scene(lambda _: EVERY)
    scene.clock.seconds = BEGAN
    scene.triggers.begin_run()
    scene.triggers.take()
    if changed_at is not None:
        scene.clock.seconds = changed_at
        scene.cluster.object_changed("Node", None, PLAIN)
    scene.clock.seconds = BEGAN + lasted
    scene.triggers.end_run()
    return scene


def first_due(scene, *, leave_until=-math.inf):
    """When it says for the first time that a run is due, and why; it is asked every STEP seconds."""
    clock = scene.clock
    while clock.seconds <= BEGAN + 2 * EVERY:
        why = scene.await_next(pods_must_leave=clock.seconds <= leave_until)
        if why is not None:
            return clock.seconds, why
        clock.seconds += STEP
    raise AssertionError("it is never due")


@pytest.mark.parametrize(
    ("given", "leave_until", "at", "why"),
    [
        ({}, -math.inf, BEGAN + EVERY, ""),
        ({"changed_at": BEGAN + 5}, -math.inf, ENDED + GAP, "node n was added"),
        ({}, math.inf, ENDED + GAP, ""),
        # Pods that had left by then were a reason to run all the same.
        ({}, ENDED + 1, ENDED + GAP, ""),
        ({"changed_at": BEGAN + 5}, math.inf, ENDED + GAP, ""),
        # A run that lasts longer than its interval is followed by the next one at once.
        ({"lasted": EVERY + 1}, -math.inf, BEGAN + EVERY + 1, ""),
        ({"lasted": EVERY + 1, "changed_at": BEGAN + 5}, -math.inf, BEGAN + EVERY + 1, ""),
    ],
)
def test_the_next_run_is_due_by_what_comes_first(given, leave_until, at, why):
    assert first_due(after_a_run(**given), leave_until=leave_until) == (at, why)


def test_the_first_run_is_due_at_once_and_that_of_each_term():
    scene = Scene(lambda _: EVERY)
    assert scene.await_next() == ""
    scene.triggers.begin_run()
    scene.triggers.end_run()
    assert scene.await_next() is None
    scene.triggers.begin_term()
    assert scene.await_next() == ""


def test_what_changes_between_two_runs_is_awaited_for_a_moment():
    scene = after_a_run()
    scene.clock.seconds = at = ENDED + 50
    scene.cluster.object_changed("Node", None, PLAIN)
    due, why = first_due(scene)
    assert 0 <= due - (at + QUIET) < STEP
    assert why == "node n was added"


@pytest.mark.parametrize(
    ("given", "now", "longest"),
    [
        ({}, ENDED, 0.25),
        ({}, BEGAN + EVERY - 0.1, 0.1),
        ({"changed_at": BEGAN + 5}, ENDED, 0.05),
        ({"changed_at": BEGAN + 5}, ENDED + GAP - 0.02, 0.02),
    ],
)
def test_no_wait_is_longer_than_until_something_may_be_due(given, now, longest):
    scene = after_a_run(**given)
    scene.clock.seconds = now
    assert scene.await_next() is None
    assert scene.waits.seconds == [pytest.approx(longest)]


def test_a_pod_for_which_room_is_made_triggers_a_run_when_it_has_waited():
    scene = after_a_run()
    scene.triggers.room_after = 60.0
    scene.cluster.pod_changed(pod())
    scene.triggers.take()  # a run that does not see it wait for so long
    assert first_due(scene) == (ENDED + 60.0, "a pod has waited for room")
    scene.triggers.take()
    assert first_due(scene) == (BEGAN + EVERY, "")


def test_a_pod_that_got_a_node_waits_for_no_room():
    scene = after_a_run()
    scene.triggers.room_after = 60.0
    scene.cluster.pod_changed(pod())
    scene.triggers.take()
    scene.cluster.pod_changed(pod("n1"))
    assert first_due(scene) == (BEGAN + EVERY, "")
