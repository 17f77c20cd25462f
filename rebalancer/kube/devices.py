"""Read what resource claims need: claims, templates, slices, classes and taint rules (dynamic resource allocation)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError, NotServedError
from rebalancer.kube.lists import PAGE, Listing, read_pages
from rebalancer.kube.resources import AccessRule
from rebalancer.snapshot.devices import DeviceObjects, needs_devices, with_devices
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.kinds import DEVICE_TAINT_RULES, OF_DEVICES, Resource
from rebalancer.wire.lists import decode_objects

DEVICE_RULES = tuple(AccessRule("list", one.group, one.plural) for one in OF_DEVICES)
"""Rights to read devices and claims. Runs use them where pods have claims, ``snapshot`` always; without them such pods stay."""
_STAY = "pods with resource claims, or with extended resources that no node offers, stay"


def read_devices(client: Client, snapshot: Snapshot) -> tuple[Snapshot, tuple[str, ...]]:
    """Return the snapshot with the devices that pods have and ask for, and notes on what may not be read.

    Without pods with claims no request is sent.

    Raises:
        ClusterReadError: a list could not be read, for another reason than a missing right.
    """
    if not needs_devices(snapshot):
        return snapshot, ()
    try:
        lists = [_list(client, one) for one in of_version(snapshot.version)]
    except ForbiddenError as error:
        return snapshot, (f"{_STAY}: devices could not be read: {error}",)
    return with_devices(snapshot, DeviceObjects(*lists)), ()


def of_version(version: tuple[int, int]) -> tuple[Resource, ...]:
    """Return the kinds in the version that an API server of ``version`` serves."""
    rules = DEVICE_TAINT_RULES
    older = replace(rules, version="v1beta2") if version < (1, 37) else rules
    return tuple(older if one is rules else one for one in OF_DEVICES)


def find_devices(client: Client, version: tuple[int, int]) -> tuple[Resource, ...]:
    """Return the kinds that the server serves and we may list; none without the right to list them all.

    Whether pods have claims is not known then. Plans on a file without them name what is lacking.
    """
    found: list[Resource] = []
    for resource in of_version(version):
        rule = AccessRule("list", resource.group, resource.plural)
        try:
            client.expect(client.get(resource.path(), query={"limit": 1}), rule)
        except NotServedError:
            continue
        except ForbiddenError:
            return ()
        found.append(resource)
    return tuple(found)


def _list(client: Client, resource: Resource) -> Sequence[Any] | None:
    """Return the objects of a kind; None where the server does not serve it."""
    try:
        pages = read_pages(
            client,
            Listing(resource),
            lambda response: decode_objects(resource.kind, response.body),
            page_size=PAGE,
            may_restart=False,
        )
        return [one for page in pages for one in page]
    except NotServedError:
        return None
