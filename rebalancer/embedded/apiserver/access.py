"""Authentication by bearer token, and rights that tests deny one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rebalancer.embedded.apiserver import status
from rebalancer.embedded.apiserver.kinds import Json, Kind, Target

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass
class AccessControl:
    """Maps tokens to user names; every user may do everything that is not denied."""

    tokens: dict[str, str] = field(default_factory=dict)
    anonymous: bool = False
    """Whether requests without a token are let in: kubectl sends none without TLS."""
    denied: set[tuple[str, str]] = field(default_factory=set)
    """(verb, resource) such as ``("create", "pods/eviction")`` or ``("list", "deployments.apps")``."""

    def user(self, authorization: str) -> str:
        """Return the user of an Authorization header; 401 if its token is unknown."""
        if self.anonymous and not authorization:
            return "system:anonymous"
        scheme, _, token = authorization.partition(" ")
        user = self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise status.unauthorized()
        return user

    def check(self, user: str, verb: str, target: Target) -> None:
        """Raise 403 with the server's text if this verb is denied."""
        resource = _resource(target.kind, target.subresource)
        if (verb, resource) not in self.denied:
            return
        plural = resource.removesuffix(f".{target.kind.group}")
        where = (
            f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        )
        why = f'User "{user}" cannot {verb} resource "{plural}" in API group "{target.kind.group}" {where}'
        raise status.forbidden(target.kind, target.name, why)

    def review(self, review: Mapping[str, Any]) -> Json:
        """Answer a SelfSubjectAccessReview."""
        attributes = (review.get("spec") or {}).get("resourceAttributes") or {}
        group = f".{attributes['group']}" if attributes.get("group") else ""
        resource = f"{attributes.get('resource', '')}{group}"
        if attributes.get("subresource"):
            resource = f"{attributes.get('resource', '')}/{attributes['subresource']}{group}"
        allowed = (attributes.get("verb", ""), resource) not in self.denied
        return {
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": review.get("spec") or {},
            "status": {"allowed": allowed},
        }


def verb_of(method: str, target: Target, *, watch: bool) -> str:
    """Return the RBAC verb of a request."""
    if method in _VERBS:
        return "deletecollection" if method == "DELETE" and not target.name else _VERBS[method]
    if target.name:
        return "get"
    return "watch" if watch else "list"


def _resource(kind: Kind, subresource: str) -> str:
    plural = f"{kind.plural}/{subresource}" if subresource else kind.plural
    return f"{plural}.{kind.group}" if kind.group else plural
