"""What a file does not say is not said of the cluster: its version and its time."""

import json

import pytest

from rebalancer.testing.snapshots import node, workload
from tests.unit.commands.called import called


@pytest.fixture
def file(tmp_path):
    """A file without any time or version."""
    objects = [node("n1", "a"), node("n2", "b"), *workload("shop", ["n1", "n1"])]
    for one in objects:
        one["metadata"].pop("creationTimestamp", None)
        for condition in one.get("status", {}).get("conditions", []):
            condition.pop("lastHeartbeatTime", None)
            condition.pop("lastTransitionTime", None)
        one.get("status", {}).pop("startTime", None)
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    return path, objects


@pytest.mark.parametrize(
    "words", [["plan"], ["explain", "pod", "shop-0"], ["explain", "node", "n1"], ["capacity"]]
)
def test_the_data_has_null_for_them(file, words):
    done = called(*words, f"--snapshot={file[0]}", "-o", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["serverVersion"], report["capturedAt"]) == (None, None)


def test_people_read_that_they_are_unknown(file):
    head = called("plan", f"--snapshot={file[0]}").stdout.replace("\n  ", " ")
    assert "Kubernetes version unknown, judged as 1." in head
    assert ", time unknown\n" in head
    assert "1970" not in head


def test_the_kubelets_say_a_version(file):
    path, objects = file
    objects[0]["status"]["nodeInfo"] = {"kubeletVersion": "v1.34.2"}
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    assert "Kubernetes 1.34, " in called("plan", f"--snapshot={path}").stdout


def test_a_plan_without_a_time_is_not_applied(file, tmp_path):
    plan = tmp_path / "plan.json"
    made = called("plan", f"--snapshot={file[0]}", "-o", "json")
    plan.write_text(made.stdout)
    done = called("apply", str(plan), "--yes", f"--snapshot={file[0]}")
    assert done.returncode == 2
    assert "the plan is of a file without a time" in done.stderr
