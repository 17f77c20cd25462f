"""What calls for a plan before the next one is due, and when."""

import math

import msgspec
import pytest

from rebalancer.serve.early import GAP, GAP_AFTER_NOTICE, QUIET, SOON, Early
from rebalancer.wire.lists import item_decoder
from rebalancer.wire.pods import Pod

LONG_AGO = -1e6


class HandClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


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
    "our announcement": (
        PLAIN,
        node(metadata={"annotations": {"rebalancer/leave": "now"}}),
        0.0,
    ),
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
    clock = HandClock()
    early = Early(clock)
    early.object_changed("Node", before, after)
    assert early.news.is_set() is (gap is not None)
    quiet = QUIET if gap else SOON
    assert early.due(LONG_AGO) == (math.inf if gap is None else clock.time + quiet)
    assert early.due(clock.time) == (math.inf if gap is None else clock.time + max(gap, quiet))


@pytest.mark.parametrize("kind", ["Deployment", "PodDisruptionBudget", "Namespace"])
def test_other_objects_wait_for_the_next_plan(kind):
    early = Early(HandClock())
    early.object_changed(kind, None, object())
    assert early.due(LONG_AGO) == math.inf


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
    early = Early(HandClock())
    early.pod_changed(pod())
    assert early.due(LONG_AGO) < math.inf
    early.begin()
    # The scheduler tries again and says so; its condition is the same.
    early.pod_changed(pod())
    assert early.due(LONG_AGO) == math.inf
    early.pod_changed(pod(since="2026-11-20T10:00:01Z"))
    assert early.due(LONG_AGO) < math.inf


def test_another_pod_that_waits_since_the_same_second_counts_too():
    """Conditions have times in whole seconds, and a run may begin within one."""
    early = Early(HandClock())
    early.pod_changed(pod(uid="a"))
    early.begin()
    early.pod_changed(pod(uid="b"))
    assert early.due(LONG_AGO) < math.inf
    early.begin()
    early.pod_changed(pod(uid="a"))
    assert early.due(LONG_AGO) == math.inf


@pytest.mark.parametrize("of", [pod("n"), pod(reason="SchedulingGated")])
def test_other_pods_do_not_count(of):
    early = Early(HandClock())
    early.pod_changed(of)
    assert early.due(LONG_AGO) == math.inf


def test_a_burst_is_awaited_but_not_for_ever():
    clock = HandClock()
    early = Early(clock)
    for _ in range(20):
        early.object_changed("Node", None, PLAIN)
        clock.time += 0.1
    assert early.due(LONG_AGO) == 101.0


def test_a_notice_among_other_changes_shortens_the_gap():
    clock = HandClock()
    early = Early(clock)
    early.object_changed("Node", None, PLAIN)
    early.object_changed("Node", PLAIN, tainted("spot"))
    early.object_changed("Node", None, PLAIN)
    assert early.due(clock.time) == clock.time + GAP_AFTER_NOTICE
    early.begin()
    assert early.due(clock.time) == math.inf


def test_a_node_that_is_to_be_left_is_planned_for_at_once_though_others_change():
    clock = HandClock()
    early = Early(clock)
    early.object_changed("Node", None, PLAIN)
    early.object_changed("Node", PLAIN, CHANGES["our announcement"][1])
    early.object_changed("Node", PLAIN, tainted("spot"))
    assert early.due(clock.time) == clock.time + SOON
    early.begin()
    early.object_changed("Node", PLAIN, tainted("spot"))
    assert early.due(LONG_AGO) == clock.time + QUIET


def test_what_a_run_that_failed_was_called_for_calls_again():
    clock = HandClock()
    early = Early(clock)
    early.object_changed("Node", PLAIN, tainted("spot"))
    for _ in range(2):
        early.begin()
        early.again()
        assert early.due(clock.time) == clock.time + GAP
        assert early.why == "node n says something else"
    early.begin()
    early.begin()
    early.again()
    assert early.due(LONG_AGO) == math.inf
