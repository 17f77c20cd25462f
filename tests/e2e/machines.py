"""KWOK's nodes as the machines behind moto's Auto Scaling groups."""

import time
from contextlib import contextmanager

import yaml

from tests.aws.cloud import REGION, in_the_cloud
from tests.aws.fleet import ENABLED, Fleet
from tests.controlplane import objects, operations


class Machines:
    """Nodes of the control plane, as a fleet makes them, and takes them away."""

    def __init__(self, plane):
        self._plane = plane

    def objects(self, _kind):
        return self._plane.api.list_all("/api/v1/nodes")

    def apply(self, node):
        node["metadata"]["annotations"] |= objects.node("any")["metadata"]["annotations"]
        self._plane.apply([node])

    def remove_node(self, name):
        self._plane.api.delete(f"/api/v1/nodes/{name}")

    def settle(self):
        operations.wait_nodes_ready(self._plane.api, len(self.objects("Node")))


@contextmanager
def fleet_of(cluster, monkeypatch):
    """Yield a fleet of the control plane, with credentials that its cloud takes."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with in_the_cloud(time.monotonic) as cloud:
        yield Fleet(cloud, Machines(cluster))


def policy_of(fleet, folder, strategies, **keys):
    """Write a policy in ``folder`` that names the groups of a fleet, and return its path; ``keys``: more of it."""
    at_aws = {"tags": [ENABLED], "region": REGION, "endpoint": fleet.cloud.url}
    return write_policy(folder, {"aws": at_aws}, strategies, **keys)


def write_policy(folder, provider, strategies, **keys):
    """Write a policy with a provider of machines in ``folder``, and return its path; ``keys``: more of it."""
    path = folder / "policy.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "rebalancer/v1",
                "kind": "Policy",
                "protect": {"minPodAge": "0s"},
                "safety": {"maxClockSkew": "30s"},
                "provider": provider,
                "strategies": dict(strategies),
                **keys,
            }
        )
    )
    return path


def surge_arguments(policy, kubeconfig):
    """Return the arguments of a replacement of all outdated machines by new ones, one at a time."""
    return [
        "replace",
        "--outdated=template",
        "--surge=1",
        f"--policy={policy}",
        f"--kubeconfig={kubeconfig}",
        "--ignore-daemonsets",
        "--pause=0s",
        "--timeout=300s",
        "--output=json",
    ]
