"""The programs that are compared: the peer with and without nodeFit, ours, and one that throws all away."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from benchmarks.scale.measure import Measured
from tests.controlplane import access
from tests.controlplane.cluster import ControlPlane

_BALANCE = (
    "RemoveDuplicates",
    "RemovePodsViolatingTopologySpreadConstraint",
    "LowNodeUtilization",
)
_DESCHEDULE = ("RemovePodsViolatingInterPodAntiAffinity",)
_LISTS = (
    "/api/v1/pods?fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed",
    "/api/v1/nodes",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
)
"""What is long among the lists that we read."""


def peer_policy(*, node_fit: bool) -> Mapping[str, Any]:
    """Return the peer's policy with the four strategies, hard and soft constraints."""
    levels = {"cpu": 20, "memory": 20, "pods": 20}
    targets = {"cpu": 50, "memory": 50, "pods": 50}
    config = [
        {"name": "DefaultEvictor", "args": {"nodeFit": node_fit}},
        {"name": "RemoveDuplicates"},
        {"name": "RemovePodsViolatingInterPodAntiAffinity"},
        {
            "name": "RemovePodsViolatingTopologySpreadConstraint",
            "args": {"constraints": ["DoNotSchedule", "ScheduleAnyway"]},
        },
        {
            "name": "LowNodeUtilization",
            "args": {"thresholds": levels, "targetThresholds": targets},
        },
    ]
    plugins = {
        "balance": {"enabled": list(_BALANCE)},
        "deschedule": {"enabled": list(_DESCHEDULE)},
    }
    profile = {"name": "scale", "pluginConfig": config, "plugins": plugins}
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [profile],
    }


def read_only(plane: ControlPlane) -> Path:
    """Return a kubeconfig with a token that may read everything and change nothing."""
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    plane.apply(
        [
            access.service_account("reader"),
            access.cluster_role("reader", rules),
            access.cluster_role_binding("reader", "reader", "reader"),
        ]
    )
    return plane.kubeconfig_for_service_account("default", "reader", 4 * 3600)


def peer(binary: Path, kubeconfig: Path, folder: Path, *, node_fit: bool) -> list[str]:
    """Return the peer's command line for one run; ``kubeconfig`` must not allow evictions.

    It is not its dry run: that one (v0.36.0) does not wait until its copy of the cluster is filled, and
    judges what happens to be there (0 to 2 pods on nodes that hold 30). A live run waits; with a token
    that may read and nothing else, every eviction is refused and the cluster stays as it is. Its own
    limit of requests per second is lifted, since a dry run would send none of those evictions.
    """
    policy = folder / f"peer-{'fit' if node_fit else 'nofit'}.yaml"
    policy.write_text(yaml.safe_dump(peer_policy(node_fit=node_fit)))
    return [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        f"--policy-config-file={policy}",
        "--descheduling-interval=0",
        "--secure-port=0",
        "--client-connection-qps=10000",
        "--client-connection-burst=10000",
        "--v=1",
    ]


def ours(program: Path, kubeconfig: Path) -> list[str]:
    """Return our command line for the same: all moves, as JSON."""
    return [
        str(program),
        "run",
        "--dry-run",
        "--lift-budgets",
        f"--kubeconfig={kubeconfig}",
        "--output=json",
    ]


def our_report(measured: Measured) -> dict[str, Any]:
    """Return our report."""
    return dict(msgspec.json.decode(measured.out))


def drain(kubeconfig: Path) -> list[str]:
    """Return the command line that reads the same lists in protobuf and throws them away."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    command = ["curl", "--silent", "--fail", "--cacert", cluster["certificate-authority"]]
    command += ["--user-agent", "drain/1", "--header", f"Authorization: Bearer {user['token']}"]
    command += ["--header", "Accept: application/vnd.kubernetes.protobuf"]
    for path in _LISTS:
        command += ["--output", "/dev/null", cluster["server"] + path]
    return command
