"""A resize that a real kubelet puts off is granted once a neighbour has moved: the same pod, and no restart."""

from typing import Any

import pytest

from rebalancer.kube.access import MARK_RULES, SCALE_OUT_RULES
from tests.controlplane import objects, operations, wait_until
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.node import images
from tests.node.ground import Ground
from tests.node.node import NAME

RULES = (*RUN_RULES, *MARK_RULES, *SCALE_OUT_RULES)
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
steer: marks
protect: {minPodAge: 0s}
strategies:
  make-room: {after: 1s}
"""
SMALL, GROWN = 100, 300
"""Milli-CPUs of the pod that grows."""


def add_pods(ground: Ground, app: str, replicas: int, cpu: int) -> None:
    """Add pods that need no network, and may run on the real node."""
    spec: dict[str, Any] = {
        "image": images.PAUSE,
        "tolerations": [{"key": "rebalancer.test/real", "operator": "Exists"}],
        "hostNetwork": True,
    }
    ground.plane.apply([objects.deployment(app, replicas, cpu=f"{cpu}m", **spec)])
    operations.wait_pods_ready(ground.api, replicas, 120, selector=f"app={app}")


@pytest.fixture
def full(ground):
    """The real node has 100 milli-CPUs free beside a small pod and two neighbours; a simulated one is empty."""
    ground.keep_others_away()
    cpu = ground.api.get(f"/api/v1/nodes/{NAME}")["status"]["allocatable"]["cpu"]
    total = int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1000
    add_pods(ground, "db", 1, SMALL)
    add_pods(ground, "web", 2, (total - SMALL - 100) // 2)
    ground.add_node("a")
    operations.wait_nodes_ready(ground.api, 2)
    yield ground
    ground.clear()


def find_pod(ground: Ground) -> dict[str, Any]:
    (pod,) = operations.pods(ground.api, selector="app=db")
    return pod


def find_reasons(pod: dict[str, Any]) -> list[str]:
    conditions = pod["status"].get("conditions", ())
    return [one.get("reason", "") for one in conditions if one["type"] == "PodResizePending"]


def test_it_is_granted_by_a_neighbour_s_move(full, tmp_path):
    before = find_pod(full)
    path = f"/api/v1/namespaces/default/pods/{before['metadata']['name']}"
    (container,) = before["spec"]["containers"]
    size = {"name": container["name"], "resources": {"requests": {"cpu": f"{GROWN}m"}}}
    full.api.patch(f"{path}/resize", {"spec": {"containers": [size]}}, "strategic")
    wait_until(lambda: find_reasons(find_pod(full)) == ["Deferred"], 60, "the resize is deferred")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    flags = (f"--policy={policy}", f"--kubeconfig={grant(full.plane, RULES)}", "--output=json")

    def move_one() -> bool:
        ran = rebalancer("run", "--yes", *flags)
        assert ran.code == 0, ran.err
        return [move["from"] for move in ran.evicted] == [NAME]

    wait_until(move_one, 60, "a neighbour has left")  # once it has waited for a second

    def is_granted() -> bool:
        pod = find_pod(full)
        (status,) = pod["status"]["containerStatuses"]
        return not find_reasons(pod) and status["resources"]["requests"]["cpu"] == f"{GROWN}m"

    wait_until(is_granted, 120, "the kubelet has resized it")
    after = find_pod(full)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    (was,), (now,) = (pod["status"]["containerStatuses"] for pod in (before, after))
    assert (now["containerID"], now["restartCount"]) == (was["containerID"], 0)
    assert dict(full.zones("web")) == {NAME: 1, "simulated-a": 1}
