"""A control plane to play with: `python -m tests.controlplane up --drift zone-back`."""

import argparse
import functools
import signal
import sys
import time
from contextlib import ExitStack
from typing import NoReturn

from tests.controlplane import build, drift
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.options import Options

_say = functools.partial(print, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands, and return the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        if chosen.command == "newest":
            return _newest()
        if chosen.command == "build":
            return _build(chosen.programs, chosen.kubernetes)
        _up(chosen)
    except KeyboardInterrupt:
        return 0
    except build.GroundError as error:
        _say(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.controlplane", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="run a control plane until Ctrl-C")
    up.add_argument("--drift", choices=sorted(drift.DRIFTS), help="put it into a drifted state")
    up.add_argument("--nodes", type=int, help="how many nodes (with --drift: in all)")
    up.add_argument(
        "--cloud", action="store_true", help="moto beside it, whose instances are nodes"
    )
    up.add_argument("--seed", type=int, default=0, help="same seed, same workloads")
    make = commands.add_parser("build", help="build programs ahead of time and print their paths")
    make.add_argument("programs", nargs="*", default=["etcd", "kwok"])
    commands.add_parser("newest", help="print the newest Kubernetes that can be built")
    for command in (up, make):
        command.add_argument("--kubernetes", default=build.DEFAULT_VERSION, help="its version")
    return parser


def _newest() -> int:
    newest, documented = build.find_newest(), build.VERSIONS[-1]
    if newest != documented:
        text = f"Kubernetes {newest} is the newest that can be built, but docs/project/kubernetes.md says {documented}"
        _say(
            f"{text}: change VERSIONS in tests/controlplane/build.py, and run make docs",
            file=sys.stderr,
        )
    _say(newest)
    return 0


def _build(programs: list[str], version: str) -> int:
    for name in programs:
        _say(build.binary(name, version))
    return 0


def _up(chosen: argparse.Namespace) -> NoReturn:
    # Both end it by an exception, so that everything is tidied up; in the background of a shell
    # Ctrl-C's signal would otherwise be ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    start = time.monotonic()
    with ControlPlane(Options(version=chosen.kubernetes)) as plane, ExitStack() as beside:
        _say(f"Kubernetes {chosen.kubernetes} is ready after {time.monotonic() - start:.1f} s")
        if chosen.drift:
            _say(f"putting it into the state {chosen.drift} ...")
            size = {} if chosen.nodes is None else {"nodes": chosen.nodes}
            drift.DRIFTS[chosen.drift](plane, seed=chosen.seed, **size)
        elif chosen.nodes:
            drift.add_nodes(plane, chosen.nodes)
        environ = {"KUBECONFIG": str(plane.kubeconfig)}
        if chosen.cloud:
            from tests.aws.workers import workers  # noqa: PLC0415  # moto is loaded in seconds

            environ |= beside.enter_context(workers(plane))
        exports = "\n".join(f"  export {name}={value}" for name, value in environ.items())
        _say(f"\n{exports}\n\nlogs: {plane.directory}")
        _say("Ctrl-C ends it and leaves nothing behind.")
        while True:
            signal.pause()


if __name__ == "__main__":
    sys.exit(main())
