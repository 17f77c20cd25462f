"""A cluster to ask questions of, whichever kind it is."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.controlplane import ApiClient, objects, operations, stages, wait_until

LABELS = {"app": "web"}
UNENDING = {stages.NEVER_ENDS: "true"}
"""Annotations of a pod that goes on terminating until `Ground.let_end`, so that it can be looked at."""
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"

Json = dict[str, Any]


@dataclass(frozen=True)
class Ground:
    """One cluster, empty at the beginning of each test."""

    api: ApiClient
    stranger: ApiClient
    """A client without a token."""
    kubeconfig: str
    """Of an administrator, for the command under test."""

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Create objects, or change them."""
        for manifest in manifests:
            self.api.apply(manifest)

    def nodes(self, *zones: str) -> None:
        """Add one node per zone, and wait until pods may go there."""
        self.apply(*(objects.node(f"node-{zone}", zone=zone) for zone in zones))
        operations.wait_nodes_ready(self.api, len(zones))

    def web(self, replicas: int = 3, **spec: Any) -> list[str]:
        """Run a Deployment of so many Ready replicas, and return the names of its pods."""
        self.apply(objects.deployment("web", replicas, **spec))
        operations.wait_pods_ready(self.api, replicas, selector="app=web")
        return self.names()

    def names(self) -> list[str]:
        """Return the names of all pods that are not terminating, in order."""
        pods = operations.pods(self.api, "default")
        return [p["metadata"]["name"] for p in pods if "deletionTimestamp" not in p["metadata"]]

    def pod(self, name: str) -> Json:
        """Return a pod."""
        return dict(self.api.get(f"{PODS}/{name}"))

    def budget(self, name: str = "web", **spec: Any) -> Json:
        """Apply a PodDisruptionBudget over the web pods, and return it once its controller has looked."""
        self.apply(objects.pdb(name, LABELS, **spec))
        return self.settled_budget(name)

    def settled_budget(self, name: str = "web") -> Json:
        """Return a budget once its status is of its newest generation and its pods are all counted."""
        expected = len(operations.pods(self.api, "default", "app=web"))

        def settled() -> Json | None:
            budget = dict(self.api.get(f"{BUDGETS}/{name}"))
            status = budget.get("status", {})
            seen = status.get("observedGeneration") == budget["metadata"]["generation"]
            return budget if seen and status.get("currentHealthy", 0) >= expected else None

        return wait_until(settled, 10, f"budget {name} observed") or {}

    def evict(self, name: str, **options: Any) -> Any:
        """Evict a pod; keyword arguments are DeleteOptions."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": "default"},
            **({"deleteOptions": options} if options else {}),
        }
        return self.api.post(f"{PODS}/{name}/eviction", eviction)

    def let_end(self, name: str) -> None:
        """Let a pod end that was set never to, and wait until it is gone."""
        self.api.patch(f"{PODS}/{name}", {"metadata": {"annotations": {stages.NEVER_ENDS: None}}})
        self.wait(lambda: self.api.find(f"{PODS}/{name}") is None, f"pod {name} gone")

    def wait(self, predicate: Callable[[], Any], what: str, timeout: float = 60.0) -> Any:
        """Wait until a predicate holds, and return what it returned."""
        return wait_until(predicate, timeout, what)


def version(obj: Mapping[str, Any]) -> int:
    """Return an object's or a list's resourceVersion as the number that it is on both grounds."""
    return int(obj["metadata"]["resourceVersion"])


def names_of(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return names in the order given."""
    return [str(item["metadata"]["name"]) for item in items]


def condition(obj: Mapping[str, Any], kind: str) -> Json:
    """Return a condition of an object, empty if there is none."""
    for entry in obj.get("status", {}).get("conditions", ()):
        if entry["type"] == kind:
            return dict(entry)
    return {}
