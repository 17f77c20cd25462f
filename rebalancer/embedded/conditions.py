"""Conditions in the status of an object: look up, set, and what Ready means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def condition(status: Mapping[str, Any], kind: str) -> Json | None:
    """Return the condition of a type, or None."""
    for found in status.get("conditions") or ():
        if found["type"] == kind:
            return dict(found)
    return None


def set_condition(status: Json, kind: str, truth: str, now: str, **fields: Any) -> None:
    """Set a condition in place; its transition time changes only with its truth."""
    conditions = status.setdefault("conditions", [])
    for found in conditions:
        if found["type"] == kind:
            if found["status"] != truth:
                found["lastTransitionTime"] = now
            found |= {"status": truth, **fields}
            return
    conditions.append({"type": kind, "status": truth, "lastTransitionTime": now, **fields})


def is_ready(found: Mapping[str, Any]) -> bool:
    """Whether a pod or node has the condition Ready."""
    ready = condition(found.get("status") or {}, "Ready")
    return ready is not None and ready["status"] == "True"
