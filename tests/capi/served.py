"""Waits until clients can see the kinds of CRDs that were applied."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.controlplane import ApiClient, ApiError, ControlPlane, wait_until

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""What client-go asks ``/apis`` for."""

Kind = tuple[str, str, str]
"""API group, version, plural."""


def apply_definitions(plane: ControlPlane, definitions: Sequence[Mapping[str, Any]]) -> None:
    """Apply CRDs, and wait until discovery names their kinds.

    Discovery follows a second after the write, and longer on a busy machine. A controller that asks for its kinds before
    that ends at once ("no matches for kind"): it takes the answer for the truth.
    """
    plane.apply(definitions)
    wanted = {
        (one["spec"]["group"], version["name"], one["spec"]["names"]["plural"])
        for one in definitions
        for version in one["spec"]["versions"]
        if version["served"]
    }
    wait_until(lambda: _names_all(plane.api, wanted), 60, "the kinds of the CRDs served")


def _names_all(api: ApiClient, wanted: set[Kind]) -> bool:
    """Return whether discovery names the kinds in both of its forms: each has its own moment."""
    groups = api.request("GET", "/apis", accept=_AGGREGATED)["items"]
    aggregated = {
        (group["metadata"]["name"], version["version"], one["resource"])
        for group in groups
        for version in group["versions"]
        for one in version.get("resources") or ()
    }
    versions = {kind[:2] for kind in wanted}
    return wanted <= aggregated and wanted <= set().union(*(_listed(api, *of) for of in versions))


def _listed(api: ApiClient, group: str, version: str) -> set[Kind]:
    try:
        resources = api.get(f"/apis/{group}/{version}")["resources"]
    except ApiError:
        return set()
    return {(group, version, one["name"]) for one in resources}
