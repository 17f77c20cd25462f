"""Days on which zones close, are lost and come back, on a real control plane: python -m benchmarks.zones --days 10 --seed 1.

Three zones of two nodes; three Deployments with Services and PodDisruptionBudgets that spread over the zones. By seed a zone is shifted
(all nodes cordoned, its endpoints out of use) or its nodes go one by one or all at once; then that is over. Each may come in the middle of a run.
A watch of pods and EndpointSlices, which shares no code with the product, counts what serves. Ours and the descheduler play the same days.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.decisions.contenders import PEER_POLICIES, Contender, Ours, Peer
from benchmarks.decisions.convergence import settle
from tests.controlplane import ControlPlane, objects, operations

_ZONES, _NODES = "xyz", 2
_APPS = {"blue": (3, 2), "green": (6, 4), "red": (6, 5)}
"""Name -> (replicas, minAvailable)."""
_PODS = sum(replicas for replicas, _ in _APPS.values())
_EVENTS, _RUNS = 8, 4
_IN_FLIGHT = 3.0
"""Seconds after a shift in which an eviction was decided before it."""
_SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


@dataclass
class Day:
    """What a contender did on one day."""

    evictions: int = 0
    below: int = 0
    """Evictions of serving pods that left fewer serving than minAvailable."""
    closed: int = 0
    """Evictions in open zones while another one was shifted, other than those on their way."""
    loud: int = 0
    """Events after which the last run still evicted."""
    uneven: int = 0
    """Workloads that stood unevenly by more than one over the usable zones, after the runs that followed an event."""
    back: list[float] = field(default_factory=list)
    """Seconds from the first Ready node of a zone that was gone until all stand evenly."""


class Witness:
    """Follows pods and EndpointSlices, and judges each eviction as it comes."""

    def __init__(self, plane: ControlPlane, day: Day) -> None:
        self._plane, self._day = plane, day
        self._lock, self._end = threading.Lock(), threading.Event()
        self._pods: dict[str, dict[str, Any]] = {}
        self._endpoints: dict[str, set[str]] = {}
        self._counted: set[str] = set()
        self.shifted, self.shifted_at = "", 0.0
        self._threads = [
            threading.Thread(target=self._follow, args=(path, note), daemon=True)
            for path, note in (
                ("/api/v1/namespaces/default/pods", self._note_pod),
                (_SLICES, self._note_slice),
            )
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(20)

    def _follow(self, path: str, note: Any) -> None:
        while not self._end.is_set():
            answer = self._plane.api.get(path)
            for one in answer["items"]:
                note("ADDED", one)
            where = f"{path}?resourceVersion={answer['metadata']['resourceVersion']}"
            for event in self._plane.api.watch(where, 5.0):
                if event["type"] == "ERROR":
                    break
                note(event["type"], event["object"])

    def _note_slice(self, kind: str, one: dict[str, Any]) -> None:
        ready = {
            of["targetRef"]["uid"]
            for of in one.get("endpoints") or ()
            if of["conditions"].get("ready") and "targetRef" in of
        }
        with self._lock:
            self._endpoints[one["metadata"]["name"]] = set() if kind == "DELETED" else ready

    def _note_pod(self, kind: str, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        with self._lock:
            before = self._pods.get(uid)
            if kind == "DELETED":
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = pod
            if _is_evicted(pod) and uid not in self._counted:
                self._counted.add(uid)
                self._judge(before or pod)

    def _judge(self, pod: dict[str, Any]) -> None:
        """Count an eviction; ``pod`` as it was before."""
        self._day.evictions += 1
        app, zone = pod["metadata"]["labels"]["app"], pod["spec"].get("nodeName", " ")[0]
        if (
            self.shifted
            and zone != self.shifted
            and time.monotonic() > self.shifted_at + _IN_FLIGHT
        ):
            self._day.closed += 1
        left = sum(self._serves(one, app) for one in self._pods.values())
        if zone != self.shifted and operations.is_ready(pod) and left < _APPS[app][1]:
            self._day.below += 1

    def _serves(self, pod: dict[str, Any], app: str) -> bool:
        if pod["metadata"]["labels"]["app"] != app or "deletionTimestamp" in pod["metadata"]:
            return False
        # An EndpointSlice follows its pods with some delay.
        in_use = any(pod["metadata"]["uid"] in of for of in self._endpoints.values())
        ready = in_use or operations.is_ready(pod)
        return ready and pod["spec"].get("nodeName", " ")[0] != self.shifted


def _is_evicted(pod: Mapping[str, Any]) -> bool:
    reasons = {
        of.get("reason")
        for of in pod.get("status", {}).get("conditions", ())
        if of["type"] == "DisruptionTarget"
    }
    return "deletionTimestamp" in pod["metadata"] and "EvictionByEvictionAPI" in reasons


class Course:
    """One day of one contender."""

    def __init__(self, plane: ControlPlane, contender: Contender, seed: int) -> None:
        self.day = Day()
        self._plane, self._contender, self._random = plane, contender, random.Random(seed)
        self._gone, self._returned_at = "", 0.0

    def play(self) -> Day:
        """Play it."""
        self._plane.reset()
        self._plane.apply(_node(zone, n) for zone in _ZONES for n in range(_NODES))
        operations.wait_nodes_ready(self._plane.api, len(_ZONES) * _NODES)
        for name, (replicas, least) in _APPS.items():
            self._plane.apply(_app(name, replicas, least))
        operations.wait_pods_ready(self._plane.api, _PODS, 120, namespace="default")
        with Witness(self._plane, self.day) as witness:
            for _ in range(_EVENTS):
                self._go_on(witness)
        return self.day

    def _go_on(self, witness: Witness) -> None:
        """Let an event happen, before or in the middle of a run, and then run until that is silent."""
        event = self._choose(witness)
        timer = threading.Timer(self._random.choice([0.0, self._random.uniform(0.5, 8.0)]), event)
        timer.start()
        gone, silent = self._gone, 0
        for _ in range(_RUNS):
            before = self.day.evictions
            self._contender.run(Path(self._plane.kubeconfig))
            timer.join()
            settle(self._plane, _PODS)
            silent = 0 if self.day.evictions > before else silent + 1
            if gone and not self._gone and not self._uneven(witness):
                self.day.back.append(round(time.monotonic() - self._returned_at, 1))
                gone = ""
            if silent == 2:
                break
        self.day.loud += silent == 0
        self.day.uneven += 0 if witness.shifted else self._uneven(witness)

    def _choose(self, witness: Witness) -> Any:
        """Return the next event."""
        if self._gone:
            return self._return
        if witness.shifted:
            return self._random.choice([lambda: self._cancel(witness), lambda: self._lose(witness)])
        zone = self._random.choice(_ZONES)
        return self._random.choice(
            [
                lambda: self._shift(witness, zone),
                lambda: self._shift(witness, zone),
                lambda: self._lose(witness, zone),
                lambda: self._shrink(zone),
            ]
        )

    def _shift(self, witness: Witness, zone: str) -> None:
        witness.shifted, witness.shifted_at = zone, time.monotonic()
        operations.cordon(self._plane.api, _names(zone))

    def _cancel(self, witness: Witness) -> None:
        operations.cordon(self._plane.api, _names(witness.shifted), on=False)
        witness.shifted = ""

    def _lose(self, witness: Witness, zone: str = "") -> None:
        self._gone = zone or witness.shifted
        for name in _names(self._gone):
            operations.remove_node(self._plane.api, name)
        witness.shifted = ""

    def _shrink(self, zone: str) -> None:
        self._gone = zone
        for name in _names(zone):
            operations.cordon(self._plane.api, [name])
            operations.remove_node(self._plane.api, name)
            time.sleep(2.0)

    def _return(self) -> None:
        zone = self._gone
        self._plane.apply(_node(zone, n) for n in range(_NODES))
        operations.wait_nodes_ready(self._plane.api, len(_ZONES) * _NODES)
        self._returned_at, self._gone = time.monotonic(), ""

    def _uneven(self, witness: Witness) -> int:
        """Return how many workloads stand unevenly by more than one over the usable zones."""
        usable = [zone for zone in _ZONES if zone not in (self._gone, witness.shifted)]
        at = Counter(
            (pod["metadata"]["labels"]["app"], pod["spec"].get("nodeName", " ")[0])
            for pod in operations.pods(self._plane.api, "default")
            if "deletionTimestamp" not in pod["metadata"]
        )
        counts = [[at[name, zone] for zone in usable] for name in _APPS]
        return sum(max(of) - min(of) > 1 for of in counts)


def _names(zone: str) -> list[str]:
    return [f"{zone}{n}" for n in range(_NODES)]


def _node(zone: str, number: int) -> dict[str, Any]:
    return objects.node(f"{zone}{number}", zone=zone, cpu="8")


def _app(name: str, replicas: int, least: int) -> list[dict[str, Any]]:
    labels = {"app": name}
    rule = objects.spread(labels, objects.ZONE, hard=False)
    return [
        objects.deployment(name, replicas, topologySpreadConstraints=[rule]),
        objects.service(name, labels),
        objects.pdb(name, labels, minAvailable=least),
    ]


def main() -> int:
    """Print a line of JSON for each day, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sums: dict[str, Counter[str]] = {}
    with ControlPlane() as plane, tempfile.TemporaryDirectory(prefix="zones-") as scratch:
        for seed in range(options.seed, options.seed + options.days):
            for contender in (
                Ours(Path(scratch)),
                *(Peer(Path(scratch), name=name) for name in PEER_POLICIES),
            ):
                day = asdict(Course(plane, contender, seed).play())
                print(json.dumps({"seed": seed, "contender": contender.name, **day}), flush=True)
                back = day.pop("back")
                of = sums.setdefault(contender.name, Counter())
                of.update(day)
                of.update(returns=len(back), seconds=round(sum(back)))
    for name, of in sums.items():
        print(f"{name}: {dict(of)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
