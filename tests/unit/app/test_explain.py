"""``explain pod``, as a process on a snapshot file."""

import json
import subprocess
import sys

import pytest

from rebalancer.testing.workloads import apart, node, workload


@pytest.fixture
def explain(tmp_path):
    """Run the command on a small cluster with one full node."""
    nodes = [node("n-a", "a"), node("n-b", "b"), node("full", "c", cpu="50m")]
    objects = [*nodes, *workload("web", ["n-a", "n-a"], spec=apart("web", weight=100))]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))

    def run(*args):
        command = [
            sys.executable,
            "-m",
            "rebalancer",
            "explain",
            "pod",
            *args,
            f"--snapshot={path}",
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    return run


def test_it_names_filters_scores_and_landings(explain):
    out = explain("default/web-0").stdout
    assert "refused by NodeResourcesFit" in out
    assert "InterPodAffinity 200" in out
    assert "100.0%  n-b (b)" in out


def test_a_node_alone_says_why_not(explain):
    out = explain("web-0", "--node=full").stdout
    assert "Insufficient cpu" in out
    assert "n-b" not in out


def test_json_has_the_documented_fields(explain):
    found = json.loads(explain("default/web-0", "-o", "json").stdout)
    by_name = {one["name"]: one for one in found["nodes"]}
    assert by_name["full"]["filteredBy"]["plugin"] == "NodeResourcesFit"
    assert not by_name["full"]["feasible"]
    best = by_name["n-b"]
    assert best["filteredBy"] is None
    assert best["total"] == sum(best["scores"].values())
    (landing,) = found["landings"]
    assert (landing["node"], landing["probability"]) == ("n-b", 1.0)
    assert "b" in landing["domains"].values()


def test_what_cannot_be_known_of_the_replacement_is_named(tmp_path):
    objects = [node("n-a", "a"), *workload("web", ["n-a"])]
    pod = objects[-1]
    sidecar = {"name": "proxy", "image": "proxy", "resources": {"requests": {"cpu": "10m"}}}
    pod["spec"]["containers"] = [*pod["spec"]["containers"], sidecar]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    command = [sys.executable, "-m", "rebalancer", "explain", "pod", "web-0", f"--snapshot={path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert "Assumed: container proxy is injected again" in done.stdout


@pytest.mark.parametrize(
    ("args", "says"), [(["default/nope"], "no such pod"), (["web-0", "--node=x"], "no such node")]
)
def test_what_is_not_there_is_said_to_be_so(explain, args, says):
    done = explain(*args)
    assert done.returncode == 2
    assert says in done.stderr
