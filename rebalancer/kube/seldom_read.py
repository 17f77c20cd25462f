"""Read kinds that few runs need, and detect kinds that few servers have.

Attached volumes, groups of pods, Karpenter's NodeClaims, devices and claims for them (dynamic resource allocation), policies of
namespaces, and CapacityBuffers with their PodTemplates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from msgspec import Raw

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.access import list_pod_groups
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError, NotServedError
from rebalancer.kube.lists import list_whole
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Response
from rebalancer.policy.namespace import CONFIG_MAP, KEY, MAX_TEXT
from rebalancer.snapshot.buffers import fold_buffers
from rebalancer.snapshot.device_requests import DeviceObjects, find_provided, list_asked
from rebalancer.snapshot.devices import claims_devices, is_unoffered, with_devices
from rebalancer.snapshot.karpenter import POOL, NodeClaim, fold_node_claims
from rebalancer.snapshot.model import Buffer, PodGroup, PodGroupKey, Snapshot
from rebalancer.snapshot.pod_groups import fold_pod_groups, groups_of_use
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import (
    ALL_POD_GROUPS,
    CAPACITY_BUFFERS,
    CONFIG_MAPS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    KARPENTER,
    OF_DEVICES,
    POD_GROUPS,
    POD_TEMPLATES,
    VOLUME_ATTACHMENTS,
    Resource,
)
from rebalancer.wire.lists import JsonDecoder, decode_objects, decode_raw, item_decoder
from rebalancer.wire.objects import ListMeta


def list_attachments(client: Client, node: str) -> list[str]:
    """Return the names of the volumes that are attached to a node, or are being detached from it, sorted.

    The API server selects them by no field of theirs, so that those of all nodes are listed, in pages.

    Raises:
        ForbiddenError: we may not list them.
        ClusterReadError: they could not be listed.
    """
    return sorted(
        one.spec.source.persistent_volume_name or one.metadata.name
        for one in list_whole(client, VOLUME_ATTACHMENTS, _decode_attachments)
        if one.spec.node_name == node
    )


class _Meta(msgspec.Struct):
    name: str


class _Source(msgspec.Struct, rename="camel"):
    persistent_volume_name: str | None = None
    """None if the volume is defined in a pod."""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str
    source: _Source


class _Attachment(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


class _Page(msgspec.Struct):
    items: tuple[_Attachment, ...] | None
    metadata: ListMeta


_pages = JsonDecoder(_Page)


def _decode_attachments(response: Response) -> tuple[tuple[_Attachment, ...], ListMeta]:
    page = _pages.decode(response.body)
    return page.items or (), page.metadata


def _in_served_version(groups: Resource, version: tuple[int, int]) -> Resource:
    """Return a resource of PodGroups in the version that an API server of ``version`` serves."""
    older = groups is POD_GROUPS and version < (1, 37)
    return replace(groups, version="v1alpha2") if older else groups


def read_pod_groups(
    client: Client, snapshot: Snapshot
) -> tuple[Mapping[PodGroupKey, PodGroup], tuple[str, ...]]:
    """Return the PodGroups that pods of ``snapshot`` name, and notes on those that may not be read.

    One list per API group and namespace; without such pods no request is sent. What the API server does not serve is no error.

    Raises:
        ClusterReadError: those of Kubernetes could not be read.
    """
    named = sorted({(group, namespace) for namespace, group, _ in groups_of_use(snapshot)})
    found: list[o.PodGroupObject] = []
    notes: list[str] = []
    for resource in ALL_POD_GROUPS:
        served = _in_served_version(resource, snapshot.version)
        try:
            for group, namespace in named:
                if group == resource.group:
                    found += _list_pod_groups(client, served, namespace)
        except NotServedError:
            continue
        except ClusterReadError as error:
            notes += [f"{_without(resource)}: {error}"] * _matters(client, served, error)
    return fold_pod_groups(found, snapshot.classes), tuple(notes)


def _list_pod_groups(
    client: Client, resource: Resource, namespace: str
) -> tuple[o.PodGroupObject, ...]:
    body = client.expect(client.get(resource.path(namespace)), list_pod_groups(resource)).body
    try:
        listed, _ = decode_objects(POD_GROUPS.kind, body)
    except msgspec.DecodeError:
        what = f"PodGroups of {resource.group}"
        raise ClusterReadError(f"what was answered for {what} is no list of them") from None
    return listed


_OF_KUBERNETES = frozenset({POD_GROUPS.group, OF_DEVICES[0].group})


def _matters(client: Client, resource: Resource, error: ClusterReadError) -> bool:
    """Return whether objects may exist that could not be read.

    A right may be missing for a kind that the server does not serve: every client may read which versions it serves.

    Raises:
        ClusterReadError: ``error``, if it concerns kinds of Kubernetes and no missing right. A broken API of another project stops no run.
    """
    if not isinstance(error, ForbiddenError):
        if resource.group in _OF_KUBERNETES:
            raise error
        return True
    served = client.get(f"/apis/{resource.api_version}")
    if resource.plural == DEVICE_TAINT_RULES.plural:
        # It is switched on by itself in a version that has other kinds.
        return served.ok and f'"{resource.plural}"'.encode() in served.body
    return served.ok


def _without(resource: Resource) -> str:
    """Return a note on pods whose PodGroups may not be read: the consequence for them."""
    if resource.group == POD_GROUPS.group:
        return "pods of PodGroups stay, which could not be read"
    return f"gangs of {resource.group} move as a whole or not at all, since their PodGroups could not be read"


def find_pod_groups(
    client: Client, version: tuple[int, int]
) -> tuple[tuple[Resource, ...], tuple[str, ...]]:
    """Return the kinds of PodGroups as :func:`_find` does; raises ClusterReadError for those of Kubernetes."""
    return _find(client, [_in_served_version(one, version) for one in ALL_POD_GROUPS], _without)


def _find(
    client: Client,
    resources: Iterable[Resource],
    without: Callable[[Resource], str],
    *,
    together: bool = False,
) -> tuple[tuple[Resource, ...], tuple[str, ...]]:
    """Return the kinds that the server serves and we may list; and what a file without the others has to say.

    ``without``: returns the consequence for plans. ``together``: without one of them the others are of no use.

    Raises:
        ClusterReadError: it is not known whether the server has kinds of Kubernetes itself.
    """
    found: list[Resource] = []
    notes: list[str] = []
    for resource in resources:
        rule = AccessRule.of("list", resource)
        try:
            client.expect(client.get(resource.path(), query={"limit": 1}), rule)
        except NotServedError:
            continue
        except ClusterReadError as error:
            matters = _matters(client, resource, error)
            notes += [f"in plans on the file {without(resource)}: {error}"] * matters
            if together and matters:
                return (), tuple(notes)
            continue
        found.append(resource)
    return tuple(found), tuple(notes)


_NO_CLAIMS = "nodes that Karpenter may take next are not known, since its NodeClaims and NodePools could not be read"


def read_node_claims(
    client: Client, snapshot: Snapshot
) -> tuple[tuple[NodeClaim, ...] | None, tuple[str, ...]]:
    """Return Karpenter's NodeClaims, and a note if they may not be read; None where no node is Karpenter's, or they were not read.

    Without nodes of Karpenter's no request is sent.
    """
    if POOL not in snapshot.nodes.labels.keys:
        return None, ()
    try:
        claims, pools = (list_whole(client, resource) for resource in KARPENTER)
    except NotServedError:
        return None, ()
    except ClusterReadError as error:
        notes = (f"{_NO_CLAIMS}: {error}",)
        return None, notes * _matters(client, KARPENTER[0], error)
    return fold_node_claims(claims, pools, snapshot.captured_at), ()


def find_karpenter(client: Client) -> tuple[tuple[Resource, ...], tuple[str, ...]]:
    """Return the kinds of Karpenter's as :func:`_find` does."""
    return _find(client, KARPENTER, lambda _: _NO_CLAIMS, together=True)


