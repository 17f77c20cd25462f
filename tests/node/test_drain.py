"""A node with a real kubelet is drained: its pods end there, the budget holds all the while, and it can be used again."""

import subprocess
from typing import Any

import pytest
import yaml

from rebalancer.kube.access import CONDITION_RULES, DRAIN_RULES
from tests.controlplane import objects, operations, wait_until
from tests.controlplane.build import binary
from tests.e2e.crowd import BudgetWatcher
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.node import images
from tests.node.ground import Ground
from tests.node.node import NAME

RULES = (*RUN_RULES, *DRAIN_RULES)
REPLICAS, LEAST = 3, 2
POLICY: dict[str, Any] = {
    "apiVersion": "rebalancer/v1",
    "kind": "Policy",
    "nodeConditions": True,
    "strategies": {"leaving": {}},
}


@pytest.fixture
def full(ground):
    """All replicas run on the real node, under a budget; two simulated nodes have room for them."""
    ground.keep_others_away()
    web = objects.deployment(
        "web",
        REPLICAS,
        image=images.PAUSE,
        tolerations=[{"key": "rebalancer.test/real", "operator": "Exists"}],
        hostNetwork=True,
    )
    ground.plane.apply([web, objects.pdb("web", {"app": "web"}, minAvailable=LEAST)])
    operations.wait_pods_ready(ground.api, REPLICAS, 120, selector="app=web")
    for zone in ("a", "b"):
        ground.add_node(zone)
    operations.wait_nodes_ready(ground.api, 3)
    yield ground
    operations.cordon(ground.api, [NAME], on=False)
    ground.clear()


def test_its_pods_run_elsewhere_and_it_takes_pods_again_once_uncordoned(full):
    assert dict(full.zones("web")) == {NAME: REPLICAS}
    victims = {pod["metadata"]["uid"] for pod in operations.pods(full.api, selector="app=web")}
    kubeconfig = f"--kubeconfig={grant(full.plane, RULES)}"
    with BudgetWatcher(full.plane) as watcher:
        done = rebalancer("drain", NAME, kubeconfig)
        assert done.code == 0, done.err
        # The kubelet takes a pod away once its containers have ended: none is left when the drain says so.
        left = {pod["metadata"]["uid"] for pod in operations.pods(full.api, selector="app=web")}
        assert not victims & left
        operations.wait_pods_ready(full.api, REPLICAS, 120, selector="app=web")
    assert watcher.samples > 0
    assert watcher.broken == []
    assert full.zones("web")[NAME] == 0
    node = full.api.get(f"/api/v1/nodes/{NAME}")
    assert node["spec"]["unschedulable"] is True

    subprocess.run(
        [str(binary("kubectl")), f"--kubeconfig={full.plane.kubeconfig}", "uncordon", NAME],
        check=True,
        timeout=300,
    )
    back = objects.deployment(
        "back",
        1,
        image=images.PAUSE,
        nodeSelector={objects.HOSTNAME: NAME},
        tolerations=[{"key": "rebalancer.test/real", "operator": "Exists"}],
        hostNetwork=True,
    )
    full.plane.apply([back])
    wait_until(lambda: dict(full.zones("back")) == {NAME: 1}, 120, "a pod on the node again")
    operations.wait_pods_ready(full.api, 1, 120, selector="app=back")


def _conditions(ground: Ground) -> dict[str, dict[str, Any]]:
    every = ground.api.get(f"/api/v1/nodes/{NAME}")["status"]["conditions"]
    return {one["type"]: one for one in every}


def _said(ground: Ground) -> dict[str, tuple[str, str]]:
    """Return type -> (status, reason), of those that are not the kubelet's."""
    every = _conditions(ground).items()
    return {
        key: (one["status"], one["reason"])
        for key, one in every
        if one["reason"].startswith("Rebalancer")
    }


def _await_kubelet(ground: Ground) -> None:
    """Wait until the kubelet has written its conditions twice from now on."""
    for _ in range(2):
        before = _conditions(ground)["Ready"]["lastHeartbeatTime"]
        wait_until(
            lambda: _conditions(ground)["Ready"]["lastHeartbeatTime"] != before,  # noqa: B023
            120,
            "the kubelet writes its conditions",
        )


def test_the_kubelet_keeps_what_a_drain_says_on_its_node_and_what_is_taken_back_stays_away(
    full, tmp_path
):
    of_kubelet = {key: one["status"] for key, one in _conditions(full).items()}
    kubeconfig = f"--kubeconfig={grant(full.plane, (*RULES, *CONDITION_RULES))}"
    done = rebalancer("drain", NAME, "--node-conditions", kubeconfig)
    assert done.code == 0, done.err
    drained = {"Drained": ("True", "RebalancerDrain")}
    assert _said(full) == drained
    at = _conditions(full)["Drained"]
    _await_kubelet(full)
    assert _conditions(full)["Drained"] == at
    every = {key: one["status"] for key, one in _conditions(full).items()}
    assert every == {**of_kubelet, "Drained": "True"}

    operations.cordon(full.api, [NAME], on=False)
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(POLICY))
    ran = rebalancer("run", "--yes", f"--policy={policy}", kubeconfig)
    assert ran.code == 0, ran.err
    assert _said(full) == {}
    _await_kubelet(full)
    assert {key: one["status"] for key, one in _conditions(full).items()} == of_kubelet
