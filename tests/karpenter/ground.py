"""The control plane with Karpenter, and what its tests ask about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.controlplane import ControlPlane, objects, operations, wait_until
from tests.karpenter.manager import ZONES, node_pool

_DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_POOLS = "/apis/karpenter.sh/v1/nodepools"
_PATIENT = 180.0


@dataclass
class Ground:
    """The control plane with Karpenter."""

    plane: ControlPlane

    def clear(self) -> None:
        """Take the workloads, the pools and the nodes away, and wait until they are."""
        api = self.plane.api
        for path in (_DEPLOYMENTS, _POOLS, _CLAIMS):
            for one in api.list_all(path):
                api.delete(f"{path}/{one['metadata']['name']}")
        wait_until(lambda: not self.nodes(), _PATIENT, "no node is left")

    def nodes(self) -> dict[str, str]:
        """Return node -> zone."""
        return {
            one["metadata"]["name"]: one["metadata"]["labels"]["topology.kubernetes.io/zone"]
            for one in self.plane.api.list_all("/api/v1/nodes")
        }

    def zones_of(self, app: str) -> list[str]:
        """Return the zone of each pod of ``app`` that is bound and stays, sorted."""
        zone_of = self.nodes()
        return sorted(
            zone_of.get(one["spec"]["nodeName"], "")
            for one in operations.pods(self.plane.api)
            if one["metadata"]["labels"].get("app") == app
            and one["spec"].get("nodeName")
            and not one["metadata"].get("deletionTimestamp")
        )

    def drift(self, **pool: Any) -> str:
        """Make a node in each zone, and ``web``, which is to spread over them, in two of them; return the node without it.

        Each node holds a pod that is bound to its zone (``hold-ZONE``). ``pool``: see :func:`node_pool`.
        """
        self.plane.apply([node_pool(**pool)])
        self.plane.apply(_holding(zone) for zone in ZONES)
        wait_until(lambda: self._has_ready_nodes(len(ZONES)), _PATIENT, "a node in each zone")
        (left,) = (name for name, zone in self.nodes().items() if zone == ZONES[-1])
        self.plane.api.patch(f"/api/v1/nodes/{left}", {"spec": {"unschedulable": True}})
        self.plane.apply([_web()])
        wait_until(lambda: len(self.zones_of("web")) == 3, _PATIENT, "web is bound")
        self.plane.api.patch(f"/api/v1/nodes/{left}", {"spec": {"unschedulable": None}})
        self.settle()
        return left

    def scale(self, name: str, replicas: int) -> None:
        """Change the replicas of a Deployment, and wait until the pods are gone or Ready."""
        self.plane.api.patch(f"{_DEPLOYMENTS}/{name}", {"spec": {"replicas": replicas}})
        self.settle()

    def settle(self) -> None:
        """Wait until all Deployments have what they ask for, and no pod is leaving."""
        wait_until(self._is_settled, _PATIENT, "all Deployments are settled")

    def _is_settled(self) -> bool:
        deployments = self.plane.api.list_all(_DEPLOYMENTS)
        pods = operations.pods(self.plane.api)
        wanted = sum(one["spec"]["replicas"] for one in deployments)
        ready = sum(one.get("status", {}).get("readyReplicas", 0) for one in deployments)
        return wanted == ready == len(pods)

    def _has_ready_nodes(self, number: int) -> bool:
        initialized = [
            one
            for one in self.plane.api.list_all(_CLAIMS)
            for condition in one.get("status", {}).get("conditions", ())
            if condition["type"] == "Initialized" and condition["status"] == "True"
        ]
        return len(initialized) == number == len(self.nodes())


def _holding(zone: str) -> dict[str, Any]:
    selector = {"topology.kubernetes.io/zone": zone}
    return objects.deployment(f"hold-{zone}", 1, cpu="2", nodeSelector=selector)


def _web() -> dict[str, Any]:
    labels = {"app": "web"}
    spread: Sequence[Any] = [objects.spread(labels, hard=False)]
    return objects.deployment("web", 3, cpu="300m", labels=labels, topologySpreadConstraints=spread)
