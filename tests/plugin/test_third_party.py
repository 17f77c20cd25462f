"""A strategy in a package of its own, installed beside, listed by its entry point, used by a policy."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rebalancer.testing.snapshots import node, workload

SOURCE = Path(__file__).parent / "rack_strategy"
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
strategies:
  per-rack: {cap: 1}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The environment of a process in which the package is installed."""
    folder = tmp_path_factory.mktemp("plugin")
    # Built from a copy: setuptools leaves its traces beside the sources.
    source = shutil.copytree(SOURCE, folder / "source")
    target = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, f"--target={target}", str(source)], check=True, timeout=600)
    return {**os.environ, "PYTHONPATH": f"{target}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def _run(installed, *args):
    return subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        env=installed,
        timeout=600,
        check=False,
    )


def test_it_is_listed_with_the_distribution_it_comes_from(installed):
    listed = _run(installed, "-m", "rebalancer", "strategies").stdout
    assert "per-rack" in listed
    assert "rack-strategy" in listed


def test_a_policy_that_names_it_plans_with_it(installed, tmp_path):
    nodes = [node(f"n{i}", labels={"example.com/rack": f"r{i}"}) for i in range(2)]
    objects = [*nodes, *workload("web", ["n0", "n0"])]
    (tmp_path / "cluster.json").write_text(json.dumps({"kind": "List", "items": objects}))
    (tmp_path / "policy.yaml").write_text(POLICY)
    done = _run(
        installed,
        "-m",
        "rebalancer",
        "run",
        f"--snapshot={tmp_path / 'cluster.json'}",
        f"--policy={tmp_path / 'policy.yaml'}",
        "--output=json",
    )
    assert done.returncode == 0, done.stderr
    (move,) = json.loads(done.stdout)["moves"]
    assert (move["from"], move["landings"][0]["node"]) == ("n0", "n1")
    assert move["strategy"] == "per-rack"


def test_it_passes_the_public_contract_test(installed):
    code = (
        "from per_rack import PerRack; from rebalancer.testing.contract import check_strategy;"
        "check_strategy(PerRack())"
    )
    done = _run(installed, "-c", code)
    assert done.returncode == 0, done.stderr


def test_a_misspelt_option_of_it_is_named(installed, tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY.replace("cap", "cup"))
    done = _run(
        installed, "-m", "rebalancer", "policy", "check", f"--policy={tmp_path / 'policy.yaml'}"
    )
    assert done.returncode == 2
    assert "policy.yaml:5" in done.stderr
    assert "cap" in done.stderr
