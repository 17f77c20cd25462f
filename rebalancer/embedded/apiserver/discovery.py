"""What kubectl requests besides objects: version, groups and resources, and lists as tables.

The columns are those of the server's own printers that matter here (``k8s.io/kubernetes/pkg/printers/internalversion``); a
node's zone is ours. Of other kinds kubectl prints name and age by itself.

Of ``/openapi/v3`` there is the part by which kubectl learns that a server itself validates the fields of a manifest.
Without it ``kubectl create`` and ``apply`` need the whole schema, unless they are called with ``--validate=false``. The
embedded server keeps fields that it does not know; it refuses none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from rebalancer.base.durations import format_duration
from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.kinds import KINDS, Json, Kind, is_ready
from rebalancer.embedded.manifests import ZONE
from rebalancer.wire.times import unix_seconds

BUILD = "+embedded"
"""The end of the server's version, which identifies the embedded cluster."""
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


_ALL = frozenset(
    {
        kinds.POD,
        kinds.SERVICE,
        kinds.CONTROLLER,
        kinds.DEPLOYMENT,
        kinds.REPLICA_SET,
        kinds.STATEFUL_SET,
        kinds.DAEMON_SET,
        kinds.JOB,
        kinds.AUTOSCALER,
    }
)
"""What ``kubectl get all`` lists."""


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
    if kind in _ALL:
        names["categories"] = ["all"]
    resources = [{**names, **base, "verbs": _VERBS}]
    for subresource in kind.subresources:
        name = f"{kind.plural}/{subresource}"
        if subresource == "eviction":
            special = {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
            resources.append({"name": name, "singularName": "", "namespaced": True, **special})
        elif subresource == "scale":
            of = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
            verbs = ["get", "patch", "update"]
            resources.append(
                {"name": name, "singularName": "", "namespaced": True, **of, "verbs": verbs}
            )
        else:
            verbs = ["get", "patch", "update"]
            resources.append({"name": name, "singularName": "", **base, "verbs": verbs})
    return resources


_TABLE = "as=Table"


def wants_table(accept: str, kind: Kind) -> bool:
    """Whether a request's Accept header prefers a table, and objects of this kind have one."""
    return _TABLE in accept.partition(",")[0] and kind in _COLUMNS


def table(
    kind: Kind, items: Sequence[Json], metadata: Mapping[str, Any], now: float, *, whole: bool
) -> Json:
    """Return objects as a ``meta.k8s.io/v1`` Table; with each its metadata, or the ``whole`` object."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(metadata),
        "columnDefinitions": [
            {
                "name": name,
                "type": "string",
                "format": _FORMATS.get(name, ""),
                "description": "",
                "priority": priority,
            }
            for name, priority, _ in _COLUMNS[kind]
        ],
        "rows": [
            {
                "cells": [cell(item, now) for _, _, cell in _COLUMNS[kind]],
                "object": _object(kind, item, whole=whole),
            }
            for item in items
        ],
    }


def _object(kind: Kind, item: Json, *, whole: bool) -> Json:
    if whole:
        return {"kind": kind.kind, "apiVersion": kind.api_version, **item}
    about = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return {**about, "metadata": item["metadata"]}


_FORMATS = {"Name": "name"}
"""By which kubectl knows the column that it writes the kind before."""
Cell = Callable[[Json, float], str]


def _name_cell(obj: Json, _: float) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: Json, now: float) -> str:
    seconds = max(0, int(now - unix_seconds(obj["metadata"]["creationTimestamp"])))
    whole = seconds if seconds < 120 else seconds // 60 * 60
    return format_duration(timedelta(seconds=whole))


def _pod_ready(pod: Json, _: float) -> str:
    ready = sum(each["ready"] for each in pod["status"].get("containerStatuses") or ())
    return f"{ready}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Json, _: float) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(pod["status"].get("reason") or pod["status"]["phase"])


def _node_of(pod: Json, _: float) -> str:
    return pod["spec"].get("nodeName") or "<none>"


def _node_status(node: Json, _: float) -> str:
    ready = "Ready" if is_ready(node) else "NotReady"
    return ready + (",SchedulingDisabled" if node["spec"].get("unschedulable") else "")


def _zone(node: Json, _: float) -> str:
    return node["metadata"].get("labels", {}).get(ZONE, "<none>")


def _replicas(deployment: Json, _: float) -> str:
    return f"{deployment['status'].get('readyReplicas', 0)}/{deployment['spec']['replicas']}"


_COLUMNS: Mapping[Kind, Sequence[tuple[str, int, Cell]]] = {
    kinds.POD: (
        ("Name", 0, _name_cell),
        ("Ready", 0, _pod_ready),
        ("Status", 0, _pod_status),
        ("Age", 0, _age),
        ("Node", 1, _node_of),
    ),
    kinds.NODE: (
        ("Name", 0, _name_cell),
        ("Status", 0, _node_status),
        ("Age", 0, _age),
        ("Zone", 1, _zone),
    ),
    kinds.DEPLOYMENT: (("Name", 0, _name_cell), ("Ready", 0, _replicas), ("Age", 0, _age)),
}
"""Kind -> its columns: name, priority (1: with ``-o wide``), what a cell shows."""


_ROOT = "/openapi/v3"
_VALIDATION = {
    "name": "fieldValidation",
    "in": "query",
    "schema": {"type": "string", "uniqueItems": True},
}


def openapi_document(path: str) -> Json | None:
    """Return the document at a path, or None if there is none."""
    roots = sorted({kind.root for kind in KINDS})
    if path == _ROOT:
        return {
            "paths": {root.strip("/"): {"serverRelativeURL": f"{_ROOT}{root}"} for root in roots}
        }
    root = path.removeprefix(_ROOT)
    if not path.startswith(_ROOT) or root not in roots:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "embedded"},
        "paths": {_path(kind): _operations(kind) for kind in KINDS if kind.root == root},
    }


def _path(kind: Kind) -> str:
    within = "namespaces/{namespace}/" if kind.namespaced else ""
    return f"{kind.root}/{within}{kind.plural}/{{name}}"


def _operations(kind: Kind) -> Json:
    of_kind = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    return {
        "patch": {
            "x-kubernetes-group-version-kind": of_kind,
            "parameters": [_VALIDATION],
            "responses": {"200": {"description": "OK"}},
        }
    }
