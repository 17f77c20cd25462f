"""The product as its users have it: a process, a ServiceAccount's token, exactly the documented rights."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rebalancer.kube.access import ACT_RULES, EVENT_RULES, FOLLOW_RULES, READ_RULES, USAGE_RULES
from rebalancer.kube.resources import AccessRule
from tests.controlplane import ControlPlane, access, wait_until
from tests.support.cli import program

ACCOUNT = "rebalancer"
RUN_RULES = (*READ_RULES, *ACT_RULES, *FOLLOW_RULES, *EVENT_RULES)
"""What a run needs that moves pods."""
PATIENCE = 600.0
"""Seconds for a run to end: on a machine that does much else, many times what it needs."""
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


def rebalancer(
    *args: str, env: dict[str, str] | None = None, start: Sequence[str] | None = None
) -> Ran:
    """Run the command to its end; ``start`` are arguments of an interpreter of its own, by default it is forked."""
    command = [sys.executable, *start] if start else [str(program())]
    done = subprocess.run(
        [*command, *args],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **(env or {})},
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def grant(plane: ControlPlane, rules: Sequence[AccessRule] = RUN_RULES) -> Path:
    """Give a ServiceAccount exactly ``rules``, from now on; return a kubeconfig with its token."""
    role = access.cluster_role(ACCOUNT, [_as_rbac(rule) for rule in rules])
    binding = access.cluster_role_binding(ACCOUNT, ACCOUNT, ACCOUNT)
    plane.apply([access.service_account(ACCOUNT), role, binding])
    wait_until(lambda: _in_force(plane, rules), 30, "the rights in force")
    token = plane.token_for_service_account("default", ACCOUNT)
    client = plane.client(token)
    wait_until(lambda: access.is_known(client), 30, "the account known")
    client.close()
    return Path(plane.write_kubeconfig(f"default-{ACCOUNT}", token))


def _in_force(plane: ControlPlane, rules: Sequence[AccessRule]) -> bool:
    """Whether the server allows these of our rules, and those that it knows from before no longer."""
    known = (*RUN_RULES, *USAGE_RULES)
    asked = {rule for rule in (*known, *rules) if not rule.resource.startswith("/")}
    return all(
        access.is_allowed(plane.api, ACCOUNT, "default", as_attributes(rule)) == (rule in rules)
        for rule in asked
    )


def as_attributes(rule: AccessRule) -> dict[str, str]:
    """Return a rule for a resource as the resourceAttributes of an access review."""
    resource, _, subresource = rule.resource.partition("/")
    named = {"namespace": rule.namespace, "name": rule.name, "subresource": subresource}
    set_ = {key: value for key, value in named.items() if value}
    return {"verb": rule.verb, "group": rule.group, "resource": resource, **set_}


def _as_rbac(rule: AccessRule) -> dict[str, list[str]]:
    if rule.resource.startswith("/"):
        return {"nonResourceURLs": [rule.resource], "verbs": [rule.verb]}
    return {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": [rule.verb]}


class Product:
    """The command on one cluster, with one policy."""

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        policy: str = NO_WAIT,
        more_rules: Sequence[AccessRule] = (),
    ) -> None:
        self.kubeconfig = grant(plane, (*RUN_RULES, *more_rules))
        self.policy = folder / "policy.yaml"
        self.policy.write_text(policy)

    def run(self, *args: str, start: Sequence[str] | None = None) -> Ran:
        """Run ``rebalancer run --yes`` with a JSON report."""
        return self._act("run", *args, start=start)

    def apply(self, plan: Path, *args: str) -> Ran:
        """Run ``rebalancer apply --yes`` with a JSON report."""
        return self._act("apply", str(plan), *args)

    def _act(self, *args: str, start: Sequence[str] | None = None) -> Ran:
        return rebalancer(
            *args,
            "--yes",
            f"--policy={self.policy}",
            f"--kubeconfig={self.kubeconfig}",
            "--output=json",
            start=start,
        )
