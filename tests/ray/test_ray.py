"""Comparisons on a real local Ray: the same bytes as in one process, whatever becomes of its workers (make e2e-ray)."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rebalancer.base.errors import ProviderError
from rebalancer.fleet.engines import RayTasks
from tests.unit.fleet.test_engines import by_number, deadly, row, slow, tasks
from tests.unit.fleet.worlds import skewed, write_policies

pytestmark = pytest.mark.ray

# Its workers import the functions of this test from here.
_ROOT = str(Path(__file__).parents[2])


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", _ROOT)


def compare(folder, *args):
    policies = write_policies(folder)
    words = [
        "compare",
        "--policies",
        *policies,
        "--snapshots",
        "recorded",
        "--draws",
        "2",
        "-o",
        "json",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "rebalancer", *words, *args],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_and_four_workers_give_the_bytes_of_one_process(tmp_path):
    (tmp_path / "recorded").mkdir()
    for number in range(6):
        skewed(tmp_path / "recorded" / f"{number}.json", 1 + number % 3)
    expected = compare(tmp_path)
    assert json.loads(expected)["failures"] == []
    for workers in ("2", "4"):
        assert compare(tmp_path, "--ray", "local", "--jobs", workers) == expected


def test_a_task_that_always_kills_its_worker_is_named_and_fails_alone():
    results = by_number(RayTasks("local", 2, deadly).run(tasks(8)))
    assert [of.number for of in results if not hasattr(of, "measures")] == [3]
    assert results[3].error.startswith("its worker died 3 times")
    assert results[:3] + results[4:] == [row(task) for task in tasks(8) if task.number != 3]


def workers_of_ray():
    """Return the process ids of the workers that are at a task of ours: Ray names them after it."""
    results = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if file.read_bytes().startswith(b"ray::slow"):
                results.append(int(file.parent.name))
    return results


def test_workers_killed_at_random_change_nothing():
    results = []
    for result in RayTasks("local", 2, slow).run(tasks(40)):
        results.append(result)
        if len(results) % 12 == 0:
            for pid in workers_of_ray()[:1]:
                os.kill(pid, signal.SIGKILL)
    assert by_number(results) == [row(task) for task in tasks(40)]


def test_a_ray_that_is_not_there_is_said():
    with pytest.raises(ProviderError, match=r"--ray 127\.0\.0\.1:1: .*refused"):
        list(RayTasks("127.0.0.1:1").run(tasks(1)))


def test_a_local_ray_that_does_not_start_is_said(monkeypatch):
    def fail_to_start(**_arguments):
        raise Exception("The current node timed out during startup.")  # noqa: TRY002 (it is what Ray raises)

    monkeypatch.setattr("ray.init", fail_to_start)
    with pytest.raises(
        ProviderError, match=r"--ray local: The current node timed out during startup"
    ):
        list(RayTasks("local", 2).run(tasks(1)))
