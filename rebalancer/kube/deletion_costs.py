"""Write deletion costs on pods, and remove them; costs of other clients are never changed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.evict import GET_POD
from rebalancer.kube.failures import says_missing
from rebalancer.kube.resources import AccessRule
from rebalancer.plan.deletion_costs import GONE, WRITTEN, CostChange, DeletionCosts
from rebalancer.wire.kinds import PODS
from rebalancer.wire.pods import DELETION_COST, OUR_DELETION_COST

CHANGE_POD = AccessRule.of("patch", PODS)
"""Right needed by a run whose policy has deletion-cost."""

OF_OTHERS = "another client has written a deletion cost meanwhile"
_CHANGED = "it changes faster than it can be written"
_ATTEMPTS = 3
_AT_ONCE = 4
_SECONDS = 5.0


class _Meta(msgspec.Struct, rename="camel"):
    uid: str
    resource_version: str
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _Meta


_decoder = msgspec.json.Decoder(_Pod)


def write_costs(
    client: Client, costs: DeletionCosts, ended: Callable[[], str | None]
) -> DeletionCosts:
    """Make the changes, several at once; return them with their outcomes. ``ended`` returns why no more may be made, or None."""

    def write(change: CostChange) -> CostChange:
        why = ended()
        return replace(change, outcome=_write(client, change) if why is None else why)

    with ThreadPoolExecutor(_AT_ONCE, "deletion-costs") as pool:
        return replace(costs, changes=tuple(pool.map(write, costs.changes)))


def _write(client: Client, change: CostChange) -> str:
    try:
        for _ in range(_ATTEMPTS):
            if (outcome := _try(client, change)) is not None:
                return outcome
    except ClusterReadError as error:
        return str(error)
    return _CHANGED


def _try(client: Client, change: CostChange) -> str | None:
    """Read the pod, and write if it is as planned; return the outcome, or None if it changed in between."""
    path = PODS.path(change.namespace, change.pod)
    response = client.get(path, seconds=_SECONDS)
    if says_missing(response.status, response.body):
        return GONE
    body = client.expect(response, GET_POD).body
    try:
        metadata = _decoder.decode(body).metadata
    except (ValueError, RecursionError) as error:
        return f"the API server's answer is not a pod: {error}"
    if metadata.uid != change.uid or metadata.deletion_timestamp is not None:
        return GONE
    kept = metadata.annotations or {}
    if kept.get(DELETION_COST) != kept.get(OUR_DELETION_COST):
        return OF_OTHERS
    response = client.patch(path, _body(metadata, change.value), seconds=_SECONDS)
    if response.status == 409:  # Conflict
        return None
    if says_missing(response.status, response.body):
        return GONE
    client.expect(response, CHANGE_POD)
    return WRITTEN


def _body(metadata: _Meta, value: int | None) -> bytes:
    """Return the merge patch, which the API server refuses if the pod is another one, or has changed."""
    text = None if value is None else str(value)
    patched: dict[str, Any] = {
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
        "annotations": {DELETION_COST: text, OUR_DELETION_COST: text},
    }
    return msgspec.json.encode({"metadata": patched})
