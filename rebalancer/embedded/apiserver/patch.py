"""Patches: merge patch (RFC 7386), strategic merge of lists by their merge key, JSON patch (RFC 6902).

Server-side apply is treated as a strategic merge: fields are not owned, so an applied manifest can add
and change fields, but not remove them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rebalancer.embedded.apiserver.kinds import Json
from rebalancer.embedded.apiserver.status import ApiError, bad_request

# Lists that a strategic merge patch merges, with the merge key of their items.
_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "ports": "containerPort",
    "volumes": "name",
    "ownerReferences": "uid",
    "topologySpreadConstraints": "topologyKey",
}


def apply_patch(content_type: str, obj: Json, patch: Any) -> Json:
    """Return the patched object; 415 for an unknown patch type, 400 for an invalid patch."""
    kind = content_type.partition(";")[0].strip()
    if kind == "application/json-patch+json":
        return _json_patch(obj, patch)
    if not isinstance(patch, Mapping):
        raise bad_request("the patch is not an object")
    if kind == "application/merge-patch+json":
        return dict(_merge(obj, patch, strategic=False))
    if kind in ("application/strategic-merge-patch+json", "application/apply-patch+yaml"):
        return dict(_merge(obj, patch, strategic=True))
    message = f"the body of the request was in an unknown format - {kind} is not a patch type"
    raise ApiError(415, "UnsupportedMediaType", message)


def _merge(old: Any, new: Mapping[str, Any], *, strategic: bool) -> Json:
    merged = dict(old) if isinstance(old, Mapping) else {}
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = _merge(merged.get(key), value, strategic=strategic)
        elif strategic and key in _MERGE_KEYS and isinstance(value, list):
            merged[key] = _merge_list(merged.get(key) or [], value, _MERGE_KEYS[key])
        else:
            merged[key] = value
    return merged


def _merge_list(old: Sequence[Json], new: Sequence[Json], by: str) -> list[Json]:
    merged = {item.get(by): item for item in old}
    for item in new:
        if item.get("$patch") == "delete":
            merged.pop(item.get(by), None)
        else:
            merged[item.get(by)] = _merge(merged.get(item.get(by)), item, strategic=True)
    return list(merged.values())


def _json_patch(obj: Json, operations: Any) -> Json:
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    for operation in operations:
        try:
            obj = _operate(obj, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise bad_request(f"the JSON patch cannot be applied: {error!r}") from None
    return obj


def _operate(obj: Json, operation: Mapping[str, Any]) -> Json:
    path = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    parent: Any = obj
    for part in path[:-1]:
        parent = parent[int(part)] if isinstance(parent, list) else parent[part]
    last: Any = path[-1]
    if isinstance(parent, list):
        last = len(parent) if last == "-" else int(last)
    kind = operation["op"]
    if kind == "test":
        if parent[last] != operation["value"]:
            raise ValueError(f"test of {operation['path']} failed")
    elif kind == "remove":
        del parent[last]
    elif kind == "add" and isinstance(parent, list):
        parent.insert(last, operation["value"])
    elif kind in ("add", "replace"):
        parent[last] = operation["value"]
    else:
        raise ValueError(f"operation {kind!r} is not known")
    return obj
