"""An infrastructure provider of ours: its machines are nodes that KWOK plays. No part of Cluster API.

Kinds ``Provided...`` with what the contract of Cluster API (v1beta2) asks for: the cluster and the control plane are there at
once, the control plane is not made of Machines, and each machine joins as a node.
"""

import base64
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import yaml

from tests.controlplane import ApiError, ControlPlane, objects
from tests.controlplane.managers import apply_definitions

GROUP = "provided.test"
CLUSTER = "work"
NAMESPACE = "clusters"
CAPI = "cluster.x-k8s.io/v1beta2"
MACHINES = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/machines"
POOL = "pool"
"""Label of what belongs to a group: its name."""
_PROVIDED = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/providedmachines"
_KINDS = ("ProvidedCluster", "ProvidedControlPlane", "ProvidedMachine", "ProvidedMachineTemplate")


def definition(kind: str) -> dict[str, Any]:
    """Return the CRD of one of our kinds; its label says to which contract its version belongs."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"cluster.x-k8s.io/v1beta2": "v1"}},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def provided(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """Return an object of one of our kinds."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, **more}


def reference(kind: str, name: str) -> dict[str, str]:
    """Return a reference to it, as v1beta2 has them."""
    return {"apiGroup": GROUP, "kind": kind, "name": name}


def machine_template(
    name: str, *, cpu: str = "2", memory: str = "4Gi", zones: str = "ab"
) -> dict[str, Any]:
    """Return a template of machines; ``zones``: the letters of those in which they are."""
    spec = {"cpu": cpu, "memory": memory, "zones": zones}
    return provided("ProvidedMachineTemplate", name, spec={"template": {"spec": spec}})


class Infrastructure:
    """The controller: gives machines an id, and makes their nodes; again where one has gone whose machine is there."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.joins = True
        """Whether new machines become nodes."""
        self.exhausted: set[str] = set()
        """Groups for which there are no more machines."""
        self.taints: dict[str, Sequence[Mapping[str, str]]] = {}
        """Group -> taints with which its new nodes register."""
        self._registered: dict[str, dict[str, Any]] = {}
        """Machine -> node as its kubelet registers it."""
        self._launched: Counter[str] = Counter()
        """Group -> machines so far."""

    def look(self) -> None:
        """Provide each machine that has no id yet, and let nodes come and go with their machines."""
        api = self._plane.api
        # Before the machines: a node that is missing here has a machine that is there later.
        nodes = {one["metadata"]["name"]: one for one in api.list_all("/api/v1/nodes")}
        machines = {one["metadata"]["name"]: one for one in api.list_all(_PROVIDED)}
        self._registered = {
            name: self._registered[name] for name in self._registered if name in machines
        }
        for name, one in machines.items():
            if "deletionTimestamp" not in one["metadata"] and "providerID" not in one["spec"]:
                self._provide(name, one)
            elif name in self._registered and name not in nodes:
                self._plane.apply([self._registered[name]])
        ids = set(map(_provider_id, machines))
        for name, node in nodes.items():
            if node["spec"].get("providerID") not in ids:
                with contextlib.suppress(ApiError):
                    api.delete(f"/api/v1/nodes/{name}")

    def _provide(self, name: str, machine: Mapping[str, Any]) -> None:
        group = machine["metadata"].get("labels", {}).get(POOL, "")
        if group in self.exhausted:
            return
        if self.joins:
            self._registered[name] = self._node(name, group, machine["spec"])
            self._plane.apply([self._registered[name]])
        done = {"initialization": {"provisioned": True}}
        change = {"spec": {"providerID": _provider_id(name)}, "status": done}
        self._plane.api.patch(f"{_PROVIDED}/{name}", change)

    def _node(self, name: str, group: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the node of a new machine; a group's are in its zones in turn."""
        zone = spec["zones"][self._launched[group] % len(spec["zones"])]
        self._launched[group] += 1
        node = objects.node(
            name,
            labels={"group": group},
            cpu=spec["cpu"],
            memory=spec["memory"],
            zone=f"zone-{zone}",
        )
        taints = [*node["spec"].get("taints", ()), *self.taints.get(group, ())]
        node["spec"] |= {"providerID": _provider_id(name), "taints": taints}
        return node


def _provider_id(machine: str) -> str:
    return f"provided:///{machine}"


@contextmanager
def working(plane: ControlPlane) -> Iterator[Infrastructure]:
    """Make the Cluster, which is this control plane, and run the controller beside."""
    apply_definitions(plane, [*map(definition, _KINDS)])
    plane.apply([objects.namespace(NAMESPACE), *_cluster(plane)])
    made, end = Infrastructure(plane), threading.Event()

    def work() -> None:
        while not end.wait(0.1):
            # What was changed or deleted meanwhile is looked at again.
            with contextlib.suppress(ApiError):
                made.look()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        end.set()
        thread.join()


def _cluster(plane: ControlPlane) -> Iterator[dict[str, Any]]:
    config = yaml.safe_load(plane.kubeconfig.read_text())
    (of,) = config["clusters"]
    authority = base64.b64encode(plane.ca_file.read_bytes()).decode()
    of["cluster"] = {"server": of["cluster"]["server"], "certificate-authority-data": authority}
    labels = {"cluster.x-k8s.io/cluster-name": CLUSTER}
    host, _, port = plane.url.removeprefix("https://").partition(":")
    initialized = {"controlPlaneInitialized": True, "provisioned": True}
    yield {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": f"{CLUSTER}-kubeconfig", "namespace": NAMESPACE, "labels": labels},
        "stringData": {"value": yaml.safe_dump(config)},
    }
    yield provided(
        "ProvidedControlPlane",
        CLUSTER,
        spec={},
        status={"initialization": initialized, "externalManagedControlPlane": True},
    )
    yield provided(
        "ProvidedCluster",
        CLUSTER,
        spec={"controlPlaneEndpoint": {"host": host, "port": int(port)}},
        status={"initialization": initialized},
    )
    yield {
        "apiVersion": CAPI,
        "kind": "Cluster",
        "metadata": {"name": CLUSTER, "namespace": NAMESPACE},
        "spec": {
            "controlPlaneRef": reference("ProvidedControlPlane", CLUSTER),
            "infrastructureRef": reference("ProvidedCluster", CLUSTER),
        },
    }
