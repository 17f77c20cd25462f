"""`python -m benchmarks.resident 1000:30000`: what looks at a cluster in which nothing happens cost.

The CronJob's runs and `rebalancer serve` look at one real control plane after the other, on a cluster with nothing to
fix. Neither may act, so that both do the same; the API server's standing work is measured and taken off: before the runs,
and, for `serve`, after it and for as long, since the lists of the runs have left the server with garbage to look at.
"""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.resident.process import OURS, POLICY, megabytes, serving
from benchmarks.scale import contenders
from benchmarks.scale.fill import OPTIONS, fill
from benchmarks.scale.measure import Measured, cpu_seconds, run, settle
from benchmarks.scale.shape import Shape
from tests.controlplane.cluster import ControlPlane

_say = functools.partial(print, flush=True)
_PERIOD = 120.0
"""Seconds between two runs, of the chart's CronJob and of `serve` alike."""
_QUICK = 10
"""Seconds between two looks here: a look costs what it costs."""
_PATIENCE = 900.0


@dataclass(frozen=True, slots=True)
class Served:
    """Looks of a process that stays."""

    looks: int
    cpu: float
    """Seconds for one look."""
    server_cpu: float
    """Seconds of the API server for one look, what the watches cost meanwhile included."""
    seconds: float
    """That these looks took."""
    memory_mb: tuple[float, float]
    """At rest before these looks, and after."""
    peak_mb: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resident", description=__doc__)
    parser.add_argument("size", nargs="?", default="1000:30000", metavar="NODES:PODS[:lean]")
    parser.add_argument("--looks", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3, help="runs of the CronJob")
    chosen = parser.parse_args(arguments)
    nodes, pods, *lean = chosen.size.split(":")
    shape = Shape(nodes=int(nodes), pods=int(pods), lean=bool(lean), drifted=0.0, doubled=0.0)
    with ControlPlane(OPTIONS) as plane:
        fill(plane, shape, _say)
        reader, server = contenders.read_only(plane), plane.pid("kube-apiserver")
        settle([server, plane.pid("etcd")])
        standing = _standing(server)
        runs = [
            run([OURS, "run", *POLICY, f"--kubeconfig={reader}"], server=server)
            for _ in range(chosen.rounds)
        ]
        with serving(reader, every=_QUICK) as (process, log):
            served = _looks(process, log, server, chosen.looks)
        afterwards = _standing(server, served.seconds)
    _say(f"the API server by itself: {standing:.3f} of a core before, {afterwards:.3f} afterwards")
    _say(_table(runs, served, standing, afterwards))
    return int(any(one.status for one in runs))


def _standing(server: int, seconds: float = 30.0) -> float:
    """Return the share of a core that the API server uses for itself."""
    before = cpu_seconds(server)
    time.sleep(seconds)
    return (cpu_seconds(server) - before) / seconds


def _looks(process: subprocess.Popen[bytes], log: Path, server: int, looks: int) -> Served:
    _await_looks(process, log, 3)
    begun, started = _done(log), time.monotonic()
    memory = megabytes(process.pid, "VmRSS")
    cpu, server_cpu = cpu_seconds(process.pid), cpu_seconds(server)
    _await_looks(process, log, begun + looks)
    looked = _done(log) - begun
    return Served(
        looks=looked,
        cpu=(cpu_seconds(process.pid) - cpu) / looked,
        server_cpu=(cpu_seconds(server) - server_cpu) / looked,
        seconds=time.monotonic() - started,
        memory_mb=(memory, megabytes(process.pid, "VmRSS")),
        peak_mb=megabytes(process.pid, "VmHWM"),
    )


def _done(log: Path) -> int:
    return log.read_text().count("nothing to do on ")


def _await_looks(process: subprocess.Popen[bytes], log: Path, number: int) -> None:
    ends = time.monotonic() + _PATIENCE
    while _done(log) < number:
        if process.poll() is not None or time.monotonic() > ends:
            raise RuntimeError(f"it does not look any more: {log.read_text()[-2000:]}")
        time.sleep(0.2)


def _table(runs: Sequence[Measured], served: Served, standing: float, afterwards: float) -> str:
    by_run = sorted(runs, key=lambda one: one.cpu)[len(runs) // 2]
    run_server = max(0.0, by_run.server_cpu - standing * by_run.seconds)
    look_server = max(0.0, served.server_cpu - afterwards * served.seconds / served.looks)
    rows = [
        ("CPU seconds of ours for a look", by_run.cpu, served.cpu),
        ("CPU seconds of the API server for a look", run_server, look_server),
        # Of serve at most: there are as many more looks here as they come more often.
        ("the same in ten minutes", 600 / _PERIOD * run_server, 600 / _QUICK * look_server),
        ("memory in MB after three looks", float("nan"), served.memory_mb[0]),
        ("memory in MB at the end", float("nan"), served.memory_mb[1]),
        ("peak of memory in MB", by_run.peak_mb, served.peak_mb),
    ]
    head = f"| {served.looks} looks, {len(runs)} runs | CronJob | serve |\n|---|---|---|"
    return "\n".join([head, *(f"| {what} | {one:.2f} | {two:.2f} |" for what, one, two in rows)])


if __name__ == "__main__":
    sys.exit(main())
