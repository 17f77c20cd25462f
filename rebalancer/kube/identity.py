"""Which cluster this is: the uid of its namespace ``kube-system``, which no other cluster has and nobody can set."""

from __future__ import annotations

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import NAMESPACES

_SYSTEM = "kube-system"
_RULE = AccessRule("list", NAMESPACES.group, NAMESPACES.plural)


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    uid: str


class _Namespace(msgspec.Struct, frozen=True):
    metadata: _Metadata


class _Namespaces(msgspec.Struct, frozen=True):
    items: list[_Namespace]


def read_cluster_uid(client: Client) -> str:
    """Return the uid of the namespace ``kube-system``; it is listed, which each run may do.

    Raises:
        ForbiddenError: RBAC denied it; names the rule.
        ClusterReadError: it could not be read.
    """
    query = {"fieldSelector": f"metadata.name={_SYSTEM}"}
    response = client.expect(client.get(NAMESPACES.path(), query=query), _RULE)
    try:
        found = msgspec.json.decode(response.body, type=_Namespaces).items
    except msgspec.MsgspecError as error:
        raise ClusterReadError(f"the namespace {_SYSTEM} cannot be read: {error}") from None
    uid = next((one.metadata.uid for one in found if one.metadata.name == _SYSTEM), "")
    if not uid:
        raise ClusterReadError(f"the cluster has no namespace {_SYSTEM}")
    return uid
