"""Landings after evictions: predicted before, compared with what the real scheduler did.

``python -m benchmarks.scheduler.landings --nodes 30 --single 60 --waves 3``
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.scheduler.reading import read
from benchmarks.scheduler.workloads import ZONES, manifests
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.prediction import Prediction
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from tests.controlplane import ControlPlane, Options, objects
from tests.controlplane.waiting import wait_until

_WAVE = 20
_PODS = "/api/v1/namespaces/default/pods"
_ATTEMPT = re.compile(r'"Attempting to schedule pod".* pod="default/([^"]+)"')
_BINS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.01)


@dataclass
class Outcomes:
    """What was predicted and what happened, one entry per eviction."""

    zone_hit: list[bool] = field(default_factory=list)
    """The zone is one of those predicted; of decisions with two feasible zones or more."""
    zone_mass: list[float] = field(default_factory=list)
    """Probability that was given to the zone that it became."""
    zones: list[int] = field(default_factory=list)
    """How many zones were predicted."""
    node_hit: list[bool] = field(default_factory=list)
    set_size: list[int] = field(default_factory=list)
    given: list[tuple[float, bool]] = field(default_factory=list)
    """(probability given to a zone, whether it became that zone), all zones of all decisions."""

    def add(self, snapshot: Snapshot, prediction: Prediction, feasible: Any, actual: str) -> None:
        """Note one landing."""
        zone = snapshot.nodes.labels.column(objects.ZONE)
        row = snapshot.nodes.index[actual]
        self.node_hit.append(row in prediction.nodes)
        self.set_size.append(len(prediction.nodes))
        if len(np.unique(zone[feasible])) < 2:
            return
        mass = np.bincount(zone[prediction.nodes], prediction.probability, minlength=len(ZONES))
        self.zone_hit.append(bool(mass[zone[row]] > 0))
        self.zone_mass.append(float(mass[zone[row]]))
        self.zones.append(int((mass > 0).sum()))
        self.given += [(float(p), z == zone[row]) for z, p in enumerate(mass)]

    def report(self) -> str:
        """Return the outcomes in words, with calibration."""
        given = np.array([p for p, _ in self.given])
        hit = np.array([h for _, h in self.given])
        lines = [
            f"evictions {len(self.node_hit)}, with two feasible zones or more {len(self.zone_hit)}",
            f"zone among those predicted {np.mean(self.zone_hit):.3%}",
            f"  mean number of zones predicted {np.mean(self.zones):.2f}",
            f"  mean probability of the zone it became {np.mean(self.zone_mass):.3f}",
            f"node in the predicted set {np.mean(self.node_hit):.3%}",
            f"  mean size {np.mean(self.set_size):.1f}, median {np.median(self.set_size):.0f}",
        ]
        for low, high in itertools.pairwise(_BINS):
            inside = (given > low) & (given <= high) if low else (given <= high)
            if inside.any():
                lines.append(
                    f"  zones given {low:.2f} to {min(high, 1):.2f}: {inside.sum()}, "
                    f"mean given {given[inside].mean():.3f}, happened {hit[inside].mean():.3f}"
                )
        return "\n".join(lines)


class Field:
    """The live cluster, and how to evict from it."""

    def __init__(self, plane: ControlPlane, version: tuple[int, int]) -> None:
        self.api = plane.api
        self.version = version
        self._log = plane.log("kube-scheduler")

    def settle(self) -> list[dict[str, Any]]:
        """Wait until every pod is ready and none is on its way out; return them."""

        def settled() -> list[dict[str, Any]] | None:
            pods = self.api.list_all(_PODS)
            return pods if all(map(_ready, pods)) and self._complete(pods) else None

        pods: list[dict[str, Any]] | None = wait_until(settled, 300, "all pods ready")
        return pods or []

    def _complete(self, pods: list[dict[str, Any]]) -> bool:
        wanted = 0
        for kind in ("deployments", "statefulsets"):
            for workload in self.api.list_all(f"/apis/apps/v1/namespaces/default/{kind}"):
                wanted += workload["spec"]["replicas"]
        return len(pods) == wanted

    def evict(self, name: str) -> None:
        """Evict a pod."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": "default"},
        }
        self.api.post(f"{_PODS}/{name}/eviction", body)

    def attempts(self, names: set[str]) -> list[str]:
        """Return these pods in the order in which the scheduler first tried them."""
        attempts = _ATTEMPT.findall(self._log.read_text(errors="replace"))
        # A pod of a StatefulSet has the name of the one before: the last first attempt counts.
        last = {name: position for position, name in enumerate(attempts) if name in names}
        return sorted(last, key=lambda name: last[name])

    def landings(self, before: set[str], count: int) -> list[dict[str, Any]]:
        """Wait until so many pods that were not there before have a node; return them."""

        def landed() -> list[dict[str, Any]] | None:
            new = [p for p in self.api.list_all(_PODS) if p["metadata"]["uid"] not in before]
            placed = [p for p in new if p["spec"].get("nodeName")]
            return placed if len(placed) >= count else None

        return wait_until(landed, 60, f"{count} replacements on nodes") or []


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def one_at_a_time(place: Field, rng: random.Random, count: int) -> dict[str, Outcomes]:
    """Evict single pods, each from a settled cluster."""
    outcomes = Outcomes()
    for _ in range(count):
        victims = rng.sample(place.settle(), 1)
        wave = Wave(place, victims)
        wave.evict()
        wave.compare(outcomes, wave.names)
    return {"one at a time": outcomes}


