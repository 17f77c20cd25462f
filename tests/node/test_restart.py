"""Pods that an eviction may not take move to a real kubelet and away from it: their Service never is without an endpoint."""

import threading
import time
from typing import Any, Self

import pytest

from rebalancer.kube.access import DRAIN_RULES
from rebalancer.kube.evict import RESTART_RULES
from tests.controlplane import ApiError, objects, operations, wait_until
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.node import images
from tests.node.ground import Ground
from tests.node.node import NAME

DRAINS = (*RUN_RULES, *DRAIN_RULES, *RESTART_RULES)
NEVER = "0 0 29 2 *"
SIMULATED = "simulated-a"
POLICY = {"protect": {"minPodAge": "0s"}, "method": {"singleReplicas": "restart"}}
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
WEB = "kubernetes.io%2Fservice-name%3Dweb"
PODS = "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb"
PAUSE = 0.05
"""Seconds between two questions: about twenty in a second."""


class Endpoints:
    """Asks for the ready endpoints of a Service and its Ready pods, again and again."""

    def __init__(self, ground: Ground) -> None:
        self._api = ground.api
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._end = threading.Event()
        self.samples: list[tuple[int, int]] = []
        self.failed: ApiError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(30)

    def _ask(self) -> None:
        try:
            while not self._end.wait(PAUSE):
                self.samples.append((self._endpoints(), self._pods()))
        except ApiError as error:
            self.failed = error

    def _endpoints(self) -> int:
        slices = self._api.list_all(f"{SLICES}?labelSelector={WEB}")
        ready = [one for part in slices for one in part["endpoints"] or () if is_ready(one)]
        return len(ready)

    def _pods(self) -> int:
        return sum(map(operations.is_ready, operations.pods(self._api, selector="app=web")))


def is_ready(endpoint: dict[str, dict[str, bool]]) -> bool:
    return endpoint["conditions"].get("ready") is True


def most_at_once(ground: Ground, before: dict[str, Any]) -> int:
    """Return how many pods were Ready at once since they were listed as ``before``, by each change that etcd has made since."""
    ready = {pod["metadata"]["uid"] for pod in before["items"] if operations.is_ready(pod)}
    most = len(ready)
    version = before["metadata"]["resourceVersion"]
    for event in ground.api.watch(f"{PODS}&resourceVersion={version}", 1):
        pod = event["object"]
        if event["type"] != "DELETED" and operations.is_ready(pod):
            ready.add(pod["metadata"]["uid"])
        else:
            ready.discard(pod["metadata"]["uid"])
        most = max(most, len(ready))
    return most


def name_pool(ground: Ground, node: str, other: str) -> None:
    """Let one node be of the pool, and the other of none."""
    take_into_pool(ground, node)
    take_into_pool(ground, other, None)


def take_into_pool(ground: Ground, node: str, pool: str | None = "web") -> None:
    ground.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"pool": pool}}})


@pytest.fixture
def single(ground):
    """One replica on a simulated node, behind a Service."""
    ground.keep_others_away()
    ground.add_node("a")
    operations.wait_nodes_ready(ground.api, 2)
    name_pool(ground, SIMULATED, NAME)
    serve_web(ground)
    yield ground
    ground.api.delete("/api/v1/namespaces/default/services/web")
    ground.clear()


def serve_web(ground: Ground, replicas: int = 1) -> None:
    """Run so many replicas in the pool, behind a Service."""
    web = objects.deployment(
        "web",
        replicas,
        image=images.PAUSE,
        nodeSelector={"pool": "web"},
        tolerations=[{"key": "rebalancer.test/real", "operator": "Exists"}],
        hostNetwork=True,
    )
    ground.plane.apply([web, objects.service("web", {"app": "web"})])
    operations.wait_pods_ready(ground.api, replicas, 60, selector="app=web")


@pytest.fixture(params=[1])
def full(ground, request):
    """Replicas on the real node, under a budget that never lets one go; a simulated node may take them, too."""
    ground.keep_others_away()
    take_into_pool(ground, NAME)
    serve_web(ground, request.param)
    ground.plane.apply([objects.pdb("web", {"app": "web"}, minAvailable=request.param)])
    ground.add_node("a")
    operations.wait_nodes_ready(ground.api, 2)
    take_into_pool(ground, SIMULATED)
    yield ground
    operations.cordon(ground.api, [NAME], on=False)
    ground.api.delete("/api/v1/namespaces/default/services/web")
    ground.clear()


def test_its_service_has_an_endpoint_all_the_while(single):
    single.release().install(single.values(schedule=NEVER, policy=POLICY))
    with Endpoints(single) as asked:
        wait_until(lambda: asked.samples and asked.samples[-1] == (1, 1), 30, "the endpoint")
        asked.samples.clear()
        started = time.monotonic()
        for there, back in ((NAME, SIMULATED), (SIMULATED, NAME)):
            name_pool(single, there, back)
            before = single.api.get(PODS)
            single.start_job(f"to-{there}")
            pod = single.wait_finished(f"to-{there}", 180)
            log = single.log(pod)
            assert pod["status"]["phase"] == "Succeeded", log
            assert dict(single.zones("web")) == {there: 1}, log
            # The new one is Ready before the old one goes.
            assert most_at_once(single, before) == 2
        seconds = time.monotonic() - started
    assert asked.failed is None
    assert min(asked.samples) >= (1, 1)
    assert min(pods for _, pods in asked.samples) >= 1
    assert len(asked.samples) > 5 * seconds


def test_it_has_an_endpoint_while_its_node_is_drained(full):
    assert dict(full.zones("web")) == {NAME: 1}
    kubeconfig = f"--kubeconfig={grant(full.plane, DRAINS)}"
    with Endpoints(full) as asked:
        wait_until(lambda: asked.samples and asked.samples[-1] == (1, 1), 30, "the endpoint")
        asked.samples.clear()
        before = full.api.get(PODS)
        # The budget never lets its only pod go.
        refused = rebalancer("drain", NAME, kubeconfig)
        assert refused.code == 3, refused.err
        restart = "--set=method.singleReplicas=restart"
        done = rebalancer("drain", NAME, kubeconfig, restart, "--timeout=180s")
        assert done.code == 0, done.err
        assert dict(full.zones("web")) == {SIMULATED: 1}
        assert most_at_once(full, before) == 2
    assert asked.failed is None
    assert min(asked.samples) >= (1, 1)
    assert min(pods for _, pods in asked.samples) >= 1


@pytest.mark.parametrize("full", [3], indirect=True)
def test_three_replicas_that_no_eviction_takes_all_serve_while_their_node_is_drained(full):
    assert dict(full.zones("web")) == {NAME: 3}
    kubeconfig = f"--kubeconfig={grant(full.plane, DRAINS)}"
    with Endpoints(full) as asked:
        wait_until(lambda: asked.samples and asked.samples[-1][1] == 3, 30, "the endpoints")
        asked.samples.clear()
        before = full.api.get(PODS)
        refused = rebalancer("drain", NAME, kubeconfig, "--set=method.singleReplicas=restart")
        assert refused.code == 3, refused.err
        restart = "--set=method.unevictable=restart"
        done = rebalancer("drain", NAME, kubeconfig, restart, "--timeout=180s")
        assert done.code == 0, done.err
        assert dict(full.zones("web")) == {SIMULATED: 3}
        assert most_at_once(full, before) == 4
    assert asked.failed is None
    # Pods in the host's network share its address, and so an endpoint.
    assert min(endpoints for endpoints, _ in asked.samples) >= 1
    assert min(pods for _, pods in asked.samples) >= 3
