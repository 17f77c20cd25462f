"""PodDisruptionBudgets on a real control plane: named, kept, never breached."""

import threading
import time

from tests.controlplane import drift, objects, operations
from tests.e2e.product import Product


class Watcher:
    """Samples the Ready pods of an app while something goes on."""

    def __init__(self, plane, app):
        self._api, self._app = plane.api, app
        self._end = threading.Event()
        self.least = 10**9
        self.samples = 0
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self):
        while not self._end.is_set():
            ready = [
                p
                for p in operations.pods(self._api, selector=f"app={self._app}")
                if operations.is_ready(p)
            ]
            self.least = min(self.least, len(ready))
            self.samples += 1
            time.sleep(0.02)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


def _crowded(plane, replicas):
    """All replicas in zone a although hard spread wants them even; zones b and c joined later."""
    labels = {"app": "web"}
    plane.apply([objects.node("a-0", zone="zone-a")])
    operations.wait_nodes_ready(plane.api, 1)
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": objects.ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
    ]
    plane.apply(
        [objects.deployment("web", replicas, labels=labels, topologySpreadConstraints=spread)]
    )
    operations.wait_pods_ready(plane.api, replicas, selector="app=web")
    plane.apply([objects.node("b-0", zone="zone-b"), objects.node("c-0", zone="zone-c")])
    operations.wait_nodes_ready(plane.api, 3)


def test_a_budget_that_allows_nothing_is_named_and_kept(cluster, tmp_path):
    drift.article(cluster)
    cluster.apply([objects.pdb("keep", {"app": "nginx"}, minAvailable=3)])
    wait_for_budget(cluster, "keep", 0)
    done = Product(cluster, tmp_path).run()
    assert done.code == 0, done.err
    assert done.report["moves"] == []
    assert "default/keep" in str(done.report["skipped"])


def test_a_budget_of_one_lets_one_go_at_a_time(cluster, tmp_path):
    _crowded(cluster, 6)
    cluster.apply([objects.pdb("slow", {"app": "web"}, maxUnavailable=1)])
    wait_for_budget(cluster, "slow", 1)
    product = Product(cluster, tmp_path)
    evicted = 0
    with Watcher(cluster, "web") as seen:
        # One run, unless the budget is counted so late that it leaves the rest to the next one.
        while evicted < 4:
            done = product.run()
            assert done.code == 0, done.err
            assert done.evicted
            evicted += len(done.evicted)
    assert evicted == 4
    assert seen.samples > evicted
    assert seen.least >= 5


def test_two_budgets_on_one_pod_are_a_misconfiguration(cluster, tmp_path):
    drift.article(cluster)
    cluster.apply(
        [objects.pdb(name, {"app": "nginx"}, maxUnavailable=1) for name in ("one", "two")]
    )
    wait_for_budget(cluster, "two", 1)
    done = Product(cluster, tmp_path).run()
    assert done.code == 0, done.err
    assert done.report["moves"] == []
    assert any("default/one and default/two" in warning for warning in done.report["warnings"])


def wait_for_budget(plane, name, allowed):
    """Until the disruption controller has counted."""
    path = f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}"

    def counted():
        status = plane.api.get(path).get("status", {})
        return status.get("observedGeneration") == 1 and status.get("disruptionsAllowed") == allowed

    plane.wait_until(counted, 20, f"PodDisruptionBudget {name} at {allowed}")
