"""`python -m benchmarks.scale 1000:30000`: the peer and ours, whole processes on one real control plane."""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.scale import contenders, peer_log
from benchmarks.scale.fill import OPTIONS, fill
from benchmarks.scale.measure import Measured, run, settle
from benchmarks.scale.shape import Shape
from benchmarks.scale.table import tables
from tests.controlplane import build
from tests.controlplane.cluster import ControlPlane

_say = functools.partial(print, flush=True)
_OURS = Path(sys.executable).with_name("rebalancer")
_SIZES = ("3:30", "1000:30000")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill a control plane for each size, run every contender in turn, and print what each took."""
    chosen = _parser().parse_args(arguments)
    shapes = [_shape(text) for text in chosen.sizes or _SIZES]
    fine = [_on_one_plane(shape, chosen) for shape in shapes]
    return int(not all(fine))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument(
        "sizes",
        nargs="*",
        metavar="NODES:PODS[:lean]",
        help=f"default: {' '.join(_SIZES)}; lean pods have 2 KB instead of 10",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each process")
    parser.add_argument("--contenders", default="drain,ours,peer,peer-fit")
    parser.add_argument("--keep", action="store_true", help="leave the control plane running")
    return parser


def _shape(text: str) -> Shape:
    nodes, pods, *rest = text.split(":")
    if rest not in ([], ["lean"]):
        raise SystemExit(f"{text}: write NODES:PODS or NODES:PODS:lean")
    return Shape(nodes=int(nodes), pods=int(pods), lean=bool(rest))


def _on_one_plane(shape: Shape, chosen: argparse.Namespace) -> bool:
    """Return whether ours did what it should, and the peer saw the whole cluster wherever it ended."""
    size = "lean" if shape.lean else "10 KB"
    _say(f"\n### {shape.nodes} nodes, {shape.pods} pods ({size}), {shape.apps} Deployments\n")
    with ControlPlane(OPTIONS) as plane, tempfile.TemporaryDirectory() as folder:
        fill(plane, shape, _say)
        commands = _commands(chosen.contenders.split(","), plane, Path(folder))
        taken: dict[str, list[Measured]] = {name: [] for name in commands}
        servers = [plane.pid("kube-apiserver"), plane.pid("etcd")]
        for _ in range(chosen.rounds):
            for name, command in commands.items():
                if not settle(servers):
                    _say(f"the servers are still busy at the start of {name}")
                taken[name].append(run(command, server=servers[0], limit=chosen.limit))
        _say(f"\n{tables(taken, chosen.limit)}")
        complaints = _complaints(shape, taken)
        _say("\n".join(complaints))
        if chosen.keep:
            _say(f"export KUBECONFIG={plane.kubeconfig}; enter ends it")
            sys.stdin.readline()
    return not complaints


def _commands(names: Sequence[str], plane: ControlPlane, folder: Path) -> dict[str, list[str]]:
    reader = contenders.read_only(plane)
    peer = functools.partial(contenders.peer, build.binary("descheduler"), reader, folder)
    known: Mapping[str, Callable[[], list[str]]] = {
        "drain": lambda: contenders.drain(reader),
        "ours": lambda: contenders.ours(_OURS, reader),
        "peer": lambda: peer(node_fit=False),
        "peer-fit": lambda: peer(node_fit=True),
    }
    return {name: known[name]() for name in names}


def _complaints(shape: Shape, taken: Mapping[str, Sequence[Measured]]) -> list[str]:
    """Return why these figures must not be used, if so."""
    complaints = []
    for name, runs in taken.items():
        for one in runs:
            if one.status not in (0, -9):
                complaints.append(f"{name} ended with {one.status}: {one.err[-2000:]}")
            elif name.startswith("peer") and one.status == 0:
                log = peer_log.parse(one.err)
                if (log.nodes, log.pods) != (shape.nodes, shape.apps * shape.replicas):
                    complaints.append(f"{name} saw only {log.nodes} nodes and {log.pods} pods")
    return complaints


if __name__ == "__main__":
    sys.exit(main())
