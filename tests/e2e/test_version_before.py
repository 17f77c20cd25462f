"""Upgrade and rollback in the middle of things: one of two versions begins, is killed, and the other one goes on.

No version is published. The version before is a commit of this repository, taken from its history and run without
compiling; a clone without that history cannot judge this.
"""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from rebalancer.kube.access import config_map_rules, lease_rules
from rebalancer.node_record.protocol import EXCLUDE
from tests.chart.helm import CHART, Release
from tests.controlplane import access, objects, operations, wait_until
from tests.controlplane.build import binary
from tests.e2e import crowd
from tests.e2e.product import NO_WAIT, PATIENCE, Ran, grant
from tests.e2e.test_chart import objects_of_the_release
from tests.e2e.test_emptying_nodes import NEW, OLD, REPLICAS, RULES, WEB, names_of_nodes, nodes
from tests.e2e.test_stop_and_upgrade import ACCOUNT, ENFORCING, NAMESPACE, may_write

ROOT = Path(__file__).parents[2]
COMMIT = "2ca9d4bf2dfc86c3c1db41b330cc15608a5b8160"
MEMORY = ("default", "mover-memory")
MEMORY_PATH = "/api/v1/namespaces/default/configmaps/mover-memory"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/turns"


@cache
def before() -> Path:
    """Return the files of the version before."""
    folder = Path(mkdtemp(prefix="before-"))
    of = ["rebalancer", "strategies", "chart"]
    command = ["git", "-C", str(ROOT), "archive", COMMIT, *of]
    archive = subprocess.run(command, capture_output=True, check=False, timeout=60)
    if archive.returncode:
        pytest.skip(f"not judged: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


@dataclass(frozen=True)
class Version:
    """One of the two programs."""

    name: str

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command."""
        folder = before() if self.name == "before" else ROOT
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-m", "rebalancer", *arguments],
            stdout=pipe,
            stderr=pipe,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
        )

    def run(self, *arguments: str) -> Ran:
        """Run a command to its end."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=PATIENCE)
            return Ran(process.returncode, out, err)

    def kill_when(self, is_due: Callable[[], Any], *arguments: str) -> None:
        """Start a command, and kill it once something is so."""
        with self.start(*arguments) as process:
            end = time.monotonic() + 120
            while not is_due():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < end
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)


BEFORE, NOW = Version("before"), Version("now")
UPGRADE = pytest.param(BEFORE, NOW, id="upgrade")
both_ways = pytest.mark.parametrize(
    ("first", "second"), [UPGRADE, pytest.param(NOW, BEFORE, id="rollback")]
)
upgraded_and_rarely_rolled_back = pytest.mark.parametrize(
    ("first", "second"), [UPGRADE, pytest.param(NOW, BEFORE, id="rollback", marks=pytest.mark.long)]
)


def annotations_of(plane, node: str) -> dict[str, str]:
    return plane.api.get(f"/api/v1/nodes/{node}")["metadata"].get("annotations") or {}


def is_labelled(plane, node: str) -> bool:
    return EXCLUDE in plane.api.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]


def two_generations(plane) -> None:
    nodes(plane, OLD, "old")
    operations.wait_nodes_ready(plane.api, len(OLD))
    plane.apply([objects.deployment("web", REPLICAS, labels=WEB)])
    plane.apply([objects.pdb("web", WEB, maxUnavailable=1)])
    operations.wait_pods_ready(plane.api, REPLICAS)
    nodes(plane, NEW, "new")
    operations.wait_nodes_ready(plane.api, len(OLD + NEW))


def drift_again(plane) -> None:
    """Move the pod of the crowd's third zone back, as an outage of that zone does."""
    operations.cordon(plane.api, [crowd.LAST])
    for pod in crowd.pods(plane).values():
        if pod["spec"].get("nodeName") == crowd.LAST:
            plane.api.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")
    wait_until(lambda: not crowd.moved(plane), 60, "the third zone empty")
    crowd.settle(plane, 1)
    operations.cordon(plane.api, [crowd.LAST], on=False)


def memory_of(plane) -> dict[str, Any]:
    return json.loads(plane.api.get(MEMORY_PATH)["data"]["memory.json"])


@both_ways
def test_a_cool_down_holds_and_evictions_count(cluster, tmp_path, first, second):
    crowd.gather(cluster, 1)
    metadata = {"name": MEMORY[1], "namespace": MEMORY[0]}
    cluster.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}])
    kubeconfig = grant(cluster, (*RULES, *config_map_rules(*MEMORY)))
    (tmp_path / "policy.yaml").write_text(NO_WAIT)
    flags = (
        f"--policy={tmp_path / 'policy.yaml'}",
        f"--memory={'/'.join(MEMORY)}",
        f"--kubeconfig={kubeconfig}",
        "--output=json",
    )
    done = first.run("run", "--yes", *flags)
    assert len(done.evicted) == 1, done.err
    drift_again(cluster)

    # What it would have written after a strike: the record is its own, the end of the cool-down ours.
    said = memory_of(cluster)
    for owner in said["owners"].values():
        for term in owner["terms"].values():
            term.update(until=int(time.time()) + 3600, strikes=1, why="landed elsewhere")
    cluster.api.patch(MEMORY_PATH, {"data": {"memory.json": json.dumps(said)}})
    cooling = second.run("run", "--yes", *flags)
    assert cooling.code == 0, cooling.err
    assert cooling.evicted == []
    reasons = {skip["message"].partition(":")[0] for skip in cooling.report["skipped"]}
    assert reasons == {"coolDown"}
    kept = memory_of(cluster)
    assert set(kept["owners"]) == set(said["owners"])
    assert kept["evictions"] == said["evictions"]


