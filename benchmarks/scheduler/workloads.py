"""Nodes of three zones and workloads with every common scheduling rule, for landings after evictions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.controlplane import objects

ZONES = ("zone-a", "zone-b", "zone-c")


def manifests(rng: random.Random, nodes: int) -> Iterator[dict[str, Any]]:
    """Yield nodes of three zones and workloads that fill about half of them."""
    for index in range(nodes):
        yield objects.node(
            f"node-{index:04d}",
            zone=ZONES[index % 3],
            cpu=rng.choice(("8", "16")),
            memory=rng.choice(("32Gi", "64Gi")),
            taints=[{"key": "slow", "effect": "PreferNoSchedule"}] if rng.random() < 0.1 else (),
        )
    for index in range(max(12, nodes // 2)):
        name = f"app-{index:03d}"
        labels = {"app": name}
        make = objects.statefulset if index % 6 == 5 else objects.deployment
        yield make(
            name,
            rng.randint(3, 9),
            labels=labels,
            cpu=rng.choice(("130m", "270m", "550m", "1100m")),
            memory=rng.choice(("200Mi", "700Mi", "1500Mi", "3Gi")),
            **_wish(rng, labels),
        )


def _wish(rng: random.Random, labels: dict[str, str]) -> dict[str, Any]:
    return rng.choice(
        (
            {},
            {"topologySpreadConstraints": [objects.spread(labels, hard=False)]},
            {"topologySpreadConstraints": [objects.spread(labels)]},
            {"affinity": objects.prefer_apart(labels, objects.HOSTNAME)},
            {"affinity": objects.prefer_apart(labels, objects.ZONE)},
            {"affinity": objects.require_apart(labels)},
        )
    )
