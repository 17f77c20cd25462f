"""CapacityBuffers: the room that they ask for, as tables of small clusters that a person can check."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest

from rebalancer.machines.capacity.of_run import assess
from rebalancer.machines.capacity.packing import unschedulable_for
from rebalancer.machines.capacity.scale_out_plan import NO_INPUTS, ScaleOutPlan
from rebalancer.planner.rules import NO_HISTORY
from rebalancer.providers.contract import NodeTemplate
from rebalancer.snapshot.buffers import find_chunks, fold_buffers, with_buffers
from rebalancer.snapshot.model import Buffer, Usage
from rebalancer.snapshot.nodes import pod_requests
from rebalancer.testing.snapshots import ZONE, node, snapshot_of, workload
from rebalancer.wire import objects as o
from tests.unit.machines.capacity.conftest import Given, Judged, group


def _spec(cpu, **more) -> o.SchedulingSpec:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, **more.pop("requests", {})}}}
    return msgspec.convert({"containers": [container], **more}, o.SchedulingSpec)


def _buffer(chunks, cpu="1", **more) -> Buffer:
    return Buffer("shop", "web", "uid-web", chunks, {"app": "web"}, _spec(cpu, **more))


@dataclass(frozen=True)
class Seen:
    """What is said of nodes, pods and groups."""

    judged: Judged
    scale_out: ScaleOutPlan

    def __getitem__(self, name):
        return self.judged[name]


def _look(machines, objects, groups, buffers, policy="", templates=None) -> Seen:
    """Ask as a run does whose policy counts buffers."""
    rules = machines.rules(f"{policy}capacity: {{buffers: true}}\n")
    snapshot = replace(snapshot_of(objects), buffers=tuple(buffers))
    provider: Any = Given(groups, templates or {})
    seen = assess(
        rules,
        NO_HISTORY,
        snapshot,
        "pools",
        provider,
        lambda *_: NO_INPUTS,
    )
    return Seen(Judged(seen.snapshot, list(seen.nodes)), seen.scale_out)


def _full(name, cpu="4"):
    return [node(name), *workload(f"on-{name}", [name], cpu=cpu)]


@pytest.mark.parametrize(
    ("spec", "chunks"),
    [
        ({"replicas": 3}, 3),
        ({"replicas": 0}, 0),
        ({"replicas": 3, "limits": {"cpu": "5"}}, 2),
        ({"limits": {"cpu": "5", "memory": "1Ti"}}, 2),
        # What a chunk does not ask for limits nothing.
        ({"replicas": 3, "limits": {"nvidia.com/gpu": "1"}}, 3),
        ({"replicas": 3, "provisioningStrategy": "buffer.x-k8s.io/active-capacity"}, 3),
        ({"replicas": 3, "percentage": 50}, 3),
        ({}, "neither replicas, percentage nor limits"),
        ({"replicas": 3, "provisioningStrategy": "buffer.gke.io/standby-capacity"}, "not known"),
    ],
)
def test_a_template_and_a_number_make_chunks(spec, chunks):
    """A chunk asks for 2 cores."""
    made = {"metadata": {"namespace": "shop", "name": "web", "uid": "u"}, "spec": spec}
    made["spec"] = {"podTemplateRef": {"name": "chunk"}, **spec}
    meta = o.ObjectMeta(namespace="shop", name="chunk")
    template = o.PodTemplateObject(meta, o.PodTemplate(spec=_spec("2")))
    given = msgspec.convert(made, o.CapacityBuffer)
    (folded,) = fold_buffers([given], [template], snapshot_of([]))
    if folded.problem:
        assert str(chunks) in folded.problem
        assert folded.chunks == 0
    else:
        assert folded.chunks == chunks


@pytest.mark.parametrize(
    ("spec", "chunks"),
    [
        ({"percentage": 20}, 1),
        ({"percentage": 50}, 3),
        ({"percentage": 1}, 1),
        ({"percentage": 50, "limits": {"cpu": "2"}}, 2),
        ({"replicas": 4, "percentage": 20}, 4),
        ({"replicas": 2}, 2),
    ],
)
def test_a_workload_says_what_a_chunk_is_and_its_replicas_how_many(spec, chunks):
    """A ReplicaSet of five replicas that ask for a core each."""
    snapshot = snapshot_of([node("a"), *workload("web", ["a"] * 5, cpu="1", kind="ReplicaSet")])
    ref = {"apiGroup": "apps", "kind": "ReplicaSet", "name": "web"}
    made = {"metadata": {"namespace": "default", "name": "b"}, "spec": {"scalableRef": ref, **spec}}
    (folded,) = fold_buffers([msgspec.convert(made, o.CapacityBuffer)], [], snapshot)
    assert folded.chunks == chunks
    assert pod_requests(folded.spec)["cpu"] == 1000


_OS = "kubernetes.io/os"


def _required(values: list[str]) -> dict[str, Any]:
    expressions = [{"key": _OS, "operator": "In", "values": values}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("spec", "system"),
    [
        ({}, "linux"),
        ({"nodeSelector": {"pool": "a"}}, "linux"),
        ({"nodeSelector": {_OS: "windows"}}, None),
        (_required(["windows"]), None),
        ({"os": {"name": "windows"}}, "windows"),
    ],
)
def test_a_template_that_names_no_system_is_for_linux(spec, system):
    made: dict[str, Any] = {"metadata": {"namespace": "shop", "name": "web", "uid": "u"}}
    made["spec"] = {"podTemplateRef": {"name": "chunk"}, "replicas": 1}
    template = o.PodTemplateObject(
        o.ObjectMeta(namespace="shop", name="chunk"), o.PodTemplate(spec=_spec("2", **spec))
    )
    (folded,) = fold_buffers([msgspec.convert(made, o.CapacityBuffer)], [template], snapshot_of([]))
    assert (folded.spec.os.name if folded.spec.os else None) == system


@pytest.mark.parametrize("system", ["linux", "windows"])
def test_chunks_of_a_workload_run_where_its_ready_pods_do(system):
    """One node of each system; the workload does not name its own."""
    nodes = [node(name, labels={_OS: name}) for name in ("linux", "windows")]
    snapshot = snapshot_of([*nodes, *workload("web", [system] * 2, cpu="1", kind="ReplicaSet")])
    ref = {"apiGroup": "apps", "kind": "ReplicaSet", "name": "web"}
    made: dict[str, Any] = {"metadata": {"namespace": "default", "name": "b"}}
    made["spec"] = {"scalableRef": ref, "replicas": 1}
    buffers = fold_buffers([msgspec.convert(made, o.CapacityBuffer)], [], snapshot)
    chunks = with_buffers(replace(snapshot, buffers=buffers))
    foreign = chunks.foreign_nodes(len(chunks.classes) - 1)
    assert foreign is not None
    assert [chunks.nodes.names[at] for at in np.flatnonzero(~foreign)] == [system]


def test_what_a_buffer_names_and_is_not_there_is_said():
    made = {"metadata": {"name": "b"}, "spec": {"replicas": 1}}
    for ref, text in (
        ({"podTemplateRef": {"name": "chunk"}}, "there is no PodTemplate chunk"),
        ({"scalableRef": {"kind": "Deployment", "name": "web"}}, "no pods of Deployment web"),
        ({}, "neither a podTemplateRef nor a scalableRef"),
    ):
        given = msgspec.convert({**made, "spec": {**ref, "replicas": 1}}, o.CapacityBuffer)
        (folded,) = fold_buffers([given], [], snapshot_of([]))
        assert text in folded.problem


@pytest.mark.parametrize(
    ("chunks", "cpu", "increase"),
    [(0, "1", 0), (3, "1", 0), (4, "1", 0), (5, "1", 1), (2, "3", 1), (3, "3", 2)],
)
def test_groups_grow_for_chunks_that_fit_nowhere(machines, chunks, cpu, increase):
    """Node a is full, b has its 4 cores free."""
    objects = [*_full("a"), node("b")]
    seen = _look(machines, objects, [group("pool", "a", "b")], [_buffer(chunks, cpu)])
    assert seen.scale_out.increase_of("pool") == increase


@pytest.mark.parametrize(("zone", "increase"), [("turku", 1), ("oslo", 0), ("visby", 0)])
def test_a_buffer_in_a_zone_without_nodes_grows_the_group_of_that_zone(machines, zone, increase):
    """So scale-out gives an empty zone its nodes back, although no pod waits: oslo has room, visby no group."""
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    templates = {"turku": NodeTemplate({ZONE: "turku"}, (), amounts)}
    groups = [group("turku", zones=("turku",)), group("oslo", "o1")]
    buffers = [_buffer(2, "1", nodeSelector={ZONE: zone})]
    seen = _look(machines, [node("o1", "oslo")], groups, buffers, "", templates)
    assert seen.scale_out.increase_of("turku") == increase
    assert seen.scale_out.increase_of("oslo") == 0


def test_pods_that_exist_take_their_room_before_chunks(machines):
    objects = [*_full("a"), node("b"), *workload("real", [""], cpu="3")]
    seen = _look(machines, objects, [group("pool", "a", "b")], [_buffer(1, "3")])
    codes = {seen.judged.snapshot.pods.name[one.pod]: one.code.value for one in seen.scale_out.pods}
    assert codes == {"real-0": "Fits", "capacity-buffer-web-1": "GroupGrows"}


@pytest.mark.parametrize(
    ("node_has_one", "codes", "increase"),
    [(True, ["Fits", "GroupGrows", "GroupGrows"], 1), (False, ["GroupGrows"] * 3, 2)],
)
def test_what_a_chunk_asks_for_besides_counts_as_it_does_for_a_pod(
    machines, node_has_one, codes, increase
):
    """New nodes have two of what a chunk asks for."""
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "2"}
    used = node("a")
    if node_has_one:
        used["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    buffers = [_buffer(3, "1", requests={"nvidia.com/gpu": "1"})]
    groups = [group("gpu"), group("old", "a")]
    seen = _look(machines, [used], groups, buffers, "", {"gpu": NodeTemplate({}, (), amounts)})
    assert [one.code.value for one in seen.scale_out.pods] == codes
    assert seen.scale_out.increase_of("gpu") == increase
    assert seen.scale_out.increase_of("old") == 0


@pytest.mark.parametrize(
    ("chunks", "removable"),
    [(0, {"a", "b", "c"}), (1, {"b", "c"}), (4, {"b", "c"}), (5, {"c"}), (12, set())],
)
def test_nodes_that_hold_the_room_stay_and_no_more(machines, chunks, removable):
    """Three empty nodes of 4 cores beside a full one."""
    objects = [*(node(name) for name in "abc"), *_full("z")]
    groups = [group("pool", *"abc"), group("rest", "z")]
    seen = _look(machines, objects, groups, [_buffer(chunks)])
    assert {name for name in "abc" if seen[name].removable} == removable
    held = [seen[name].code.value for name in "abc" if not seen[name].removable]
    # A node that is more than half reserved counts as used, as for Cluster Autoscaler.
    assert set(held) <= {"NeededByPendingPod", "NotUnderutilized"}


def test_the_report_names_the_buffer(machines):
    objects = [node("a"), node("b"), *_full("z")]
    seen = _look(machines, objects, [group("pool", "a", "b"), group("rest", "z")], [_buffer(1)])
    assert seen["a"].message == "room is kept on it for shop/capacity-buffer-web-1"


def test_room_that_is_taken_already_by_pods_comes_first(machines):
    """The chunk fits on b, which stays anyway: a can go."""
    objects = [node("a"), node("b"), *workload("pad", ["b"], cpu="2500m"), *_full("z")]
    groups = [group("pool", "a", "b"), group("rest", "z")]
    seen = _look(machines, objects, groups, [_buffer(1)])
    assert (seen["a"].removable, seen["b"].removable) == (True, False)


def test_pods_of_a_removed_node_do_not_take_the_room_of_a_chunk(machines):
    """b has 1.5 cores left, and the chunk is there: what is on a would need them, so that a stays."""
    objects = [
        *(node("a"), node("b")),
        *workload("web", ["a", "b"], cpu="1", kind="ReplicaSet"),
        *workload("pad", ["b"], cpu="1500m"),
        *_full("z"),
    ]
    groups = [group("pool", "a", "b"), group("rest", "z")]
    policy = "protect: {singleReplicas: false}\n"
    assert _look(machines, objects, groups, [], policy)["a"].removable
    kept = _look(machines, objects, groups, [_buffer(1)], policy)
    assert kept["a"].code.value == "NoPlaceToMovePods"


def test_chunks_are_as_old_as_they_need_to_be_and_change_no_row_of_a_pod():
    snapshot = replace(snapshot_of([node("a"), *workload("web", ["a", ""])]), buffers=(_buffer(2),))
    more = with_buffers(snapshot)
    assert list(more.pods.name)[:2] == list(snapshot.pods.name)
    assert find_chunks(more).tolist() == [False, False, True, True]
    assert unschedulable_for(more, 3600.0).tolist() == [False, False, True, True]
    assert with_buffers(snapshot_of([node("a")])).classes == ()


def test_what_is_really_used_stays_known():
    """A chunk uses what it requests."""
    snapshot = snapshot_of([node("a"), *workload("web", ["a"])])
    used = np.array([[50], [1 << 20]])
    usage = Usage(nodes=used, known=np.ones(1, bool), classes=used, at=1.0)
    more = with_buffers(replace(snapshot, usage=usage, buffers=(_buffer(2, "1"),)))
    assert more.usage is not None
    assert more.usage.classes.tolist() == [[50, 1000], [1 << 20, 0]]
