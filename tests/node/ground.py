"""What the node tests stand on: a drifted state on simulated nodes, and the chart on the real one."""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from tests.chart.helm import Release
from tests.controlplane import ControlPlane, Options, objects, operations, wait_until
from tests.node import images
from tests.node.node import NAME, RealNode

NAMESPACE = "rebalancing"
_ROLE = "rebalancer.test/role"
_SECONDS = 60.0


@contextlib.contextmanager
def started(folder: Path, audit_policy: Mapping[str, Any] | None = None) -> Iterator["Ground"]:
    """Start a control plane and a node that holds the product's image; the sandbox's is built into ``folder``."""
    archives = [images.make_rebalancer(), images.write_pause(folder)]
    # KWOK plays the annotated nodes only; the real one is the kubelet's.
    options = Options(managed_nodes="annotated", audit_policy=audit_policy)
    with ControlPlane(options) as plane, Ground(plane) as ground:
        for archive in archives:
            ground.node.containerd.load(archive)
        ground.archive = archives[0]
        yield ground


class Ground:
    """A control plane with a real node, as a context manager."""

    archive: Path
    """Of the product's image."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.api = plane.api
        self.node = RealNode(plane, {_ROLE: "real"})
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.node)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- the chart -----------------------------------------------------------------------------------

    def necessities(self, **more: Any) -> dict[str, Any]:
        """Return the values by which the chart's pod runs on the real node, which has no pod network."""
        repository, tag = images.REBALANCER.rsplit(":", 1)
        server = urlsplit(self.plane.url)
        return {
            "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
            "nodeSelector": {_ROLE: "real"},
            "tolerations": [{"key": "rebalancer.test/real", "operator": "Exists"}],
            "hostNetwork": True,
            "extraEnv": [
                {"name": "KUBERNETES_SERVICE_HOST", "value": str(server.hostname)},
                {"name": "KUBERNETES_SERVICE_PORT", "value": str(server.port)},
            ],
            **more,
        }

    def values(self, **more: Any) -> dict[str, Any]:
        """Return these values, and such that tests need not wait: pods that were just made may move."""
        impatient = {"policy": {"protect": {"minPodAge": "0s"}}, "schedule": "* * * * *"}
        return self.necessities(**{**impatient, **more})

    def release(self) -> Release:
        """Return the release, not yet installed."""
        return Release(self.plane.kubeconfig, NAMESPACE)

    # -- the story -----------------------------------------------------------------------------------

    def keep_others_away(self) -> None:
        """Keep pods that do not tolerate it off the real node, which has no network for them."""
        taint = {"key": "rebalancer.test/real", "value": "true", "effect": "NoSchedule"}
        self.api.patch(f"/api/v1/nodes/{NAME}", {"spec": {"taints": [taint]}})

    def drift(self, replicas: int = 3, app: str = "nginx", **spec: Any) -> None:
        """Let replicas stand in two simulated zones; then a third one joins."""
        self.keep_others_away()
        for zone in ("a", "b"):
            self.add_node(zone)
        operations.wait_nodes_ready(self.api, 3)
        affinity = objects.prefer_apart({"app": app}, objects.ZONE)
        self.plane.apply([objects.deployment(app, replicas, affinity=affinity, **spec)])
        operations.wait_pods_ready(self.api, replicas, _SECONDS, selector=f"app={app}")
        self.add_node("c")
        operations.wait_nodes_ready(self.api, 4)

    def add_node(self, zone: str) -> None:
        """Add a simulated node of a zone."""
        self.plane.apply([objects.node(f"simulated-{zone}", zone=f"zone-{zone}")])

    def zones(self, app: str = "nginx") -> Counter[str]:
        """How many pods of an app stand on each node; terminating ones do not count."""
        return Counter(
            str(pod["spec"].get("nodeName"))
            for pod in operations.pods(self.api, "default", f"app={app}")
            if "deletionTimestamp" not in pod["metadata"]
        )

    def clear(self) -> None:
        """Take the release, the workloads and the simulated nodes away."""
        with contextlib.suppress(Exception):
            self.release().uninstall()
        self.api.delete("/apis/apps/v1/namespaces/default/deployments")
        self.api.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets")
        jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        self.api.delete(jobs, {"propagationPolicy": "Background"})
        wait_until(lambda: not operations.pods(self.api), _SECONDS, "all pods gone")
        for node in self.api.list_all("/api/v1/nodes"):
            if (name := node["metadata"]["name"]) != NAME:
                self.api.delete(f"/api/v1/nodes/{name}")

    # -- the runs ------------------------------------------------------------------------------------

    def run_pods(self) -> list[dict[str, Any]]:
        """Return the pods of runs, the oldest first."""
        pods = operations.pods(self.api, NAMESPACE)
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def finished(self) -> list[dict[str, Any]]:
        """Return the pods of runs that have ended."""
        ended = ("Succeeded", "Failed")
        return [pod for pod in self.run_pods() if pod["status"].get("phase") in ended]

    def log(self, pod: dict[str, Any]) -> str:
        """Return a pod's log, as ``kubectl logs`` gets it: from the kubelet, through the API server."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
        return _text(self.api.get(path))

    def following(
        self, pod: dict[str, Any]
    ) -> contextlib.AbstractContextManager[Callable[[], str]]:
        """Follow a pod's log as ``kubectl logs --follow`` does; yield what returns it when the pod has ended.

        To be entered before the end is near: the log goes with the pod.
        """
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
        return self.api.reading(f"{path}?follow=true")

    def start_job(self, name: str, spec: Mapping[str, Any] | None = None, **container: Any) -> None:
        """Start a run by hand, as ``kubectl create job --from=cronjob/NAME`` does.

        ``spec`` replaces fields of the Job's, keyword arguments those of its container.
        """
        cron_jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs"
        (cron_job,) = self.api.list_all(cron_jobs)
        template = cron_job["spec"]["jobTemplate"]
        template["spec"]["template"]["spec"]["containers"][0] |= container
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": template["metadata"].get("labels", {}),
                "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
            },
            "spec": {**template["spec"], **(spec or {})},
        }
        self.api.post(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", job)

    def pod_of(self, job: str) -> dict[str, Any] | None:
        """Return the pod of a Job, if there is one."""
        pods = operations.pods(self.api, NAMESPACE, f"batch.kubernetes.io/job-name={job}")
        return pods[0] if pods else None

    def wait_finished(self, job: str, seconds: float = _SECONDS) -> dict[str, Any]:
        """Wait until a Job's pod has ended, and return it."""

        def ended() -> dict[str, Any] | None:
            pod = self.pod_of(job)
            done = pod is not None and pod["status"].get("phase") in ("Succeeded", "Failed")
            return pod if done else None

        pod = wait_until(ended, seconds, f"the pod of {job} ended")
        assert pod is not None
        return pod


def _text(answer: Any) -> str:
    """Return a log as text: the client has decoded one that is JSON from end to end."""
    return answer if isinstance(answer, str) else json.dumps(answer)
