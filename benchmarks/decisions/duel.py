"""One scenario with one seed: all contenders on the same cluster, and the optimum beside them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.decisions.checkpoint import Checkpoint
from benchmarks.decisions.contenders import PEER_POLICIES, Contender, Ours, Peer, Run
from benchmarks.decisions.convergence import Convergence, converge, observe, settle
from benchmarks.decisions.instance import counted
from benchmarks.decisions.optimum import Optimum, optimum
from benchmarks.decisions.reading import placement, read
from benchmarks.decisions.scenarios import SCENARIOS
from benchmarks.decisions.shapes import Shapes
from benchmarks.decisions.silence import MEMORY, aged, read_memory, write_memory
from rebalancer.run.memory.document import Document
from tests.controlplane import ControlPlane

_APART = 600
"""Seconds between two runs of ours, by their memory: the first cool-down of a workload is over then."""
PEER_RUNS = 10
MOST_RUNS = 25
"""Of ours, until a silent one."""


@dataclass(frozen=True)
class Plan:
    """What to play."""

    scenario: str
    seed: int
    nodes: int
    contenders: tuple[str, ...] = ("peer", "ours", "lifted")
    after: int = 3
    """Runs of ours after the first silent one."""
    peer_runs: int = PEER_RUNS
    solver_seconds: float = 60.0
    recorded: bool = False
    """On nodes and workloads drawn from recorded clusters."""


def play(
    plane: ControlPlane,
    plan: Plan,
    kept: Path,
    say: Callable[[str], None] = print,
    *,
    earlier: Mapping[str, Any] | None = None,
    shapes: Shapes | None = None,
) -> dict[str, Any]:
    """Play ``plan`` and return its figures.

    ``kept`` receives the state of the cluster, a snapshot file and the reports. With the figures of an
    ``earlier`` play of which ``kept`` holds the state, the contenders meet the same cluster again, and
    those that the plan does not name keep their figures. Without ``shapes`` the cluster is made up.
    """
    kept.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    checkpoint = Checkpoint(plane, kept / "etcd")
    if earlier is None or not checkpoint.exists:
        earlier = None
        plane.reset()
        drawn = {} if shapes is None else {"shapes": shapes}
        SCENARIOS[plan.scenario](plane, seed=plan.seed, nodes=plan.nodes, **drawn)
        settle(plane, len(observe(plane).pods))
        checkpoint.save()
    else:
        checkpoint.restore()
    pods = len(observe(plane).pods)
    settle(plane, pods)
    objects = observe(plane)
    instance = read(objects)
    start = counted(instance, placement(objects))
    _save_snapshot(plane, kept / "start.zip")
    say(f"{plan.scenario}/{plan.seed}: {pods} pods, {time.monotonic() - began:.0f} s")
    contenders: dict[str, Any] = dict(earlier["contenders"]) if earlier else {}
    with tempfile.TemporaryDirectory(prefix="decisions-") as scratch:
        for number, name in enumerate(plan.contenders):
            if number:
                checkpoint.restore()
            settle(plane, pods)
            done, _ = converge(
                plane,
                _contender(name, Path(scratch), plane),
                instance,
                pods=pods,
                most=plan.peer_runs if name in PEER_POLICIES else MOST_RUNS,
                after=0 if name in PEER_POLICIES else plan.after,
                to_the_end=name in PEER_POLICIES,
            )
            contenders[name] = _kept(done, kept / name)
            say(_line(name, done))
    result: dict[str, Any] = {
        "plan": asdict(plan),
        "pods": pods,
        "start": {
            "violations": instance.violations(start),
            "deviations": instance.deviations(start),
        },
        "contenders": contenders,
    }
    band = tuple(contenders["peer"]["runs"][-1]["band"]) if "peer" in contenders else None
    for label, limits in (("optimum", band), ("unbanded", None)):
        if earlier and "peer" not in plan.contenders:
            result[label] = earlier[label]
        else:
            result[label] = _figures(optimum(instance, start, limits, seconds=plan.solver_seconds))
        say(f"  {label}: {result[label]}")
    return result


class _Installed(Ours):
    """Ours with the memory that the chart gives it, and as if ten minutes had passed between two runs."""

    def __init__(self, plane: ControlPlane, folder: Path, name: str) -> None:
        super().__init__(folder, lifted=name == "lifted", marks=name == "marks", memory=MEMORY)
        self._plane = plane
        write_memory(plane, Document())

    def run(self, kubeconfig: Path) -> Run:
        write_memory(self._plane, aged(read_memory(self._plane), _APART))
        return super().run(kubeconfig)


def _contender(name: str, folder: Path, plane: ControlPlane) -> Contender:
    if name in PEER_POLICIES:
        return Peer(folder, name=name)
    return _Installed(plane, folder, name)


def _save_snapshot(plane: ControlPlane, path: Path) -> None:
    path.unlink(missing_ok=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "rebalancer", "snapshot"),
            *(f"--kubeconfig={plane.kubeconfig}", "-o", str(path)),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )


def _kept(done: Convergence, folder: Path) -> dict[str, Any]:
    """Write the reports aside, and return the rest with its sums."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    landings = _landings([run.report for run in done.runs if run.report])
    for number, run in enumerate(done.runs, 1):
        if run.report:
            (folder / f"run-{number:02d}.json").write_text(json.dumps(run.report, indent=1))
        run.report = {}
    return {
        **done.as_data(),
        "evictions": done.until_silence,
        "first_silent": done.first_silent,
        "after_silence": done.after_silence,
        "seconds": round(done.seconds, 1),
        "landings": landings,
        "commit": commit(),
        "peak_mib": max(run.peak_mib for run in done.runs),
    }


def commit() -> str:
    """Return the commit of the working tree, as far as there is one."""
    git = shutil.which("git")
    if git is None:
        return "unknown"
    here = Path(__file__).resolve().parent
    command = [git, "-C", str(here), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _landings(reports: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return how many replacements stood on their most probable node, and how many should have."""
    moves = [m for r in reports for m in r["moves"] if m["outcome"] == "evicted" and m["landed"]]
    first = [(move, move["landings"][0]) for move in moves if move["landings"]]
    return {
        "moves": len(first),
        "planned": sum(move["predicted"] is True for move, _ in first),
        "steered": sum(bool(move["marks"]) for move, _ in first),
        "met": sum(move["landed"] == landing["node"] for move, landing in first),
        "expected": round(sum(landing["probability"] for _, landing in first), 1),
    }


def _figures(optimum: Optimum) -> dict[str, Any]:
    figures = asdict(optimum)
    del figures["counts"]
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}


def _line(name: str, done: Convergence) -> str:
    each = " ".join(str(run.evictions) for run in done.runs)
    left = {k: v for k, v in done.runs[-1].violations.items() if v}
    return (
        f"  {name}: {done.evictions} evictions ({each}), left {left}, {done.seconds:.0f} s, "
        f"twice {done.twice}, breaches {len(done.breaches)}"
    )
