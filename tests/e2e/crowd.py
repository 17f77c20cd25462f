"""Many small applications that each want one move, so that a run takes its time; and a watcher of their budgets."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Self

from tests.controlplane import ControlPlane, objects, operations, stages, wait_until

ZONES = ("a", "b", "c")
LAST = "crowd-c"
_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
_BUDGETS_HERE = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SLOWLY = {
    "budgets": {"inFlight": 1, "perRun": 1000, "perHour": 1000, "perNode": 1000},
    "safety": {"maxPendingPods": 100},
}
"""Keys of a policy: one move after the other, as many as there are."""


def gather(plane: ControlPlane, apps: int, ready_after: str = "500ms") -> None:
    """Let each app stand 2/1 in two zones, with a budget that allows one; then the third zone joins."""
    plane.apply([node(zone) for zone in ZONES[:2]])
    # There may be others: without the second of ours, an app would stand in the first zone only.
    present = len(plane.api.list_all("/api/v1/nodes"))
    operations.wait_nodes_ready(plane.api, present)
    for name in (f"app-{i:02d}" for i in range(apps)):
        labels = {"app": name, "crowd": "yes"}
        affinity = objects.prefer_apart({"app": name}, objects.ZONE)
        slow = {stages.READY_AFTER: ready_after}
        made = objects.deployment(name, 3, labels=labels, pod_annotations=slow, affinity=affinity)
        plane.apply([made, _budget(name)])
    operations.wait_pods_ready(plane.api, 3 * apps, 60, selector="crowd=yes")
    plane.apply([node(ZONES[2])])
    operations.wait_nodes_ready(plane.api, present + 1)
    wait_budgets(plane)


def node(zone: str) -> dict[str, Any]:
    """Return a node with room for any crowd."""
    return objects.node(f"crowd-{zone}", zone=f"zone-{zone}", cpu="64", memory="256Gi", pods=500)


def _budget(name: str) -> dict[str, Any]:
    return objects.pdb(name, {"app": name}, minAvailable=2)


def wait_budgets(plane: ControlPlane, seconds: float = 30) -> None:
    """Wait until the controller has counted all replicas for all budgets."""

    def counted() -> bool:
        budgets = plane.api.list_all(_BUDGETS)
        return all(budget.get("status", {}).get("disruptionsAllowed") == 1 for budget in budgets)

    wait_until(counted, seconds, "every budget allows one disruption")


def settle(plane: ControlPlane, apps: int) -> None:
    """Wait until nothing is on its way any more: all replicas stand, no pod terminates, all budgets are whole."""
    wait_until(lambda: not plane.abandoned(), 60, "what dead clients had asked for done")

    operations.wait_pods_ready(plane.api, 3 * apps, 60, selector="crowd=yes")
    # The server spends a budget before it deletes the pod. Where its client dies in between, the disruption
    # controller gives the budget back after two minutes (its DeletionTimeout); so much time passes here.
    for budget in plane.api.list_all(_BUDGETS):
        if budget["status"].get("disruptedPods"):
            path = f"{_BUDGETS_HERE}/{budget['metadata']['name']}/status"
            plane.api.patch(path, {"status": {"disruptedPods": None}})
    wait_budgets(plane)


@contextlib.contextmanager
def standing_still(plane: ControlPlane) -> Iterator[None]:
    """No kubelet does anything meanwhile: a run gets as far as its first wave, whose replacements never are Ready."""
    plane.stop("kwok")
    try:
        yield
    finally:
        plane.start("kwok")


def pods(plane: ControlPlane) -> dict[str, dict[str, Any]]:
    """Return the crowd's pods that do not terminate, by uid."""
    listed = operations.pods(plane.api, "default", "crowd=yes")
    return {
        pod["metadata"]["uid"]: pod for pod in listed if "deletionTimestamp" not in pod["metadata"]
    }


def moved(plane: ControlPlane) -> int:
    """Return how many pods stand in the third zone."""
    return sum(pod["spec"].get("nodeName") == LAST for pod in pods(plane).values())


class BudgetWatcher:
    """Samples all budgets while it is open; ``broken`` lists every sample with too few healthy pods."""

    def __init__(self, plane: ControlPlane) -> None:
        self.broken: list[str] = []
        self.samples = 0
        self._api = plane.api
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(30)

    def _watch(self) -> None:
        while not self._end.wait(0.1):
            # While the server is down there is nothing to see.
            with contextlib.suppress(Exception):
                for budget in self._api.list_all(_BUDGETS):
                    status = budget["status"]
                    if status["currentHealthy"] < status["desiredHealthy"]:
                        self.broken.append(f"{budget['metadata']['name']}: {status}")
                self.samples += 1