@upgraded_and_rarely_rolled_back
def test_a_drain_is_ended_and_taken_back(cluster, first, second):
    two_generations(cluster)
    access_ = f"--kubeconfig={grant(cluster, RULES)}"
    order = ("drain", OLD[0], access_, "--exclude-from-load-balancers", "--timeout=200s")

    def has_begun() -> bool:
        return "rebalancer/drain" in annotations_of(cluster, OLD[0])

    first.kill_when(has_begun, *order)
    done = second.run(*order)
    assert done.code == 0, done.err + done.out
    node = cluster.api.get(f"/api/v1/nodes/{OLD[0]}")
    assert node["spec"]["unschedulable"]
    assert not [p for p in operations.pods(cluster.api) if p["spec"].get("nodeName") == OLD[0]]
    # The one that began it opens the node, and nothing is left.
    done = first.run("uncordon", OLD[0], access_)
    assert done.code == 0, done.err + done.out
    node = cluster.api.get(f"/api/v1/nodes/{OLD[0]}")
    assert not node["spec"].get("unschedulable")
    assert not is_labelled(cluster, OLD[0])
    assert "rebalancer/drain" not in annotations_of(cluster, OLD[0])


@both_ways
def test_a_replacement_goes_on_node_after_node(cluster, first, second):
    two_generations(cluster)
    remove = f"{binary('kubectl')} --kubeconfig={cluster.kubeconfig} delete node"
    flags = ("--selector=generation=old", "--pause=0s", "--timeout=300s", f"--then={remove}")
    arguments = ("replace", *flags, f"--kubeconfig={grant(cluster, RULES)}")

    def is_begun() -> bool:
        # The version before wrote the stage of a replacement apart.
        written = {"rebalancer/replace", "rebalancer/drain"}
        every = cluster.api.get("/api/v1/nodes")["items"]
        old = (node for node in every if node["metadata"]["name"] in OLD)
        return any(written & (node["metadata"].get("annotations") or {}).keys() for node in old)

    first.kill_when(is_begun, *arguments)
    done = second.run(*arguments)
    assert done.code == 0, done.err + done.out
    assert names_of_nodes(cluster) == set(NEW)
    operations.wait_pods_ready(cluster.api, REPLICAS, 60)


@upgraded_and_rarely_rolled_back
def test_a_wave_that_was_cut_off_is_waited_for_and_gone_on_with(cluster, tmp_path, first, second):
    apps = 3
    crowd.gather(cluster, apps)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    cluster.apply([{**lease, "metadata": {"name": "turns", "namespace": "default"}}])
    kubeconfig = grant(cluster, (*RULES, *lease_rules("default", "turns")))
    policy = tmp_path / "policy.json"
    policy.write_text(
        json.dumps(
            {
                "apiVersion": "rebalancer/v1",
                "kind": "Policy",
                "protect": {"minPodAge": "0s"},
                "strategies": {"topology-spread": {}, "anti-affinity": {"preferred": True}},
                **crowd.SLOWLY,
            }
        )
    )
    flags = (f"--policy={policy}", f"--kubeconfig={kubeconfig}", "--lease=default/turns")
    first.kill_when(lambda: crowd.moved(cluster), "run", "--yes", *flags)
    crowd.settle(cluster, apps)
    # The dead run holds the Lease, and the other version says who.
    held = second.run("run", "--yes", *flags, "--output=json")
    assert held.code == 0, held.err
    assert held.report["heldBy"] is not None
    cluster.api.patch(
        LEASE, {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1}}
    )
    with crowd.BudgetWatcher(cluster) as budgets:
        done = second.run("run", "--yes", *flags, "--output=json")
    assert done.code == 0, done.err
    assert len(done.evicted) == apps - 1
    assert crowd.moved(cluster) == apps
    assert budgets.broken == []


@pytest.mark.parametrize("program", ["helm", pytest.param("helm3", marks=pytest.mark.long)])
def test_the_chart_is_upgraded_and_rolled_back(cluster, program):
    cluster.apply([objects.namespace(NAMESPACE)])
    release = Release(cluster.kubeconfig, NAMESPACE, program=program)
    release.install(ENFORCING, chart=before() / "chart")
    wait_until(lambda: may_write(cluster.api) == [True, True], 30, "the rights in force")
    kept = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{ACCOUNT}-memory"
    cluster.api.patch(kept, {"data": {"memory.json": '{"version":1}'}})

    release.upgrade({}, "--reset-then-reuse-values", chart=CHART)
    assert may_write(cluster.api) == [True, True]
    assert cluster.api.get(kept)["data"] == {"memory.json": '{"version":1}'}
    release.rollback(1)
    assert cluster.api.get(kept)["data"] == {"memory.json": '{"version":1}'}
    release.upgrade({"mode": "observe"}, "--reset-then-reuse-values", chart=CHART)
    wait_until(lambda: may_write(cluster.api) == [False, False], 30, "no right to write")
    release.uninstall()
    wait_until(lambda: not objects_of_the_release(cluster.api), 30, "nothing of the release left")
    assert access.is_known(cluster.api)
