"""Conditions of nodes are true of an interruption, whenever `serve` is killed and another process goes on.

A process dies when the API server has carried out one of its writes to a node, and does not know of it. Each kind of write is a point
once; the next process has another name.
"""

import contextlib
import json
import time

import pytest
import yaml

from rebalancer.kube.access import CONDITION_RULES, MARK_RULES, config_map_rules
from rebalancer.signals.state import STATE
from rebalancer.wire.times import rfc3339
from tests.controlplane import objects, operations, wait_until
from tests.e2e.product import RUN_RULES, Product, grant
from tests.e2e.served import PATIENT, Server
from tests.e2e.test_node_conditions import (
    DRAINED,
    DRAINING,
    MAINTAINED,
    PLANNED,
    WEB,
    conditions,
    said,
    true,
)
from tests.e2e.test_people_on_nodes import (  # noqa: F401  # fixtures
    BASE,
    NODE,
    NOTICE,
    held,
    kubectl,
    node,
)
from tests.e2e.watched import watched
from tests.support.killed_processes import Kills, describe_node_patch, seen_by

RULES = (*RUN_RULES, *MARK_RULES, *CONDITION_RULES, *config_map_rules("default", "kept"))
POLICY = BASE | {
    "nodeConditions": True,
    "strategies": {"leaving": {}},
    "signals": {"kubernetes": {}},
    # As long as so many processes need to begin.
    "interruption": {"withoutDeadline": "1h", "steps": ["cordon", "leave"]},
}
OURS = "RebalancerInterruption"
THEIRS = {
    "type": MAINTAINED,
    "status": "False",
    "reason": "NodeMaintenance",
    "message": "not yet",
    "lastHeartbeatTime": "2026-01-01T00:00:00Z",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


class Killed:
    """Servers one after the other: each is killed at the next write to a node that none was killed at."""

    def __init__(self, cluster, folder):
        self._cluster, self._folder = cluster, folder
        self.product = Product(cluster, folder, yaml.safe_dump(POLICY))
        cluster.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}])
        self.kills = Kills()
        self._number = 0

    @contextlib.contextmanager
    def between(self):
        def seen(request):
            if (patch := describe_node_patch(request)) is not None:
                self.kills.at(f"{patch[1]}{_steps(request)}")

        path = grant(self._cluster, RULES)
        with seen_by(self._cluster, path, seen) as self.product.kubeconfig:
            yield self

    def until(self, over, *, kills=True):
        """Start server after server until ``over``."""
        while not over():
            self._number += 1
            name, state = f"serve-{self._number}", "--machine-state=default/kept"
            server = Server(self.product, self._folder, name, "--every=1h", state)
            if kills:
                self.kills.aim(server.process)
            try:
                wait_until(lambda: server.process.poll() is not None or over(), PATIENT, "a kill")  # noqa: B023
            finally:
                server.end()


def _steps(request):
    """How far the steps are, as the record says that is written."""
    text = (json.loads(request.body)["metadata"].get("annotations") or {}).get(STATE)
    if not text:
        return ""
    state = json.loads(text)
    steps = [f"{name} {step['status']}" for name, step in state.get("steps", {}).items()]
    return f" {steps[-1] if steps else 'begun'}{' ended' if state.get('ended') else ''}"


@pytest.fixture
def killed(cluster, tmp_path):
    with Killed(cluster, tmp_path).between() as made:
        yield made


def announce(cluster, **more):
    notice = json.dumps({"id": "spot-1", "kind": "spot", **more})
    cluster.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {NOTICE: notice}}})


def test_killed_after_each_write_a_node_whose_machine_goes_says_so(cluster, killed):
    cluster.apply([objects.node(NODE)])
    operations.wait_nodes_ready(cluster.api, 1)
    cluster.apply([objects.deployment("web", 2, labels=WEB)])
    cluster.apply([objects.pdb("web", WEB, maxUnavailable=1)])
    operations.wait_pods_ready(cluster.api, 2)
    cluster.apply([objects.node("n-1")])
    operations.wait_nodes_ready(cluster.api, 2)
    over = true(OURS, DRAINED, MAINTAINED)
    with watched(cluster) as seen:
        announce(cluster)
        killed.until(lambda: said(cluster) == over)
    written = " ".join(killed.kills.points)
    assert all(f"{one} True" in written for one in (PLANNED, DRAINING, DRAINED, MAINTAINED)), (
        written
    )
    assert seen.untrue == []
    assert min(seen.pods) >= 1
    assert said(cluster, "n-1") == {}


@pytest.mark.long
def test_killed_after_each_write_what_was_said_is_taken_back_with_the_announcement(
    held,  # noqa: F811
    killed,
):
    """Work holds the node; a condition of another component is on it, and stays as it is."""
    status = {"status": {"conditions": [THEIRS]}}
    held.api.patch(f"/api/v1/nodes/{NODE}/status", status, "strategic")
    announce(held, deadline=rfc3339(time.time() + 3000))
    with watched(held) as seen:
        standing = true(OURS, PLANNED, DRAINING) | {MAINTAINED: ("False", "NodeMaintenance")}
        killed.until(lambda: said(held) == standing, kills=False)
        held.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {NOTICE: None}}})
        left = {MAINTAINED: ("False", "NodeMaintenance")}
        killed.until(lambda: said(held) == left and node(held) == (False, set()))
    assert f"{PLANNED} delete" in " ".join(killed.kills.points), killed.kills.points
    assert conditions(held)[MAINTAINED] == THEIRS
    assert seen.untrue == []
