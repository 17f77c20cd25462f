"""Read the PodGroups of Kubernetes, coscheduling, Volcano and KAI, each where its API is served and we may list it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.access import list_pod_groups
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError, NotServedError
from rebalancer.snapshot.model import PodGroup, PodGroupKey, Snapshot
from rebalancer.snapshot.pod_groups import fold_pod_groups, groups_of_use
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import ALL_POD_GROUPS, POD_GROUPS, Resource
from rebalancer.wire.lists import decode_objects


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


def _matters(client: Client, resource: Resource, error: ClusterReadError) -> bool:
    """Return whether PodGroups are there that could not be read.

    A right may be missing on what no server has: which versions it serves is said to everybody, whatever their rights.

    Raises:
        ClusterReadError: ``error``, if it is about those of Kubernetes and no missing right. A project whose API is broken stops no run.
    """
    if not isinstance(error, ForbiddenError):
        if resource.group == POD_GROUPS.group:
            raise error
        return True
    return client.get(f"/apis/{resource.api_version}").ok


def _without(resource: Resource) -> str:
    """Return a note on pods whose PodGroups may not be read: the consequence for them."""
    if resource.group == POD_GROUPS.group:
        return "pods of PodGroups stay, which could not be read"
    return f"gangs of {resource.group} move as a whole or not at all, since their PodGroups could not be read"


def find_pod_groups(
    client: Client, version: tuple[int, int]
) -> tuple[tuple[Resource, ...], tuple[str, ...]]:
    """Return the kinds of PodGroups that the server serves and we may list; and what a file without the others has to say.

    Raises:
        ClusterReadError: it is not known whether it serves those of Kubernetes.
    """
    found: list[Resource] = []
    notes: list[str] = []
    for resource in ALL_POD_GROUPS:
        served = _in_served_version(resource, version)
        try:
            client.expect(client.get(served.path(), query={"limit": 1}), list_pod_groups(resource))
        except NotServedError:
            continue
        except ClusterReadError as error:
            note = f"in plans on the file {_without(resource)}: {error}"
            notes += [note] * _matters(client, served, error)
            continue
        found.append(served)
    return tuple(found), tuple(notes)
