"""Lists as tables, which kubectl asks for: the columns that matter here of the server's own printers.

Source: ``k8s.io/kubernetes/pkg/printers/internalversion``; a node's zone is ours. Of other kinds kubectl prints name
and age by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from rebalancer.base.durations import format_duration
from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.kinds import Json, Kind, is_ready
from rebalancer.embedded.manifests import ZONE
from rebalancer.wire.times import unix_seconds

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


def _name(obj: Json, _: float) -> str:
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
        ("Name", 0, _name),
        ("Ready", 0, _pod_ready),
        ("Status", 0, _pod_status),
        ("Age", 0, _age),
        ("Node", 1, _node_of),
    ),
    kinds.NODE: (
        ("Name", 0, _name),
        ("Status", 0, _node_status),
        ("Age", 0, _age),
        ("Zone", 1, _zone),
    ),
    kinds.DEPLOYMENT: (("Name", 0, _name), ("Ready", 0, _replicas), ("Age", 0, _age)),
}
"""Kind -> its columns: name, priority (1: with ``-o wide``), what a cell shows."""
