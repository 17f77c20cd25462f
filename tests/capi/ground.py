"""Groups of Cluster API on the control plane, and what their tests ask about them."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rebalancer.kube.access import DRAIN_RULES, config_map_rules
from rebalancer.kube.resources import AccessRule
from rebalancer.machines.cluster_api.api import DELETE, ENDS, MAX_SIZE, MIN_SIZE, NOTE
from tests.capi.infrastructure import (
    CAPI,
    CLUSTER,
    MACHINES,
    NAMESPACE,
    POOL,
    Infrastructure,
    machine_template,
    reference,
)
from tests.controlplane import ApiError, ControlPlane, operations, wait_until
from tests.e2e.machines import write_policy
from tests.e2e.product import RUN_RULES, grant

_GROUP = "cluster.x-k8s.io"
_API = f"/apis/{_GROUP}/v1beta2/namespaces/{NAMESPACE}"
STATUS = ("default", "machines")
"""Namespace and name of the ConfigMap with the status of machines."""
RULES = (
    *RUN_RULES,
    *DRAIN_RULES,
    *config_map_rules(*STATUS),
    AccessRule("get", _GROUP, "clusters"),
    *(
        AccessRule(verb, _GROUP, plural)
        for verb in ("get", "list", "patch")
        for plural in ("machinedeployments", "machinesets", "machines")
    ),
    AccessRule("list", "provided.test", "providedmachines"),
)
"""Those of a run and of ``replace``, with what docs/cluster-api.md names."""


def of_machines(version: str, template: str) -> dict[str, Any]:
    """Return a template of Machines."""
    return {
        "metadata": {"labels": {"node.cluster.x-k8s.io/pool": "yes"}},
        "spec": {
            "clusterName": CLUSTER,
            "version": version,
            "bootstrap": {"dataSecretName": "none"},
            "infrastructureRef": reference("ProvidedMachineTemplate", template),
            "deletion": {"nodeDrainTimeoutSeconds": 30, "nodeVolumeDetachTimeoutSeconds": 1},
        },
    }


def scalable(
    kind: str,
    name: str,
    sizes: tuple[int, int, int],
    strategy: str | None = None,
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return a MachineDeployment or a MachineSet; ``sizes``: of its group now, at least, at most."""
    size, low, high = sizes
    labels = {POOL: name}
    template = of_machines("v1.36.0", f"{name}-1")
    template["metadata"]["labels"] |= labels
    spec = {
        "clusterName": CLUSTER,
        "replicas": size,
        "selector": {"matchLabels": labels},
        "template": template,
        **({"rollout": {"strategy": {"type": strategy}}} if strategy else {}),
    }
    bounds = {MIN_SIZE: str(low), MAX_SIZE: str(high)}
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": {**bounds, **annotations}}
    return {"apiVersion": CAPI, "kind": kind, "metadata": metadata, "spec": spec}


