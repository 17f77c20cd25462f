"""A day of load in some minutes: workloads whose replicas rise and fall, each at its own hours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.controlplane import objects

HOURS = 24
_KINDS = ("plain", "soft", "hard", "apart", "kept", "soft", "guarded", "plain")
_CPU = ("250m", "500m", "500m", "1")


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment with its replicas at each hour."""

    name: str
    kind: str
    replicas: Sequence[int]
    objects: Sequence[dict[str, Any]]

    @property
    def spreads(self) -> bool:
        """Whether it asks for an even number of pods in each zone."""
        return self.kind in ("soft", "hard")


def workloads(seed: int, number: int = 10) -> list[Workload]:
    """Return the workloads of a day, the same for the same seed."""
    random = Random(seed)
    return [_workload(random, f"w{index}", _KINDS[index % len(_KINDS)]) for index in range(number)]


def _workload(random: Random, name: str, kind: str) -> Workload:
    labels = {"app": name}
    most, least = random.randint(6, 12), random.randint(1, 3)
    peak, noise = random.uniform(8, 20), 0.25
    replicas = [
        max(
            least,
            round(
                least
                + (most - least)
                * (1 + math.cos((hour - peak) * 2 * math.pi / HOURS))
                / 2
                * random.uniform(1 - noise, 1 + noise)
            ),
        )
        for hour in range(HOURS)
    ]
    spec: dict[str, Any] = {}
    match kind:
        case "soft":
            spec = {"topologySpreadConstraints": [objects.spread(labels, hard=False)]}
        case "hard":
            spec = {"topologySpreadConstraints": [objects.spread(labels)]}
        case "apart":
            spec = {"affinity": objects.prefer_apart(labels, objects.HOSTNAME)}
        case "kept":
            spec = {"pod_annotations": {"karpenter.sh/do-not-disrupt": "true"}}
    made = [
        objects.deployment(name, replicas[0], labels=labels, cpu=random.choice(_CPU), **spec),
    ]
    if kind == "guarded":
        made.append(objects.pdb(name, labels, maxUnavailable=1))
    return Workload(name, kind, replicas, made)
