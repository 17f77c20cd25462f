"""Discovery: the API server's version, groups and resources."""

from __future__ import annotations

from rebalancer.embedded.apiserver.kinds import KINDS, Json, Kind

BUILD = "+embedded"
"""How the server's version ends, by which it is known."""
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]

_SHORT = {
    "ConfigMap": "cm",
    "DaemonSet": "ds",
    "Deployment": "deploy",
    "Event": "ev",
    "Namespace": "ns",
    "Node": "no",
    "PersistentVolume": "pv",
    "PersistentVolumeClaim": "pvc",
    "Pod": "po",
    "PodDisruptionBudget": "pdb",
    "ReplicaSet": "rs",
    "ReplicationController": "rc",
    "ResourceQuota": "quota",
    "Service": "svc",
    "ServiceAccount": "sa",
    "StatefulSet": "sts",
}


def version(release: tuple[int, int]) -> Json:
    """Return the answer to ``/version``."""
    major, minor = release
    return {
        "major": str(major),
        "minor": str(minor),
        "gitVersion": f"v{major}.{minor}.0{BUILD}",
        "platform": "python",
    }


def document(path: str) -> Json | None:
    """Return the discovery document at a path, or None if it is not one."""
    path = path.rstrip("/")
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    groups = sorted({kind.group for kind in KINDS if kind.group})
    if path == "/apis":
        listed = [_group(group) for group in groups]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    if path in {f"/apis/{group}" for group in groups}:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(path.removeprefix("/apis/"))}
    kinds = [kind for kind in KINDS if kind.root == path]
    if not kinds:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].api_version,
        "resources": [resource for kind in kinds for resource in _resources(kind)],
    }


def _group(group: str) -> Json:
    versions = sorted({kind.version for kind in KINDS if kind.group == group})
    listed = [{"groupVersion": f"{group}/{name}", "version": name} for name in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _resources(kind: Kind) -> list[Json]:
    base = {"namespaced": kind.namespaced, "kind": kind.kind}
    names: Json = {"name": kind.plural, "singularName": kind.kind.lower()}
    if kind.kind in _SHORT:
        names["shortNames"] = [_SHORT[kind.kind]]
    resources = [{**names, **base, "verbs": _VERBS}]
    for subresource in kind.subresources:
        name = f"{kind.plural}/{subresource}"
        if subresource == "eviction":
            special = {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
            resources.append({"name": name, "singularName": "", "namespaced": True, **special})
        else:
            verbs = ["get", "patch", "update"]
            resources.append({"name": name, "singularName": "", **base, "verbs": verbs})
    return resources
