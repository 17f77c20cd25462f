"""A mixed bag of Deployments, the same for the same seed."""

import random
from collections.abc import Iterator
from typing import Any

from tests.controlplane import objects

_CPU = ("50m", "100m", "250m", "500m")
_MEMORY = ("64Mi", "128Mi", "256Mi", "512Mi", "1Gi")
_FEWEST, _MOST, _USUAL = 2, 20, 3

KINDS = (
    "plain",
    "zone-spread-soft",
    "zone-spread-hard",
    "prefer-other-host",
    "prefer-other-zone",
    "require-other-host",
)
"""Kinds of workloads, by their placement rule."""


def mixed(count: int, seed: int, namespace: str = "default") -> list[dict[str, Any]]:
    """Return so many Deployments of 2 to 20 replicas, every kind in turn, about 500 pods by 60."""
    return list(_mixed(count, random.Random(seed), namespace))


def replicas(manifests: list[dict[str, Any]]) -> int:
    """Return how many pods these workloads will have."""
    return sum(int(manifest["spec"]["replicas"]) for manifest in manifests)


def _mixed(count: int, rng: random.Random, namespace: str) -> Iterator[dict[str, Any]]:
    for index in range(count):
        kind = KINDS[index % len(KINDS)]
        name = f"app-{index:03d}"
        labels = {"app": name, "kind": kind}
        yield objects.deployment(
            name,
            round(rng.triangular(_FEWEST, _MOST, _USUAL)),
            namespace=namespace,
            labels=labels,
            cpu=rng.choice(_CPU),
            memory=rng.choice(_MEMORY),
            **_placement(kind, {"app": name}),
        )


def _placement(kind: str, labels: dict[str, str]) -> dict[str, Any]:
    """Return the placement rules of a kind of workload, as fields of the pod spec."""
    match kind:
        case "zone-spread-soft":
            return {"topologySpreadConstraints": [objects.spread(labels, hard=False)]}
        case "zone-spread-hard":
            return {"topologySpreadConstraints": [objects.spread(labels)]}
        case "prefer-other-host":
            return {"affinity": objects.prefer_apart(labels, objects.HOSTNAME)}
        case "prefer-other-zone":
            return {"affinity": objects.prefer_apart(labels, objects.ZONE)}
        case "require-other-host":
            return {"affinity": objects.require_apart(labels)}
        case _:
            return {}
