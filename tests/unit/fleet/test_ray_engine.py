"""What is said where Ray is not; with Ray: tests/ray."""

import sys

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.cli import command
from rebalancer.fleet.engines import RayTasks
from tests.unit.fleet.worlds import skewed


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PolicyError, match=r"pip install '\.\[ray\]' in a checkout"):
        list(RayTasks("local").run([]))


def test_workers_of_a_cluster_cannot_be_set(tmp_path, capsys):
    file = str(skewed(tmp_path / "1.json"))
    args = ["--ray", "head:6379", "--jobs", "3"]
    assert command(["compare", "--policies", "default", "--snapshots", file, *args]) == 2
    assert "the cluster has its own workers" in capsys.readouterr().err
