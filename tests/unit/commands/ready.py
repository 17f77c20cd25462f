"""Which pods of an embedded cluster are Ready, change by change."""

from typing import Any

from rebalancer.embedded.apiserver.kinds import is_ready
from rebalancer.embedded.apiserver.store import Change
from rebalancer.embedded.controllers.nodes import NEVER_READY
from rebalancer.testing.objects import EmbeddedCluster


class ReadyPods:
    """Keeps the least number of Ready pods of each app, by every change that the cluster makes from now on."""

    def __init__(self, cluster: EmbeddedCluster, *apps: str) -> None:
        self._ready: dict[str, set[str]] = {app: set() for app in apps}
        for pod in cluster.objects("Pod"):
            self._take(pod, gone=False)
        self.least = {app: len(pods) for app, pods in self._ready.items()}
        assert all(self.least.values())
        cluster.store.listeners.append(self._observe)

    def _observe(self, change: Change) -> None:
        if change.kind.kind == "Pod":
            self._take(change.object, gone=change.new is None)
            self.least = {
                app: min(least, len(self._ready[app])) for app, least in self.least.items()
            }

    def _take(self, pod: dict[str, Any], *, gone: bool) -> None:
        meta = pod["metadata"]
        ready = self._ready.get(meta.get("labels", {}).get("app"))
        if ready is None:
            return
        if not gone and is_ready(pod) and "deletionTimestamp" not in meta:
            ready.add(meta["uid"])
        else:
            ready.discard(meta["uid"])


def let_be_ready(cluster: EmbeddedCluster, name: str) -> None:
    """Let a pod be Ready whose template says that it never is."""
    meta = {"name": name, "annotations": {NEVER_READY: None}}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta})
    cluster.settle()
