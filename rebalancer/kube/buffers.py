"""Read the CapacityBuffers of a cluster, and the PodTemplates that they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from msgspec import Raw

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import NotServedError
from rebalancer.kube.resources import AccessRule
from rebalancer.snapshot.buffers import fold_buffers
from rebalancer.snapshot.model import Buffer, Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import CAPACITY_BUFFERS, POD_TEMPLATES
from rebalancer.wire.lists import decode_raw, item_decoder

_VERSIONS = ("v1beta1", "v1alpha1")
LIST_BUFFERS = AccessRule("list", CAPACITY_BUFFERS.group, CAPACITY_BUFFERS.plural)
GET_TEMPLATES = AccessRule("get", POD_TEMPLATES.group, POD_TEMPLATES.plural)
BUFFER_RULES = (LIST_BUFFERS, GET_TEMPLATES)
"""For a run, dry or not, whose policy counts buffers (``capacity.buffers``)."""


def read_buffers(client: Client, snapshot: Snapshot) -> tuple[Buffer, ...]:
    """Return the buffers of a cluster by namespace and name; without the CustomResourceDefinition there are none.

    Raises:
        ClusterReadError: they could not be read, or may not be.
    """
    buffers, templates = read_raw_buffers(client)
    of_template = item_decoder(POD_TEMPLATES.kind)
    return fold_buffers(map(_decode, buffers), map(of_template.decode, templates), snapshot)


def read_raw_buffers(client: Client) -> tuple[Sequence[Raw], Sequence[bytes]]:
    """Return the CapacityBuffers, and the PodTemplates that they name, as the API server sends them; errors as :func:`read_buffers`."""
    buffers = _list(client)
    refs = {
        (one.metadata.namespace, one.spec.pod_template_ref.name)
        for one in map(_decode, buffers)
        if one.spec.pod_template_ref is not None
    }
    templates = (_read_template(client, *ref) for ref in sorted(refs))
    return buffers, [one for one in templates if one is not None]


def _list(client: Client) -> Sequence[Raw]:
    for version in _VERSIONS:
        resource = replace(CAPACITY_BUFFERS, version=version)
        try:
            items, _ = decode_raw(client.expect(client.get(resource.path()), LIST_BUFFERS).body)
        except NotServedError:
            continue
        except msgspec.DecodeError as error:
            raise ClusterReadError(f"CapacityBuffers could not be read: {error}") from None
        return items
    return ()


def _decode(item: Raw) -> o.CapacityBuffer:
    try:
        decoded: o.CapacityBuffer = item_decoder(CAPACITY_BUFFERS.kind).decode(item)
    except msgspec.DecodeError as error:
        raise ClusterReadError(f"CapacityBuffers could not be read: {error}") from None
    return decoded


def _read_template(client: Client, namespace: str, name: str) -> bytes | None:
    """Return a PodTemplate; None if there is none of that name."""
    try:
        body = client.expect(client.get(POD_TEMPLATES.path(namespace, name)), GET_TEMPLATES).body
        item_decoder(POD_TEMPLATES.kind).decode(body)
    except NotServedError:
        return None
    except msgspec.DecodeError as error:
        raise ClusterReadError(f"a PodTemplate could not be read: {error}") from None
    return body
