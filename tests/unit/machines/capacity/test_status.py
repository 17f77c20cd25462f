"""The status ConfigMap: the fields of Cluster Autoscaler, times that stand still, reasons for each node and pod."""

import json

import msgspec
import pytest
import yaml

from rebalancer.kube.config_map import MAX_BYTES
from rebalancer.machines.capacity.scale_out_plan import ScaleOutInputs
from rebalancer.machines.capacity.state import KEY as STATE_KEY
from rebalancer.machines.capacity.state import (
    TIMEOUT,
    CapacityState,
    GroupState,
    decode,
    encode,
    note_failure,
)
from rebalancer.machines.capacity.status import KEY, UPDATED, status_of
from rebalancer.testing.snapshots import node, workload
from tests.unit.machines.capacity.conftest import group

_NOW = 1_800_000_000.0
_AT = "2027-01-15T08:00:00Z"


class _Times(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    status: str
    last_probe_time: str
    last_transition_time: str


class _Unready(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    total: int
    resource_unready: int


class _Registered(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    total: int
    ready: int
    not_started: int
    being_deleted: int
    unready: _Unready


class _Counts(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    registered: _Registered
    long_unregistered: int
    unregistered: int


class _Health(_Times, kw_only=True):
    node_counts: _Counts


class _GroupHealth(_Health, kw_only=True):
    cloud_provider_target: int
    min_size: int
    max_size: int


class _Backoff(msgspec.Struct, rename="camel"):
    error_code: str = ""
    error_message: str = ""


class _ScaleUp(_Times, kw_only=True):
    backoff_info: _Backoff


class _ScaleDown(_Times, kw_only=True):
    candidates: int


class _Wide(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    health: _Health
    scale_up: _Times
    scale_down: _ScaleDown


class _Group(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    name: str
    health: _GroupHealth
    scale_up: _ScaleUp
    scale_down: _ScaleDown


class Theirs(msgspec.Struct, rename="camel"):
    """The fields of Cluster Autoscaler's ``ClusterAutoscalerStatus``, none missing and none beside them but at the top."""

    time: str
    autoscaler_status: str
    cluster_wide: _Wide
    node_groups: list[_Group]


def _full(name):
    return [node(name), *workload(f"on-{name}", [name], cpu="4", memory="1Gi")]


def _written(report, earlier=None, now=_NOW, groups=None):
    return status_of(earlier or CapacityState(), now, report, groups or {})


def _document(written):
    return yaml.safe_load(written.data[KEY])


@pytest.fixture
def pending(machines):
    """Two nodes of three that are there to be, a pending pod that fits on one, and one that nothing takes."""
    objects = [
        *_full("a"),
        node("b"),
        *workload("web", [""], cpu="3", spec={"nodeSelector": {"kubernetes.io/hostname": "a"}}),
    ]
    groups = [group("pool", "a", "b", low=1, high=5, desired=3)]
    return machines.report(objects, groups, ScaleOutInputs(upcoming={"pool": 1}))


def test_its_fields_are_those_of_cluster_autoscaler(pending):
    written = _written(pending)
    theirs = msgspec.convert(_document(written), Theirs)
    assert (theirs.time, theirs.autoscaler_status) == (
        "2027-01-15 08:00:00.000000 +0000 UTC",
        "Running",
    )
    assert written.annotations == {UPDATED: theirs.time}
    counts = theirs.cluster_wide.health.node_counts
    assert (counts.registered.total, counts.registered.ready, counts.unregistered) == (2, 2, 1)
    (pool,) = theirs.node_groups
    assert (pool.health.cloud_provider_target, pool.health.min_size, pool.health.max_size) == (
        3,
        1,
        5,
    )
    assert (pool.scale_up.status, theirs.cluster_wide.scale_up.status) == ("InProgress",) * 2
    assert (pool.scale_down.status, pool.scale_down.candidates) == ("CandidatesPresent", 1)
    assert theirs.cluster_wide.scale_down.candidates == 1


def test_each_node_and_each_pod_that_waits_has_a_reason(pending):
    reasons = _document(_written(pending))["reasons"]
    assert [(one["name"], one["group"], one["code"]) for one in reasons["nodes"]] == [
        ("b", "pool", "Empty"),
        ("a", "pool", "NotUnderutilized"),
    ]
    (pod,) = reasons["pendingPods"]
    assert (pod["namespace"], pod["name"], pod["code"]) == ("default", "web-0", "NoGroupFits")
    assert pod["message"].startswith("0/2 nodes are available: ")
    assert "pool: " in pod["message"]
    assert reasons["leftOut"] == {"nodes": 0, "pendingPods": 0}


def test_a_transition_is_noted_when_a_status_changes_and_only_then(machines, pending):
    first = _written(pending)
    later = _written(pending, first.state, _NOW + 120)
    scale_up = _document(later)["nodeGroups"][0]["scaleUp"]
    assert (scale_up["lastTransitionTime"], scale_up["lastProbeTime"]) == (
        _AT,
        "2027-01-15T08:02:00Z",
    )
    came = machines.report(
        [*_full("a"), node("b"), node("c")], [group("pool", *"abc", low=1, high=5)]
    )
    last = _document(_written(came, later.state, _NOW + 240))["nodeGroups"][0]
    assert last["scaleUp"]["status"] == "NoActivity"
    assert last["scaleUp"]["lastTransitionTime"] == "2027-01-15T08:04:00Z"
    assert last["health"]["lastTransitionTime"] == _AT


def test_a_group_that_backs_off_says_why_and_until_when(pending):
    memory = note_failure(GroupState(), TIMEOUT, "1 machine did not come", _NOW - 60)
    (pool,) = _document(_written(pending, groups={"pool": memory}))["nodeGroups"]
    assert pool["scaleUp"]["status"] == "Backoff"
    assert pool["scaleUp"]["backoffInfo"] == {
        "errorCode": "timeout",
        "errorMessage": "1 machine did not come",
        "until": "2027-01-15T08:04:00Z",
    }
    counts = pool["health"]["nodeCounts"]
    assert (counts["longUnregistered"], counts["unregistered"]) == (1, 0)


@pytest.mark.parametrize(
    ("unready", "expected"),
    [(3, "Healthy"), (4, "Unhealthy")],
)
def test_many_unready_nodes_are_not_healthy(machines, unready, expected):
    names = [f"n{i}" for i in range(8)]
    nodes = [node(name, ready=number >= unready) for number, name in enumerate(names)]
    document = _document(_written(machines.report(nodes, [group("pool", *names)])))
    assert document["clusterWide"]["health"]["status"] == expected
    assert document["nodeGroups"][0]["scaleUp"]["status"] == (
        "Unhealthy" if expected == "Unhealthy" else "NoActivity"
    )


def test_it_is_read_back_and_the_same_input_is_the_same_bytes(pending):
    memory = {"pool": note_failure(GroupState(), TIMEOUT, "no capacity", _NOW)}
    written = _written(pending, groups=memory)
    state, flaw = decode(written.data)
    assert (state, flaw) == (written.state, None)
    assert state.groups == memory
    assert state.nodes == {"a": "NotUnderutilized", "b": "Empty"}
    assert state.pods == {"default/web-0": "NoGroupFits"}
    assert _written(pending, groups=memory).data == written.data


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 9}', '{"groups": {"a": 1}}', "\x00"])
def test_a_state_that_cannot_be_understood_is_an_empty_one(text):
    state, flaw = decode({STATE_KEY: text})
    assert state == CapacityState()
    assert (flaw is None) == (text == "")


_FIRST = {
    "groups": {
        "w": {
            "grown": 1.8e9,
            "missing": 1.8e9,
            "failures": 2,
            "failed": 1.8e9,
            "until": 1800000600.0,
            "code": "timeout",
            "why": "late",
        },
        "x": {"unknown": 1.8e9},
    },
    "promised": {"uid-1": "w"},
    "conditions": {"w/health": {"status": "Healthy", "since": 1.8e9}},
}
_SECOND = {
    "groups": {
        "w": {
            "scaledOutAt": 1.8e9,
            "upcomingSince": 1.8e9,
            "failures": 2,
            "failedAt": 1.8e9,
            "backoffUntil": 1800000600.0,
            "code": "timeout",
            "why": "late",
        },
        "x": {"unknownSince": 1.8e9},
    },
    "triggered": {"uid-1": "w"},
    "conditions": {"w/health": {"status": "Healthy", "since": 1.8e9}},
}


@pytest.mark.parametrize(
    "document", [_FIRST, {"version": 1, **_FIRST}, _SECOND, {"version": 2, **_SECOND}]
)
def test_a_state_of_an_earlier_program_is_read(document):
    """The first versions wrote no number; one of them had other keys."""
    state, flaw = decode({STATE_KEY: json.dumps(document)})
    assert flaw is None
    assert state.groups["w"] == GroupState(
        scaled_out_at=1.8e9,
        upcoming_since=1.8e9,
        failures=2,
        failed_at=1.8e9,
        backoff_until=1.8e9 + 600,
        code="timeout",
        why="late",
    )
    assert state.groups["x"].unknown_since == 1.8e9
    assert state.triggered == {"uid-1": "w"}
    assert json.loads(encode(state)[STATE_KEY])["version"] == 2


def test_a_state_of_a_later_program_is_named():
    state, flaw = decode({STATE_KEY: json.dumps({"version": 3, "groups": {}})})
    assert state == CapacityState()
    assert flaw == "state.json is of version 3, this program knows 2 and 1"


def test_reasons_are_left_out_where_they_would_not_fit_and_counted(machines):
    name = "n" * 200
    nodes = [node(f"{name}{number:04}", cpu="1m") for number in range(2000)]
    written = _written(machines.report(nodes))
    document = _document(written)
    left_out = document["reasons"]["leftOut"]["nodes"]
    assert 0 < left_out == 2000 - len(document["reasons"]["nodes"])
    assert len(written.state.nodes) == 2000 - left_out
    assert sum(map(len, written.data.values())) < MAX_BYTES


def test_without_groups_and_without_pods(machines):
    document = _document(_written(machines.report([node("a")])))
    assert (document["nodeGroups"], document["reasons"]["pendingPods"]) == ([], [])
