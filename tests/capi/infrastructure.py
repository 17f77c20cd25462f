"""An infrastructure provider of ours: its machines are nodes that KWOK plays. No part of Cluster API.

Kinds ``Provided...`` with what the contract of Cluster API (v1beta2) asks for: the cluster and the control plane are there at
once, the control plane is not made of Machines, and each machine joins as a node.
"""

import base64
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from tests.controlplane import ApiError, ControlPlane, objects, wait_until

GROUP = "provided.test"
CLUSTER = "work"
NAMESPACE = "clusters"
CAPI = "cluster.x-k8s.io/v1beta2"
MACHINES = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/machines"
_API = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}"
_KINDS = ("ProvidedCluster", "ProvidedControlPlane", "ProvidedMachine", "ProvidedMachineTemplate")
_ZONES = ("zone-a", "zone-b")


def definition(kind: str) -> dict[str, Any]:
    """Return the CRD of one of our kinds; its label says to which contract its version belongs."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "labels": {"cluster.x-k8s.io/v1beta2": "v1"},
        },
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


def machine_template(name: str, *, cpu: str = "2", memory: str = "4Gi") -> dict[str, Any]:
    """Return a template of machines."""
    spec = {"cpu": cpu, "memory": memory}
    return provided("ProvidedMachineTemplate", name, spec={"template": {"spec": spec}})


class Infrastructure:
    """The controller: gives machines an id, and makes their nodes."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.joins = True
        """Whether new machines become nodes."""
        self._count = 0

    def look(self) -> None:
        """Provide each machine that has no id yet, and remove nodes whose machine is gone."""
        api = self._plane.api
        machines = api.list_all(f"{_API}/providedmachines")
        for one in machines:
            name = one["metadata"]["name"]
            if "deletionTimestamp" not in one["metadata"] and "providerID" not in one["spec"]:
                self._provide(name, one["spec"])
        ids = {f"provided:///{one['metadata']['name']}" for one in machines}
        for node in api.list_all("/api/v1/nodes"):
            if node["spec"].get("providerID") not in ids:
                with contextlib.suppress(ApiError):
                    api.delete(f"/api/v1/nodes/{node['metadata']['name']}")

    def _provide(self, name: str, spec: dict[str, Any]) -> None:
        provider_id = f"provided:///{name}"
        if self.joins:
            zone = _ZONES[self._count % len(_ZONES)]
            self._count += 1
            node = objects.node(name, cpu=spec["cpu"], memory=spec["memory"], zone=zone)
            node["spec"] = {**node.get("spec", {}), "providerID": provider_id}
            self._plane.apply([node])
        done = {"initialization": {"provisioned": True}}
        change = {"spec": {"providerID": provider_id}, "status": done}
        self._plane.api.patch(f"{_API}/providedmachines/{name}", change)


@contextmanager
def working(plane: ControlPlane) -> Iterator[Infrastructure]:
    """Make the Cluster, which is this control plane, and run the controller beside."""
    plane.apply([*map(definition, _KINDS), objects.namespace(NAMESPACE)])
    wait_until(lambda: _is_served(plane), 30, "our kinds served")
    plane.apply(_cluster(plane))
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


def _is_served(plane: ControlPlane) -> bool:
    try:
        return {one["kind"] for one in plane.api.get(f"/apis/{GROUP}/v1")["resources"]} >= set(
            _KINDS
        )
    except ApiError:
        return False


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
