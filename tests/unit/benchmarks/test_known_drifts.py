"""The kept clusters of the decisions benchmark, played with drawn landings: they end, and end well."""

import gzip
import json
from pathlib import Path

import pytest

from benchmarks.decisions.contenders import default_policy
from benchmarks.decisions.instance import counted, hard, soft
from benchmarks.decisions.loop import Loop, as_objects
from benchmarks.decisions.reading import placement, read
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry

SNAPSHOTS = Path("benchmarks/decisions/snapshots")


@pytest.mark.parametrize(
    ("drift", "optimum", "left_hard", "left_soft"),
    [("mutual", 10, 0, 2), ("scale-down", 35, 0, 2), ("conflicts", 47, 3, 3)],
)
def test_a_kept_drift_is_mended_and_then_nothing_is_done(
    tmp_path, drift, optimum, left_hard, left_soft
):
    objects = json.loads(gzip.decompress((SNAPSHOTS / f"{drift}.json.gz").read_bytes()))["items"]
    policy = tmp_path / "policy.yaml"
    policy.write_text(default_policy())
    registry = Registry.installed()
    played = Loop(load_policy(policy, registry), registry, seed=0).play(objects)
    assert played.silent
    assert played.bound <= optimum
    assert len(played.moves) <= 1.5 * optimum
    instance = read(as_objects(objects))
    left = instance.violations(counted(instance, placement(as_objects(played.end))))
    assert (hard(left), soft(left)) <= (left_hard, left_soft)
