"""The search goes the same way by the compiled core as by its source, to the last word of why pods stay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rebalancer
from benchmarks.phases.families import cluster_of
from rebalancer import core

pytestmark = pytest.mark.skipif(not core.is_compiled(), reason="the core is not compiled here")
_PACKAGE = Path(rebalancer.__file__).parent


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program without its extensions."""
    folder = tmp_path_factory.mktemp("source")
    for package in (_PACKAGE, _PACKAGE.parent / "strategies"):
        shutil.copytree(
            package, folder / package.name, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
    return folder


def planned(snapshot: Path, program: Path) -> Any:
    """Return what a plan says, but for what it says of the core itself."""
    command = [sys.executable, "-m", "rebalancer", "plan", "--snapshot", str(snapshot), "--whole"]
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


@pytest.mark.parametrize("seed", [3, 11])
def test_a_plan_is_the_same_by_the_source(seed: int, source: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "cluster.json"
    snapshot.write_bytes(cluster_of(seed, 24, 130))
    by_source = planned(snapshot, source)
    assert by_source["moves"]
    assert planned(snapshot, _PACKAGE.parent) == by_source
