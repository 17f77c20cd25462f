"""The product as its users have it: a process, a ServiceAccount's token, exactly the documented rights."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rebalancer.kube.access import ACT_RULES, EVENT_RULES, FOLLOW_RULES, READ_RULES
from rebalancer.kube.resources import Rule
from tests.controlplane import ControlPlane, access

ACCOUNT = "rebalancer"
NO_WAIT = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
strategies:
  topology-spread: {}
  anti-affinity: {}
  duplicates: {}
  low-utilisation: {}
  node-affinity: {}
  taints: {}
"""
"""The default policy, for pods that a test has only just made."""


@dataclass(frozen=True)
class Ran:
    """What one process did."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The JSON report."""
        report: dict[str, Any] = json.loads(self.out)
        return report

    @property
    def evicted(self) -> list[dict[str, Any]]:
        """The moves that were carried out."""
        return [move for move in self.report["moves"] if move["outcome"] == "evicted"]


def rebalancer(*args: str, timeout: float = 120, env: dict[str, str] | None = None) -> Ran:
    """Run the command to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "rebalancer", *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **(env or {})},
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def grant(
    plane: ControlPlane,
    rules: Sequence[Rule] = (*READ_RULES, *ACT_RULES, *FOLLOW_RULES, *EVENT_RULES),
) -> Path:
    """Give a ServiceAccount exactly ``rules``; return a kubeconfig with its token."""
    role = access.cluster_role(ACCOUNT, [_as_rbac(rule) for rule in rules])
    binding = access.cluster_role_binding(ACCOUNT, ACCOUNT, ACCOUNT)
    plane.apply([access.service_account(ACCOUNT), role, binding])
    return Path(plane.kubeconfig_for_service_account("default", ACCOUNT))


def _as_rbac(rule: Rule) -> dict[str, list[str]]:
    if rule.resource.startswith("/"):
        return {"nonResourceURLs": [rule.resource], "verbs": [rule.verb]}
    return {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": [rule.verb]}


class Product:
    """The command on one cluster, with one policy."""

    def __init__(self, plane: ControlPlane, folder: Path, policy: str = NO_WAIT) -> None:
        self.kubeconfig = grant(plane)
        self.policy = folder / "policy.yaml"
        self.policy.write_text(policy)

    def run(self, *args: str, timeout: float = 120) -> Ran:
        """Run ``rebalancer run`` with a JSON report."""
        return rebalancer(
            "run",
            f"--policy={self.policy}",
            f"--kubeconfig={self.kubeconfig}",
            "--output=json",
            *args,
            timeout=timeout,
        )
