"""Runs a contender until nothing more is done, and keeps the figures of every run."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.decisions.contenders import Contender
from benchmarks.decisions.instance import Instance, counted
from benchmarks.decisions.reading import Objects, placement
from benchmarks.decisions.rules import Ints
from benchmarks.decisions.watcher import Watcher
from tests.controlplane import ControlPlane, operations

_SETTLE_SECONDS = 120.0
_WORKLOADS = {
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "ReplicaSet": "replicasets",
}


@dataclass
class Figures:
    """What is kept of one run."""

    evictions: int
    seconds: float
    """Of the process."""
    settle_seconds: float
    """Until all replacements were Ready."""
    peak_mib: float
    violations: dict[str, float]
    cpu_deviation: float
    memory_deviation: float
    band: tuple[float, float]
    """Least and most requested cpu of a node, as shares of its allocatable."""
    lower_bound: int | None = None
    planned: int | None = None
    stopped: str = ""
    pending: int = 0
    """Pods without a node at the end; they count as hard violations of placement as well."""
    report: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Convergence:
    """A contender on one cluster."""

    contender: str
    runs: list[Figures]
    twice: int
    breaches: list[str]
    samples: int

    @property
    def evictions(self) -> int:
        """Return the evictions of all runs."""
        return sum(run.evictions for run in self.runs)

    @property
    def first_silent(self) -> int | None:
        """Return the number of the first run without an eviction, from 0."""
        return next((i for i, run in enumerate(self.runs) if run.evictions == 0), None)

    @property
    def after_silence(self) -> int:
        """Return the evictions after the first silent run."""
        first = self.first_silent
        return 0 if first is None else sum(run.evictions for run in self.runs[first:])

    @property
    def until_silence(self) -> int:
        """Return the evictions before the first silent run, all if there was none."""
        return self.evictions - self.after_silence

    @property
    def seconds(self) -> float:
        """Return the time until the last eviction's replacement was Ready."""
        last = max((i for i, run in enumerate(self.runs) if run.evictions), default=-1)
        return sum(run.seconds + run.settle_seconds for run in self.runs[: last + 1])

    def as_data(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def observe(plane: ControlPlane) -> Objects:
    """Read the cluster."""
    api = plane.api
    workloads = []
    for kind, plural in _WORKLOADS.items():
        listed = api.list_all(f"/apis/apps/v1/{plural}")
        workloads += [{**item, "kind": kind} for item in listed]
    return Objects(
        nodes=api.list_all("/api/v1/nodes"),
        pods=operations.pods(api),
        workloads=workloads,
        budgets=api.list_all("/apis/policy/v1/poddisruptionbudgets"),
        namespaces=api.list_all("/api/v1/namespaces"),
    )


def settle(plane: ControlPlane, pods: int) -> float:
    """Wait until all pods stand Ready again, or do not get any further; return the seconds."""
    began = time.monotonic()
    still, before = 0, None
    while time.monotonic() < began + _SETTLE_SECONDS:
        listed = operations.pods(plane.api)
        if len(listed) == pods and all(operations.is_ready(pod) for pod in listed):
            break
        now = sorted((p["metadata"]["uid"], p["spec"].get("nodeName", "")) for p in listed)
        waiting = any(p["spec"].get("nodeName") and not operations.is_ready(p) for p in listed)
        # Pods that no node takes stay Pending for ever: ten seconds without any change are the end.
        still = still + 1 if now == before and not waiting else 0
        if still >= 40:
            break
        before = now
        time.sleep(0.25)
    return time.monotonic() - began


def converge(
    plane: ControlPlane,
    contender: Contender,
    instance: Instance,
    *,
    pods: int,
    most: int,
    after: int,
    to_the_end: bool = False,
) -> tuple[Convergence, Ints]:
    """Run until a run evicts nothing (at most ``most`` runs), then ``after`` more; return the end state.

    ``to_the_end``: make all ``most`` runs, silent or not.
    """
    runs: list[Figures] = []
    left: int | None = None
    with Watcher(plane) as watcher:
        while len(runs) < most + after and left != 0:
            figures, counts = _one(plane, contender, instance, pods, watcher)
            runs.append(figures)
            if left is not None:
                left -= 1
            elif to_the_end and len(runs) == most:
                break
            elif not to_the_end and (figures.evictions == 0 or len(runs) == most):
                left = after
    seen = watcher.seen
    return Convergence(contender.name, runs, seen.twice, seen.breaches, seen.samples), counts


def _one(
    plane: ControlPlane, contender: Contender, instance: Instance, pods: int, watcher: Watcher
) -> tuple[Figures, Ints]:
    before = len(watcher.seen.evicted)
    done = contender.run(Path(plane.kubeconfig))
    waited = settle(plane, pods)
    watcher.catch_up()
    objects = observe(plane)
    counts = counted(instance, placement(objects))
    cpu = instance.used(counts)[0] / instance.capacity[0]
    deviation = instance.deviations(counts)
    report = done.report
    pending = sum(1 for p in objects.pods if not p["spec"].get("nodeName"))
    violations = instance.violations(counts)
    # A pod that stands nowhere breaks no rule between pods: it must not look like an improvement.
    violations["placement"] += pending
    return (
        Figures(
            evictions=len(watcher.seen.evicted) - before,
            seconds=round(done.process.seconds, 2),
            settle_seconds=round(waited, 2),
            peak_mib=round(done.process.peak_mib, 1),
            violations=violations,
            cpu_deviation=round(deviation[0], 5),
            memory_deviation=round(deviation[1], 5),
            band=(float(cpu.min()), float(cpu.max())),
            lower_bound=report.get("lowerBound"),
            planned=len(report["moves"]) if report else None,
            stopped=str(report.get("stopped", "")),
            pending=pending,
            report=report,
        ),
        counts,
    )
