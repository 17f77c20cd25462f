"""Room for pods to come, of ``slots`` and of CapacityBuffers: no strategy takes it. Clusters that a person can check."""

from dataclasses import replace

import msgspec
import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.snapshot.model import Buffer
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import node, snapshot_of, workload
from rebalancer.wire import objects as o
from tests.unit.planner.room.test_plan import waiting

_OF_A = {"nodeSelector": {"kubernetes.io/hostname": "a"}}


def _buffer(chunks, cpu):
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    spec = msgspec.convert({"containers": [container]}, o.SchedulingSpec)
    return Buffer("shop", "web", "uid", chunks, {}, spec)


def _plan(folder, objects, strategies, *, slot="", buffer=""):
    """``slot``, ``buffer``: cpu that has to be free on one node."""
    slots = f"  slots: {{free: {{cpu: {slot}}}}}\n" if slot else ""
    path = folder / "policy.yaml"
    path.write_text(
        f"apiVersion: rebalancer/v1\nkind: Policy\nsteer: marks\ncapacity: {{buffers: true}}\nstrategies:\n  {strategies}\n{slots}"
    )
    registry = Registry.installed()
    snapshot = snapshot_of(objects)
    if buffer:
        snapshot = replace(snapshot, buffers=(_buffer(1, buffer),))
    rules = RunRules(load_policy(path, registry), registry, Scope())
    return make_plan(rules, snapshot, Timings(SystemClock())).plan


_CLUSTERS = {
    # Each node could take what is on the other, and 3.5 would be free nowhere.
    "consolidation: {minNodeAge: 0s}": [
        *(node("a"), node("b")),
        *workload("web", ["a", "b"], cpu="500m"),
    ],
    # b has 3.5 free, and nothing else has room.
    "low-utilisation: {under: {cpu: 20%}, over: {cpu: 50%}}": [
        *(node("a"), node("b")),
        *workload("web", ["a"] * 6 + ["b"], cpu="500m"),
    ],
    # The pod that is to leave a could only land on b.
    "placement: {avoid: {matchLabels: {kubernetes.io/hostname: a}}}": [
        *(node("a"), node("b")),
        *workload("pad", ["a"], cpu="3"),
        *workload("web", ["a", "b"], cpu="500m"),
    ],
    # For the pod that waits, and that fits on a alone, one of web would have to go to b.
    "make-room: {}": [
        *(node("a"), node("b")),
        *workload("web", ["a", "b"], cpu="500m"),
        *waiting("big", cpu="3800m", spec=_OF_A),
    ],
}


@pytest.mark.parametrize("strategies", _CLUSTERS)
@pytest.mark.parametrize("kept", ["slot", "buffer"])
def test_no_strategy_fills_the_room_that_is_kept(tmp_path, strategies, kept):
    objects = _CLUSTERS[strategies]
    assert _plan(tmp_path, objects, strategies).moves
    # As much as is free on b stays free; where less is asked for, the moves are made.
    assert not _plan(tmp_path, objects, strategies, **{kept: "3500m"}).moves
    assert _plan(tmp_path, objects, strategies, **{kept: "500m"}).moves


def test_a_buffer_without_room_is_an_unmet_rule_and_moves_nothing(tmp_path):
    objects = [node("a"), *workload("web", ["a"] * 3, cpu="1")]
    plan = _plan(tmp_path, objects, "duplicates: {}", buffer="2")
    assert not plan.moves
    score = plan.before["capacity-buffers"]
    assert (score.violated, score.cost.soft) == (1, 1)
    (unmet,) = (one for one in plan.unmet if one.strategy == "capacity-buffers")
    assert unmet.rule == "there is no room for a chunk of CapacityBuffer shop/web"
    # It was looked at: a longer run would do no more.
    assert list(unmet.codes) == ["NoGain"]


@pytest.mark.parametrize(
    ("spec", "unmet"),
    [
        ({}, 0),
        ({"nodeSelector": {"pool": "batch"}}, 1),
        ({"nodeSelector": {"kubernetes.io/hostname": "b"}}, 1),
        ({"containers": [{"name": "c", "resources": {"requests": {"example.com/fpga": "1"}}}]}, 1),
    ],
)
def test_a_chunk_has_room_only_where_its_pod_could_be(tmp_path, spec, unmet):
    """a has 4 cores free, b half a core."""
    objects = [node("a"), node("b"), *workload("web", ["b"] * 7, cpu="500m")]
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    given = msgspec.convert({"containers": [container], **spec}, o.SchedulingSpec)
    snapshot = snapshot_of(objects)
    snapshot = replace(snapshot, buffers=(Buffer("shop", "web", "uid", 1, {}, given),))
    path = tmp_path / "policy.yaml"
    path.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\ncapacity: {buffers: true}\nstrategies: {duplicates: {}}\n"
    )
    registry = Registry.installed()
    rules = RunRules(load_policy(path, registry), registry, Scope())
    plan = make_plan(rules, snapshot, Timings(SystemClock())).plan
    assert plan.before["capacity-buffers"].violated == unmet