DEVICE_RULES = tuple(AccessRule.of("list", one) for one in OF_DEVICES)
"""Rights to read devices and claims. Runs use them if pods have claims, ``snapshot`` always; without them such pods are not moved."""
_STAY = "pods with resource claims, or with extended resources that no node offers, stay: devices could not be read"


def read_devices(client: Client, snapshot: Snapshot) -> tuple[Snapshot, tuple[str, ...]]:
    """Return the snapshot with the devices that pods have and request, and notes on what may not be read.

    Without pods with claims, or with extended resources, no request is sent. For extended resources DeviceClasses are read,
    and the other kinds if a DeviceClass provides such a resource. Without the right, a node's resource is assumed to be a device plug-in's.

    Raises:
        ClusterReadError: a list could not be read, for another reason than a missing right.
    """
    claiming, asked = claims_devices(snapshot), list_asked(snapshot)
    if not claiming and not asked:
        return snapshot, ()
    try:
        if not claiming:
            classes = _list_served(client, DEVICE_CLASSES)
            if not find_provided(snapshot, classes or ()):
                none = DeviceObjects((), (), (), classes)
                return with_devices(snapshot, none), ()
        lists = [_list_served(client, one) for one in list_device_kinds(snapshot.version)]
    except ForbiddenError as error:
        stay = claiming or any(is_unoffered(snapshot, row) for row in asked)
        return snapshot, (f"{_STAY}: {error}",) * stay
    return with_devices(snapshot, DeviceObjects(*lists)), ()


