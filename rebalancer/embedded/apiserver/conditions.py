"""Conditions in the status of an object: look up and set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebalancer.embedded.apiserver.kinds import Json


def condition(status: Mapping[str, Any], kind: str) -> Json | None:
    """Return the condition of a type, or None."""
    for item in status.get("conditions") or ():
        if item["type"] == kind:
            return dict(item)
    return None


def set_condition(status: Json, kind: str, value: str, now: str, **fields: Any) -> None:
    """Set a condition in place; its transition time changes only with its status, ``value``."""
    conditions = status.setdefault("conditions", [])
    for item in conditions:
        if item["type"] == kind:
            if item["status"] != value:
                item["lastTransitionTime"] = now
            item |= {"status": value, **fields}
            return
    conditions.append({"type": kind, "status": value, "lastTransitionTime": now, **fields})


def is_ready(obj: Mapping[str, Any]) -> bool:
    """Whether a pod or node has the condition Ready."""
    ready = condition(obj.get("status") or {}, "Ready")
    return ready is not None and ready["status"] == "True"
