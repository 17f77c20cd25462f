"""Read the CapacityBuffers of a cluster, and the PodTemplates that they name."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import NotServedError
from rebalancer.kube.resources import AccessRule
from rebalancer.snapshot.buffers import resolve_buffer
from rebalancer.snapshot.model import Buffer, Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import CAPACITY_BUFFERS, POD_TEMPLATES
from rebalancer.wire.lists import decode_buffers, decode_pod_template

_VERSIONS = ("v1beta1", "v1alpha1")
LIST_BUFFERS = AccessRule("list", CAPACITY_BUFFERS.group, CAPACITY_BUFFERS.plural)
GET_TEMPLATES = AccessRule("get", POD_TEMPLATES.group, POD_TEMPLATES.plural)
BUFFER_RULES = (LIST_BUFFERS, GET_TEMPLATES)
"""For a run, dry or not, whose policy counts buffers (``capacity.buffers``)."""


def read_buffers(client: Client, snapshot: Snapshot) -> tuple[tuple[Buffer, ...], tuple[str, ...]]:
    """Return the buffers of a cluster by namespace and name, and notes on those that do not count.

    Without the CustomResourceDefinition there are none.

    Raises:
        ClusterReadError: they could not be read, or may not be.
    """
    found: list[Buffer] = []
    notes: list[str] = []
    for one in sorted(_list(client), key=lambda of: (of.metadata.namespace, of.metadata.name)):
        resolved = resolve_buffer(one, _read_template(client, one), snapshot)
        if isinstance(resolved, Buffer):
            found.append(resolved)
        else:
            where = f"{one.metadata.namespace}/{one.metadata.name}"
            notes.append(f"the CapacityBuffer {where} does not count: {resolved}")
    return tuple(found), tuple(notes)


def _list(client: Client) -> tuple[o.CapacityBuffer, ...]:
    for version in _VERSIONS:
        resource = replace(CAPACITY_BUFFERS, version=version)
        try:
            body = client.expect(client.get(resource.path()), LIST_BUFFERS).body
            return decode_buffers(body)
        except NotServedError:
            continue
        except msgspec.DecodeError as error:
            raise ClusterReadError(f"CapacityBuffers could not be read: {error}") from None
    return ()


def _read_template(client: Client, of: o.CapacityBuffer) -> o.PodTemplate | None:
    if of.spec.pod_template_ref is None:
        return None
    path = POD_TEMPLATES.path(of.metadata.namespace, of.spec.pod_template_ref.name)
    try:
        return decode_pod_template(client.expect(client.get(path), GET_TEMPLATES).body)
    except NotServedError:
        return None
    except msgspec.DecodeError as error:
        raise ClusterReadError(f"a PodTemplate could not be read: {error}") from None