def in_waves(place: Field, rng: random.Random, count: int) -> dict[str, Outcomes]:
    """Evict twenty pods at once, of as many owners.

    They are predicted twice: as a plan has to, in the order of eviction, each put where it will most
    probably land; and as it went, in the order of creation, knowing where the earlier ones landed.
    """
    planned, replayed = Outcomes(), Outcomes()
    for _ in range(count):
        pods = place.settle()
        of_owner = {_owner(pod): pod for pod in rng.sample(pods, len(pods))}
        victims = rng.sample(sorted(of_owner.values(), key=_name), min(_WAVE, len(of_owner)))
        wave = Wave(place, victims)
        wave.evict()
        wave.compare(planned, wave.names)
        wave.compare(replayed, wave.created, known=True)
    return {
        f"waves of {_WAVE}, as planned": planned,
        f"waves of {_WAVE}, in the order in which they went": replayed,
    }


class Wave:
    """Some evictions at once: the state before, and the outcome of it."""

    def __init__(self, place: Field, victims: list[dict[str, Any]]) -> None:
        self._place = place
        self.names = [_owner(victim) for victim in victims]
        self._before = {pod["metadata"]["uid"] for pod in place.api.list_all(_PODS)}
        self._snapshot = read(place.api, place.version)
        self._model = SchedulerModel(self._snapshot, SchedulerProfile.for_version(place.version))
        rows = {name: row for row, name in enumerate(self._snapshot.pods.name)}
        self._victims = {_owner(victim): rows[_name(victim)] for victim in victims}
        self._landed: dict[str, str] = {}
        self.created: list[str] = []
        """Owners in the order in which their replacements came before the scheduler."""

    def evict(self) -> None:
        """Evict, and wait for the replacements."""
        for owner in self.names:
            self._place.evict(self._snapshot.pods.name[self._victims[owner]])
        landings = self._place.landings(self._before, len(self.names))
        owner_of = {_name(pod): _owner(pod) for pod in landings}
        self._landed = {_owner(pod): pod["spec"]["nodeName"] for pod in landings}
        self.created = [owner_of[name] for name in self._place.attempts(set(owner_of))]

    def compare(self, outcomes: Outcomes, order: list[str], *, known: bool = False) -> None:
        """Predict in this order; a prediction is placed where it landed if that is ``known``."""
        snapshot, state = self._snapshot, ClusterState(self._snapshot)
        for row in self._victims.values():
            state.evict(row)
        terminating_pods = dict(zip(self.names, state.terminating_pods, strict=True))
        # Those that wait for their victim to be gone come last. All victims have the same grace, so
        # the ones that were evicted earlier are gone by then, and the later ones are not.
        for owner in sorted(order, key=self._waits):
            row = self._victims[owner]
            if self._waits(owner):
                for earlier in self.names[: self.names.index(owner) + 1]:
                    if earlier in terminating_pods:
                        state.reap(terminating_pods.pop(earlier))
            cls = snapshot.classes[int(snapshot.pods.cls[row])].replacement
            prediction, feasible = self._model.predict(state, cls), self._model.feasible(state, cls)
            outcomes.add(snapshot, prediction, feasible, self._landed[owner])
            there = snapshot.nodes.index[self._landed[owner]] if known else int(prediction.nodes[0])
            state.place(row, cls, there)

    def _waits(self, owner: str) -> bool:
        of_class = self._snapshot.classes[int(self._snapshot.pods.cls[self._victims[owner]])]
        return self._snapshot.owners[of_class.owner].waits


def _name(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def _owner(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["app"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=30)
    parser.add_argument("--single", type=int, default=60)
    parser.add_argument("--waves", type=int, default=3)
    parser.add_argument("--grace", type=float, default=2.0, help="seconds until a victim is gone")
    parser.add_argument("--version", default="1.36.3")
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    options = Options(
        version=chosen.version,
        pod_ready_after=0.1,
        pod_grace_cap=chosen.grace,
        scheduler_verbosity=3,
    )
    major, minor, *_ = chosen.version.split(".")
    with ControlPlane(options) as plane:
        for manifest in manifests(rng, chosen.nodes):
            plane.api.apply(manifest)
        place = Field(plane, (int(major), int(minor)))
        for run, count in ((one_at_a_time, chosen.single), (in_waves, chosen.waves)):
            began = time.monotonic()
            outcome = run(place, rng, count) if count else {}
            for title, outcomes in outcome.items():
                took = time.monotonic() - began
                print(
                    f"{chosen.nodes} nodes, {title}, {took:.0f} s\n{outcomes.report()}", flush=True
                )


if __name__ == "__main__":
    main()
