"""The installed chart without a real node: the CronJob's own command, run here with its ServiceAccount's token.

What would be mounted into the pod (policy) and injected (names, token) comes from the cluster's objects.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rebalancer.kube.resources import AccessRule
from tests.chart.helm import CHART, Release
from tests.controlplane import ControlPlane, access, wait_until
from tests.e2e.product import PATIENCE, Ran, as_attributes
from tests.support.cli import program

NAMESPACE = "rebalancing"
NEVER = "0 0 29 2 *"
"""A schedule that leaves the runs to the test."""
_MOUNT = "/etc/rebalancer/policy"

Manifest = dict[str, Any]


@dataclass
class Process:
    """A run under way."""

    popen: subprocess.Popen[str]

    def wait(self, timeout: float = PATIENCE) -> Ran:
        """Wait for its end."""
        out, err = self.popen.communicate(timeout=timeout)
        return Ran(self.popen.returncode, out, err)


class Installed:
    """A release of the chart whose runs are started by the test."""

    def __init__(
        self, plane: ControlPlane, folder: Path, chart: Path = CHART, **values: Any
    ) -> None:
        self.plane, self.api = plane, plane.api
        self.release = Release(plane.kubeconfig, NAMESPACE)
        # Pods that a test has just made may move.
        policy = {"protect": {"minPodAge": "0s"}, **values.pop("policy", {})}
        self.values = {
            "schedule": NEVER,
            "output": "json",
            "policy": policy,
            # A machine that does much else at once needs longer than the defaults.
            "runDeadlineSeconds": int(PATIENCE) - 60,
            "activeDeadlineSeconds": int(PATIENCE),
            **values,
        }
        self.notes = self.release.install(self.values, chart=chart)
        self._folder = folder
        self._runs = 0
        wait_until(self._in_force, 30, "the release's rights in force")
        self.kubeconfig = self.kubeconfig_with_token()

    @property
    def cron_job(self) -> Manifest:
        """The release's CronJob."""
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs"
        (listed,) = self.api.list_all(path)
        return listed

    @property
    def name(self) -> str:
        """Of the CronJob, the Lease, the ServiceAccount and the roles."""
        return str(self.cron_job["metadata"]["name"])

    @property
    def lease_path(self) -> str:
        """Where the Lease is."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{self.name}"

    def free_lease(self) -> None:
        """Take the Lease from the run that has it: a killed run keeps it for its term."""
        self.api.patch(self.lease_path, {"spec": None})

    def kubeconfig_with_token(self, bound_to: str | None = None) -> Path:
        """Return a kubeconfig whose token stands in a file beside it, as a pod's does.

        ``bound_to`` is the Secret with which the token ends.
        """
        token = self.plane.token_for_service_account(NAMESPACE, self._account, bound_to=bound_to)
        client = self.plane.client(token)
        wait_until(lambda: access.is_known(client), 30, "the account known")
        client.close()
        written = self.plane.write_kubeconfig(f"{NAMESPACE}-{self.name}", token)
        config = yaml.safe_load(written.read_text())
        self.token_file.write_text(token)
        config["users"][0]["user"] = {"tokenFile": str(self.token_file)}
        written.write_text(yaml.safe_dump(config))
        return written

    @property
    def token_file(self) -> Path:
        """Where the token stands."""
        return self._folder / "token"

    def start(self, *more: str) -> Process:
        """Start what the CronJob's pod would run, in an interpreter of its own, which signals can end."""
        return self.prepare(*more)()

    def prepare(self, *more: str, forked: bool = False) -> Callable[[], Process]:
        """Return what starts it, and asks the server for nothing any more."""
        self._runs += 1
        (container,) = self._pod["containers"]
        policy = self._mounted_policy()
        arguments = [str(policy).join(arg.split(_MOUNT)) for arg in container["args"]]
        env = {
            **os.environ,
            "POD_NAME": f"{self.name}-{self._runs}",
            "POD_NAMESPACE": NAMESPACE,
            "KUBECONFIG": str(self.kubeconfig),
        }
        interpreter = [str(program())] if forked else [sys.executable, "-m", "rebalancer"]
        command = [*interpreter, *arguments, *more]

        def start() -> Process:
            pipe = subprocess.PIPE
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe}
            return Process(subprocess.Popen(command, text=True, env=env, **streams))

        return start

    def run(self, *more: str) -> Ran:
        """Run it to its end."""
        return self.prepare(*more, forked=True)().wait()

    def _in_force(self) -> bool:
        """Whether the server knows the release's ClusterRole and its Role."""
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles"
        own = [
            AccessRule(verb, rule["apiGroups"][0], rule["resources"][0], NAMESPACE, name)
            for role in self.api.list_all(path)
            for rule in role["rules"]
            for verb in rule["verbs"]
            for name in rule["resourceNames"]
        ]
        rules = (AccessRule("list", "", "pods"), *own)
        return all(
            access.is_allowed(self.api, self._account, NAMESPACE, as_attributes(rule))
            for rule in rules
        )

    @property
    def _pod(self) -> Manifest:
        spec: Manifest = self.cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        return spec

    @property
    def _account(self) -> str:
        return str(self._pod["serviceAccountName"])

    def _mounted_policy(self) -> Path:
        (volume,) = self._pod["volumes"]
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{volume['configMap']['name']}"
        folder = self._folder / "policy"
        folder.mkdir(exist_ok=True)
        for name, text in self.api.get(path)["data"].items():
            (folder / name).write_text(text)
        return folder
