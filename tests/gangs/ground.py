"""LeaderWorkerSets and JobSets on the control plane, and what their tests ask about them."""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tests.controlplane import ApiError, ControlPlane, objects, operations, wait_until
from tests.controlplane.stages import COMPLETE_AFTER

NAMESPACE = "default"
_LWS = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{NAMESPACE}/leaderworkersets"
_JOB_SETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_PATIENT = 60.0


def lws(
    name: str,
    size: int,
    *,
    cpu: str,
    replicas: int = 1,
    restarts: str = "RecreateGroupOnPodRestart",
    startup: str = "LeaderCreated",
    topology: str | None = None,
) -> dict[str, Any]:
    """Return a LeaderWorkerSet of groups of ``size`` pods; ``topology``: of which a group has a domain to itself."""
    template = objects.template({"app": name}, cpu=cpu)
    key = "leaderworkerset.sigs.k8s.io/exclusive-topology"
    annotations = {key: topology} if topology else {}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "replicas": replicas,
            "startupPolicy": startup,
            "leaderWorkerTemplate": {
                "size": size,
                "restartPolicy": restarts,
                "workerTemplate": template,
            },
        },
    }


def job_set(
    name: str,
    jobs: Mapping[str, int],
    *,
    cpu: str,
    job: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a JobSet with a Job of so many pods for each of ``jobs``; ``job``: more fields of the Jobs."""
    template = objects.template({"app": name}, cpu=cpu)
    template["metadata"].setdefault("annotations", {})[COMPLETE_AFTER] = "1h"
    template["spec"]["restartPolicy"] = "Never"

    def of(size: int) -> dict[str, Any]:
        more = {"parallelism": size, "completions": size, **(job or {})}
        return {"spec": {"template": template, **more}}

    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicatedJobs": [
                {"name": one, "replicas": 1, "template": of(size)} for one, size in jobs.items()
            ],
            **spec,
        },
    }


@dataclass
class Ground:
    """The control plane with both controllers."""

    plane: ControlPlane

    def clear(self) -> None:
        """Take everything of a test away, and wait until it is."""
        api = self.plane.api
        for path in (_LWS, _JOB_SETS):
            for one in api.list_all(path):
                with contextlib.suppress(ApiError):
                    api.delete(
                        f"{path}/{one['metadata']['name']}", {"propagationPolicy": "Background"}
                    )
        for path in (f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", _JOBS):
            for one in api.list_all(path):
                with contextlib.suppress(ApiError):
                    api.delete(
                        f"{path}/{one['metadata']['name']}", {"propagationPolicy": "Background"}
                    )
        budgets = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
        for path in (budgets, "/api/v1/nodes"):
            for one in api.list_all(path):
                api.delete(f"{path}/{one['metadata']['name']}")
        wait_until(self._is_clear, 120, "no pod and no node is left")

    def _is_clear(self) -> bool:
        api = self.plane.api
        for pod in operations.pods(api):
            # A node that is gone ends none of its pods.
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
            with contextlib.suppress(ApiError):
                api.patch(path, {"metadata": {"finalizers": None}})
                api.delete(path, {"gracePeriodSeconds": 0})
        return not operations.pods(api) and not api.list_all("/api/v1/nodes")

    def nodes(
        self, names: Sequence[str], *, cpu: str = "8", labels: Mapping[str, str] | None = None
    ) -> None:
        """Make nodes, and wait until they are Ready."""
        self.plane.apply([objects.node(name, cpu=cpu, labels=dict(labels or {})) for name in names])
        operations.wait_nodes_ready(self.plane.api, len(self.plane.api.list_all("/api/v1/nodes")))

    def make(self, manifest: dict[str, Any], pods: int) -> None:
        """Make an object, and wait until so many of its pods are Ready."""
        self.plane.apply([manifest])
        self.settle(manifest["metadata"]["name"], pods)

    def settle(self, app: str, pods: int) -> None:
        """Wait until exactly so many pods of ``app`` are there, and all of them Ready."""
        operations.wait_pods_ready(
            self.plane.api, pods, _PATIENT, namespace=NAMESPACE, selector=f"app={app}"
        )

    def where(self, app: str) -> dict[str, str]:
        """Pod -> its node, of the pods of ``app``."""
        pods = operations.pods(self.plane.api, NAMESPACE, f"app={app}")
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}

    def await_unschedulable(self, name: str) -> None:
        """Wait until the scheduler has said of a pod whose name begins so that no node takes it."""

        def refused() -> bool:
            pods = operations.pods(self.plane.api, NAMESPACE)
            return any(
                pod["metadata"]["name"].startswith(name)
                and condition.get("reason") == "Unschedulable"
                for pod in pods
                for condition in pod["status"].get("conditions", ())
            )

        wait_until(refused, _PATIENT, f"{name} unschedulable")

    def taint(self, node: str) -> None:
        """Give a node a taint that no pod tolerates."""
        taint = {"key": "team", "value": "other", "effect": "NoSchedule"}
        self.plane.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Name of each Job -> its status."""
        return {one["metadata"]["name"]: one["status"] for one in self.plane.api.list_all(_JOBS)}

    def terminal(self, name: str) -> str:
        """How a JobSet has ended; empty while it has not."""
        status = self.plane.api.get(f"{_JOB_SETS}/{name}").get("status", {})
        return str(status.get("terminalState") or "")


class Lives:
    """Counts, while it is open, the pods that come under each name."""

    def __init__(self, ground: Ground) -> None:
        self._api = ground.plane.client(ground.plane.admin_token)
        self._uids: dict[str, set[str]] = defaultdict(set)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        listed = self._api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")
        self._known = {pod["metadata"]["uid"] for pod in listed["items"]}
        self._version = listed["metadata"]["resourceVersion"]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(1)
        self._end.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _watch(self) -> None:
        while not self._end.is_set():
            path = f"/api/v1/namespaces/{NAMESPACE}/pods?resourceVersion={self._version}"
            with contextlib.suppress(ApiError):
                for event in self._api.watch(path, 1):
                    meta = event["object"]["metadata"]
                    self._version = meta["resourceVersion"]
                    if meta["uid"] not in self._known:
                        self._uids[meta["name"]].add(meta["uid"])

    @property
    def starts(self) -> dict[str, int]:
        """Name of a pod -> how many new pods there were under it."""
        return {name: len(uids) for name, uids in self._uids.items()}
