"""Delete a pod: only for the interruption step ``escalate``, which a policy must enable."""

from __future__ import annotations

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import status_of
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import PODS

DELETE = AccessRule("delete", "", PODS.plural)
_SECONDS = 10.0


def delete_pod(client: Client, namespace: str, name: str, uid: str, *, grace: int) -> str | None:
    """Delete the pod if it still has this ``uid``; return None, or why it was not deleted.

    A pod that is gone counts as deleted, also if another pod has its name now. ``grace``: grace period in seconds.
    """
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": grace,
        "preconditions": {"uid": uid},
    }
    try:
        response = client.delete(
            PODS.path(namespace, name), msgspec.json.encode(options), seconds=_SECONDS
        )
        if response.status in (404, 409) and status_of(response.body).code == response.status:
            return None
        client.expect(response, DELETE)
    except ClusterReadError as error:
        return str(error).splitlines()[0]
    return None