@dataclass
class Ground:
    """The control plane with Cluster API."""

    plane: ControlPlane
    provider: Infrastructure
    log: Path
    """Of Cluster API's controllers."""

    def clear(self) -> None:
        """Take all groups and workloads away, and wait until no machine is left."""
        self.provider.joins = True
        api = self.plane.api
        for plural in ("machinedeployments", "machinesets"):
            for one in api.list_all(f"{_API}/{plural}"):
                api.delete(f"{_API}/{plural}/{one['metadata']['name']}")
        for kind in (
            "apps/v1/namespaces/default/deployments",
            "policy/v1/namespaces/default/poddisruptionbudgets",
        ):
            for one in api.list_all(f"/apis/{kind}"):
                with contextlib.suppress(ApiError):
                    api.delete(
                        f"/apis/{kind}/{one['metadata']['name']}",
                        {"propagationPolicy": "Background"},
                    )
        self.await_clear()

    def await_clear(self) -> None:
        """Wait until no group and no machine is left."""
        wait_until(self._is_clear, 120, "no group and no machine is left")

    def _is_clear(self) -> bool:
        kinds = ("machinedeployments", "machinesets", "machines")
        left = [one for kind in kinds for one in self.plane.api.list_all(f"{_API}/{kind}")]
        return not left and not self.nodes()

    # -- groups --------------------------------------------------------------------------------------

    def deployment(
        self,
        name: str,
        size: int,
        low: int,
        high: int,
        strategy: str = "RollingUpdate",
        **annotations: str,
    ) -> None:
        """Make a MachineDeployment, and wait for its nodes."""
        self.plane.apply([machine_template(f"{name}-1")])
        made = scalable("MachineDeployment", name, (size, low, high), strategy, annotations)
        self.plane.apply([made])
        self.wait_nodes(size)

    def machine_set(self, name: str, size: int, low: int, high: int) -> None:
        """Make a MachineSet alone, and wait for its nodes."""
        self.plane.apply([machine_template(f"{name}-1")])
        self.plane.apply([scalable("MachineSet", name, (size, low, high))])
        self.wait_nodes(size)

    def new_template(self, name: str, plural: str = "machinedeployments", **machine: str) -> None:
        """Have the group launch machines of a new version from another template, which says ``machine``."""
        self.plane.apply([machine_template(f"{name}-2", **machine)])
        spec = {
            "version": "v1.37.0",
            "infrastructureRef": reference("ProvidedMachineTemplate", f"{name}-2"),
        }
        self.plane.api.patch(self.path(name, plural), {"spec": {"template": {"spec": spec}}})

    def group(self, name: str, plural: str = "machinedeployments") -> dict[str, Any]:
        """A MachineDeployment or MachineSet as it is."""
        return dict(self.plane.api.get(self.path(name, plural)))

    @staticmethod
    def path(name: str, plural: str) -> str:
        """Where the API server has a group."""
        return f"{_API}/{plural}/{name}"

    def size(self, name: str, plural: str = "machinedeployments") -> int:
        """The replicas that are asked for."""
        return int(self.group(name, plural)["spec"]["replicas"])

    def limits(self, name: str, plural: str) -> tuple[int, int]:
        """The least and the most machines of a group."""
        annotations = self.group(name, plural)["metadata"]["annotations"]
        return int(annotations[MIN_SIZE]), int(annotations[MAX_SIZE])

    def left_behind(self) -> list[str]:
        """Our annotations on groups, and marks on Machines."""
        api = self.plane.api
        found = [
            one
            for plural in ("machinedeployments", "machinesets", "machines")
            for one in api.list_all(f"{_API}/{plural}")
        ]
        return [
            f"{one['kind']} {one['metadata']['name']}: {key}"
            for one in found
            for key in one["metadata"].get("annotations", {})
            if key in (DELETE, ENDS, NOTE)
        ]

    def machines(self) -> dict[str, str]:
        """Name of each Machine that is there -> its version."""
        return {
            one["metadata"]["name"]: one["spec"].get("version", "")
            for one in self.plane.api.list_all(MACHINES)
        }

    # -- nodes ---------------------------------------------------------------------------------------

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes."""
        return list(self.plane.api.list_all("/api/v1/nodes"))

    def wait_nodes(self, count: int) -> None:
        """Wait until so many nodes are Ready, and Cluster API knows them."""

        def known() -> bool:
            machines = self.plane.api.list_all(MACHINES)
            ready = [node for node in self.nodes() if operations.is_ready(node)]
            joined = [one for one in machines if one.get("status", {}).get("nodeRef")]
            return len(machines) == len(ready) == len(joined) == count

        wait_until(known, 120, f"{count} machines are Ready nodes")

    # -- the product ---------------------------------------------------------------------------------

    def policy(self, folder: Path, strategies: Mapping[str, Any], **keys: Any) -> Path:
        """Write a policy that names the Cluster, and return its path."""
        provider = {"cluster-api": {"cluster": f"{NAMESPACE}/{CLUSTER}"}}
        return Path(write_policy(folder, provider, strategies, **keys))

    def kubeconfig(self, *more: AccessRule) -> Path:
        """A kubeconfig with exactly the rights that are documented, and ``more``."""
        return grant(self.plane, (*RULES, *more))
