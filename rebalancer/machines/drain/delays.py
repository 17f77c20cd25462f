"""What the end of an empty node's machine waits for, for a time: annotations of other clients, and attached volumes."""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.base.plain_text import and_more
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.nodes import read_node
from rebalancer.kube.seldom_read import list_attachments

MAX_DELAY = 120.0
"""Seconds for which an empty node is waited for at most (Cluster Autoscaler's ``--node-deletion-delay-timeout``), as
there: then its machine is ended all the same."""
EXCLUDED = 15.0
"""Seconds from the node's exclusion from load balancers to its end: connections that come through the node would break."""
_DELAYS = "delay-deletion.cluster-autoscaler.kubernetes.io/"
"""How the annotations begin by which clients delay the end of a machine (Cluster Autoscaler's FAQ)."""
_SHOWN = 2


def delay_of(client: Client, name: str, warn: Callable[[str], None]) -> str | None:
    """Return why the end of an empty node's machine is delayed; None if it is not.

    A client may ask for a delay by an annotation, such as Cluster Autoscaler's; and a volume that is still attached
    could not be attached elsewhere for minutes. The node's status names a volume until its detachment begins, the
    VolumeAttachment stands until it has ended (the attach-detach controller's reconciler). Without the right to list
    these the status has to do, and ``warn`` gets a sentence that says so.

    Raises:
        ClusterReadError: the node or the VolumeAttachments could not be read.
    """
    node = read_node(client, name)
    if node is None:
        return None
    for key in sorted(node.annotations):
        if key.startswith(_DELAYS):
            return f"it is annotated {key}"
    if node.volumes:
        return f"volumes are attached to it: {and_more(node.volumes, _SHOWN)}"
    try:
        attached = list_attachments(client, name)
    except ForbiddenError as error:
        warn(f"VolumeAttachments are not waited for: {error}")
        return None
    return f"volumes are detached from it: {and_more(attached, _SHOWN)}" if attached else None
