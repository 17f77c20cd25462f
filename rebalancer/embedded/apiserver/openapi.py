"""The part of ``/openapi/v3`` by which kubectl learns that a server itself looks at the fields of a manifest.

Without it ``kubectl create`` and ``apply`` want the whole schema, unless they are called with ``--validate=false``. The
embedded server keeps fields that it does not know; it refuses none.
"""

from __future__ import annotations

from rebalancer.embedded.apiserver.kinds import KINDS, Json, Kind

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
