"""`python -m benchmarks.scale --nodes 1000 --pods 30000`: the peer and ours on one real control plane."""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.scale import contenders
from benchmarks.scale.fill import OPTIONS, fill
from benchmarks.scale.measure import Measured, run
from benchmarks.scale.shape import Shape
from tests.controlplane import build
from tests.controlplane.cluster import ControlPlane

_say = functools.partial(print, flush=True)
_OURS = Path(sys.executable).with_name("rebalancer")
_FORMAT = "{:<18} {:>8} {:>8} {:>9} {:>10} {:>7}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill a control plane, run every contender in turn, and print what each of them took."""
    chosen = _parser().parse_args(arguments)
    shape = Shape(nodes=chosen.nodes, pods=chosen.pods, lean=chosen.lean)
    size = "lean" if chosen.lean else "10 KB"
    _say(f"{shape.nodes} nodes, {shape.pods} pods ({size}), {shape.apps} Deployments")
    with ControlPlane(OPTIONS) as plane, tempfile.TemporaryDirectory() as folder:
        fill(plane, shape, _say)
        commands = _commands(chosen.contenders.split(","), plane, Path(folder))
        taken: dict[str, list[Measured]] = {name: [] for name in commands}
        for _ in range(chosen.rounds):
            for name, command in commands.items():
                server = plane.pid("kube-apiserver")
                measured = run(command, server=server, limit=chosen.limit)
                taken[name].append(measured)
                if measured.status != 0:
                    _say(f"{name} ended with {measured.status}: {measured.err[-2000:]}")
        _print(taken)
        if chosen.keep:
            _say(f"export KUBECONFIG={plane.kubeconfig}; enter ends it")
            sys.stdin.readline()
    return int(any(one.status != 0 for one in taken.get("ours", [])))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=30_000)
    parser.add_argument("--lean", action="store_true", help="pods of 2 KB instead of 10 KB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each process")
    parser.add_argument("--contenders", default="drain,ours,peer,peer-fit")
    parser.add_argument("--keep", action="store_true", help="leave the control plane running")
    return parser


def _commands(names: Sequence[str], plane: ControlPlane, folder: Path) -> dict[str, list[str]]:
    peer = functools.partial(contenders.peer, build.binary("descheduler"), plane.kubeconfig, folder)
    known = {
        "drain": lambda: contenders.drain(plane.kubeconfig),
        "ours": lambda: contenders.ours(_OURS, plane.kubeconfig),
        "peer": lambda: peer(node_fit=False),
        "peer-fit": lambda: peer(node_fit=True),
    }
    return {name: known[name]() for name in names}


def _print(taken: dict[str, list[Measured]]) -> None:
    _say(_FORMAT.format("", "wall s", "cpu s", "peak MB", "server s", "moves"))
    for name, runs in taken.items():
        if not runs:
            continue
        middle = sorted(runs, key=lambda one: one.seconds)[len(runs) // 2]
        moves = _moves(name, middle)
        _say(
            _FORMAT.format(
                name,
                f"{middle.seconds:.2f}" if middle.status == 0 else f">{middle.seconds:.0f}",
                f"{middle.cpu:.2f}",
                f"{max(one.peak_mb for one in runs):.0f}",
                f"{statistics.median(one.server_cpu for one in runs):.2f}",
                "-" if moves is None else moves,
            )
        )
    for name, runs in taken.items():
        if name == "ours":
            for one in runs:
                if one.status == 0:
                    _say(f"ours, by phase: {contenders.our_report(one).get('timings')}")


def _moves(name: str, measured: Measured) -> int | None:
    if name == "ours" and measured.status == 0:
        return len(contenders.our_report(measured)["moves"])
    return contenders.peer_moves(measured) if name.startswith("peer") else None


if __name__ == "__main__":
    sys.exit(main())
