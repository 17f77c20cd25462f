"""What a node counts of a pod whose resources were changed in place (KEP-1287), as kube-scheduler does.

Source: ``k8s.io/component-helpers/resource/helpers.go`` (``determineEffectiveRequests``).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from rebalancer.wire.objects import ResourceRequirements
from rebalancer.wire.quantity import parse_resource

Amounts = Mapping[str, str | int | float]


def is_infeasible(kind: str, reason: str) -> bool:
    """Return whether a condition of a pod says that its node can never grant the resize."""
    return kind == "PodResizePending" and reason == "Infeasible"


def count_resized(
    asked: ResourceRequirements | None,
    actual: ResourceRequirements | None,
    allocated: Amounts | None,
    *,
    infeasible: bool,
) -> ResourceRequirements | None:
    """Return the resources of a spec with the requests that count; None if they count as they are.

    The largest of those ``asked`` for, in effect and allocated count, by resource. What is asked for does not where it
    is ``infeasible``: else whoever may resize a pod could fill a node on paper.
    """
    if actual is None:
        return None
    spec = asked or ResourceRequirements()
    wanted, parts = spec.requests or {}, [actual.requests or {}, allocated or {}]
    try:
        counted = _largest(parts if infeasible else [wanted, *parts])
    except ValueError:
        return None
    return None if counted == wanted else replace(spec, requests=counted)


def _largest(parts: list[Mapping[str, str | int | float]]) -> dict[str, str | int | float]:
    counted: dict[str, str | int | float] = {}
    for amounts in parts:
        for name, amount in amounts.items():
            known = counted.get(name)
            if known is None or parse_resource(name, amount) > parse_resource(name, known):
                counted[name] = amount
    return dict(sorted(counted.items()))