def list_device_kinds(version: tuple[int, int]) -> tuple[Resource, ...]:
    """Return the kinds in the version that an API server of ``version`` serves."""
    rules = DEVICE_TAINT_RULES
    older = replace(rules, version="v1beta2") if version < (1, 37) else rules
    return tuple(older if one is rules else one for one in OF_DEVICES)


def find_devices(client: Client, version: tuple[int, int]) -> tuple[Resource, ...]:
    """Return the kinds of devices as :func:`_find` does, without notes: plans on a file name what it lacks at pods with claims."""
    return _find(client, list_device_kinds(version), lambda _: _STAY, together=True)[0]


def _list_served(client: Client, resource: Resource) -> list[Any] | None:
    """Return the objects of a kind; None where the server does not serve it.

    Raises:
        ClusterReadError: they could not be read, or may not be.
    """
    try:
        return list_whole(client, resource)
    except NotServedError:
        return None
    except ForbiddenError as error:
        # The others are there wherever pods have claims.
        if resource.plural != DEVICE_TAINT_RULES.plural or _matters(client, resource, error):
            raise
        return None


NAMESPACE_POLICY_RULES = (AccessRule.of("list", CONFIG_MAPS, name=CONFIG_MAP),)
"""For a run, dry or not, whose policy has ``namespacePolicies``. RBAC grants a list of one name to a request for that name."""


class _PolicyConfigMap(msgspec.Struct):
    metadata: o.ObjectMeta
    data: dict[str, str] | None = None


class _PolicyConfigMaps(msgspec.Struct):
    metadata: ListMeta
    items: tuple[_PolicyConfigMap, ...] | None = None


@dataclass(frozen=True, slots=True)
class ListedPolicy:
    """The text of a namespace's policy, and its ConfigMap."""

    metadata: o.ObjectMeta
    text: str | None
    """The policy's text, cut off if it is too long; None: the ConfigMap has no such key."""


_POLICIES_AT_ONCE = 20
"""ConfigMaps in a page: one may have a MiB."""


def _decode_policies(response: Response) -> tuple[list[ListedPolicy], ListMeta]:
    page = msgspec.json.decode(response.body, type=_PolicyConfigMaps)
    found = page.items or ()
    texts = ((one.data or {}).get(KEY) for one in found)
    cut = (text if text is None else text[: MAX_TEXT + 1] for text in texts)
    return [
        ListedPolicy(one.metadata, text) for one, text in zip(found, cut, strict=True)
    ], page.metadata


def list_namespace_policies(client: Client, namespace: str = "") -> list[ListedPolicy]:
    """Return the policies of namespaces, by namespace; those of all if none is named.

    Raises:
        ClusterReadError: they could not be read, or may not be.
    """
    found = list_whole(
        client,
        CONFIG_MAPS,
        _decode_policies,
        page_size=_POLICIES_AT_ONCE,
        selector=f"metadata.name={CONFIG_MAP}",
        namespace=namespace,
    )
    return sorted(found, key=lambda one: one.metadata.namespace)


_VERSIONS = ("v1beta1", "v1alpha1")
LIST_BUFFERS = AccessRule.of("list", CAPACITY_BUFFERS)
GET_TEMPLATES = AccessRule.of("get", POD_TEMPLATES)
BUFFER_RULES = (LIST_BUFFERS, GET_TEMPLATES)
"""Rights needed by a run, dry or not, whose policy counts buffers (``capacity.buffers``)."""


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
