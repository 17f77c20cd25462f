"""Clusters of a fleet: the chart's release in each, and the kubeconfig with its token, as users make it."""

import base64
from typing import Any

import yaml

from tests.chart.helm import Release
from tests.controlplane import ControlPlane, wait_until

MEMBERS = "members"
"""The namespace of the release."""
NAME = "rebalancer-kube-rebalancer"


def release(plane: ControlPlane) -> Release:
    """Return the release of a member, not yet installed."""
    return Release(plane.kubeconfig, MEMBERS)


def join(plane: ControlPlane) -> tuple[str, str]:
    """Install a member's release; return its token, and a kubeconfig with it."""
    release(plane).install({"fleet": {"member": {"enabled": True, "token": True}}})
    path = f"/api/v1/namespaces/{MEMBERS}/secrets/{NAME}-token"
    data = wait_until(lambda: plane.api.get(path).get("data"), 60, "the token")
    token = base64.b64decode(data["token"]).decode()
    named = {"name": "c"}
    cluster = {"server": plane.url, "certificate-authority-data": data["ca.crt"]}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{**named, "cluster": cluster}],
        "users": [{**named, "user": {"token": token}}],
        "contexts": [{**named, "context": {"cluster": "c", "user": "c"}}],
    }
    return token, yaml.safe_dump(config)


def member(name: str) -> dict[str, Any]:
    """Return the entry of a cluster in ``fleet.clusters``."""
    return {"name": name, "secretName": f"{name}-access"}


def access_secret(name: str, namespace: str, kubeconfig: str) -> dict[str, Any]:
    """Return the Secret with the kubeconfig of a cluster."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{name}-access", "namespace": namespace},
        "stringData": {"kubeconfig": kubeconfig},
    }
