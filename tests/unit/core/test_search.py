"""The search goes the same way by the compiled core as by its source, to the last word of why pods stay."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rebalancer
from benchmarks.phases.families import CAPACITY, cluster_of
from rebalancer import core

pytestmark = pytest.mark.skipif(not core.is_compiled(), reason="the core is not compiled here")
_PACKAGE = Path(rebalancer.__file__).parent


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The program without its extensions."""
    folder = tmp_path_factory.mktemp("source")
    for package in (_PACKAGE, _PACKAGE.parent / "strategies"):
        shutil.copytree(
            package, folder / package.name, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
    return folder


_DRAWN: dict[str, dict[str, Any]] = {
    "topology-spread": {},
    "anti-affinity": {},
    "duplicates": {},
    "low-utilisation": {},
    "node-affinity": {},
    "taints": {},
    "pod-affinity": {},
    "leaving": {},
    "stuck": {},
    "restarts": {},
    "lifetime": {"maxPodLifeTime": "1h"},
    "placement": {"avoid": {CAPACITY: "spot"}},
}


def policy_of(seed: int) -> dict[str, Any]:
    """Return a policy that a seed draws: several strategies, some of them only observed, and whether marks choose landings."""
    draw = random.Random(seed)
    strategies: dict[str, Any] = {}
    for name in draw.sample(sorted(_DRAWN), draw.randint(3, 8)):
        mode = draw.choice(("enforce", "enforce", "enforce", "observe"))
        strategies[name] = {"weight": draw.choice((1, 2, 5)), "mode": mode, **_DRAWN[name]}
    return {
        "apiVersion": "rebalancer/v1",
        "kind": "Policy",
        "mode": "enforce",
        "steer": draw.choice(("off", "marks")),
        "protect": {"minPodAge": "0s"},
        "strategies": strategies,
    }


def planned(snapshot: Path, program: Path, policy: Path) -> Any:
    """Return what a plan says, but for what it says of the core itself."""
    command = [sys.executable, "-m", "rebalancer", "plan", "--snapshot", str(snapshot), "--whole"]
    command += ["--policy", str(policy)]
    result = subprocess.run(
        [*command, "--lift-budgets", "-o", "json", "-q"],
        cwd=program,
        env={**os.environ, "PYTHONPATH": str(program)},
        stdout=subprocess.PIPE,
        check=True,
    )
    said = json.loads(result.stdout)
    plan = said.get("plan", said)
    return {
        name: plan[name] for name in ("moves", "skipped", "before", "after", "unmet", "stopped")
    }


@pytest.mark.parametrize("seed", [5, 8, 11, 40])
def test_a_plan_is_the_same_by_the_source(seed, source, tmp_path):
    snapshot, policy = tmp_path / "cluster.json", tmp_path / "policy.yaml"
    snapshot.write_bytes(cluster_of(seed, 16, 90))
    policy.write_text(json.dumps(policy_of(seed)))
    by_source = planned(snapshot, source, policy)
    assert by_source["moves"]
    assert planned(snapshot, _PACKAGE.parent, policy) == by_source
