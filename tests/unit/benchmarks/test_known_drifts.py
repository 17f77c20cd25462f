"""The kept clusters of the decisions benchmark, played with drawn landings: they end, and end well."""

import gzip
import json
from io import BytesIO
from pathlib import Path

import pytest

from benchmarks.decisions.contenders import default_policy
from benchmarks.decisions.instance import counted, hard, soft
from benchmarks.decisions.loop import Loop, as_objects
from benchmarks.decisions.reading import placement, read
from rebalancer.base.environment import SystemClock, Timings
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.protect import Scope

SNAPSHOTS = Path("benchmarks/decisions/snapshots")


def kept(drift):
    return json.loads(gzip.decompress((SNAPSHOTS / f"{drift}.json.gz").read_bytes()))["items"]


def default(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(default_policy())
    registry = Registry.installed()
    return load_policy(policy, registry), registry


@pytest.mark.parametrize(
    ("drift", "optimum", "left_hard", "left_soft"), [("mutual", 10, 0, 2), ("scale-down", 35, 0, 2)]
)
def test_a_kept_drift_is_fixed_and_then_nothing_is_done(
    tmp_path, drift, optimum, left_hard, left_soft
):
    objects = kept(drift)
    loaded, registry = default(tmp_path)
    played = Loop(loaded, registry, seed=0).play(objects)
    assert played.silent
    assert played.bound <= optimum
    assert len(played.moves) <= 1.5 * optimum
    instance = read(as_objects(objects))
    left = instance.violations(counted(instance, placement(as_objects(played.end))))
    assert (hard(left), soft(left)) <= (left_hard, left_soft)


@pytest.mark.parametrize("drift", ["mutual", "scale-down", "conflicts", "zonal-volumes"])
def test_in_one_wave_no_two_pods_make_way_for_the_same_owner(tmp_path, drift):
    loaded, registry = default(tmp_path)
    rules = RunRules(loaded, registry, Scope(), lifted=True)
    snapshot = load_snapshot(str(SNAPSHOTS / f"{drift}.json.gz"), stdin=BytesIO())
    owner_of = {
        uid: int(snapshot.classes[cls].owner)
        for uid, cls in zip(snapshot.pods.uid, snapshot.pods.cls.tolist(), strict=True)
    }
    plan = make_plan(rules, snapshot, Timings(SystemClock())).plan
    ways = [(m.wave, owner_of[m.makes_way_for]) for m in plan.moves if m.makes_way_for]
    assert len(ways) == len(set(ways))
