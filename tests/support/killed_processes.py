"""Commands that are killed by SIGKILL: when they say something, or at each of their writes, as often as it takes to their end."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.snapshot.leaving import DRAIN
from tests.controlplane import ControlPlane
from tests.e2e.product import PATIENCE
from tests.storm.faults import Script
from tests.storm.proxy import Proxy, Seen, Upstream


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    code: int
    """-SIGKILL if it was killed."""
    out: str
    err: str


at_each_write = pytest.mark.parametrize(
    "kills_each",
    [False, pytest.param(True, marks=pytest.mark.long)],
    ids=["each kind of write", "each write"],
)
"""Kill once for each kind of write, with two machines; the long form kills after each single write, with three."""
_MOST, _MOST_EACH = 60, 300
"""Points at which a command is killed until a test gives up; where each object counts."""


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "rebalancer", *arguments]


def signal_at(
    arguments: Sequence[str],
    is_due: Callable[[int, str], bool],
    by: signal.Signals = signal.SIGKILL,
) -> Ended:
    """Run a command, and send it a signal at a line that it says: ``is_due`` gets its number, from 1, and the line."""
    pipe = subprocess.PIPE
    with subprocess.Popen(_command(arguments), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if is_due(len(said), line):
                process.send_signal(by)
                break
        out, err = process.communicate(timeout=PATIENCE)
        return Ended(process.returncode, out, "".join(said) + err)


class Kills:
    """Kills a process at each kind of its writes that a test names; what it has written by then was carried out.

    The same write by a later process passes, so that it comes further.
    """

    def __init__(self, times: int = 1, *, each: bool = False) -> None:
        """``times``: how often a process is killed at one point; ``each``: writes of a kind to several objects are several."""
        self._times, self._each = times, each
        self._known: dict[str, list[str]] = {}
        """Kind of write -> the objects to which it was made."""
        self._process: subprocess.Popen[Any] | None = None
        self._lock = threading.Lock()
        self.points: list[str] = []
        """Those at which one was killed, in their order."""

    def at(self, kind: str, which: str = "") -> None:
        """A write of this kind to this object was carried out, and is not answered yet."""
        with self._lock:
            process = self._process
            known = self._known.setdefault(kind, [])
            if which not in known:
                known.append(which)
            point = f"{kind} ({known.index(which) + 1})" if self._each else kind
            due = self.points.count(point) < self._times
            if due and process is not None and process.poll() is None:
                self.points.append(point)
                process.send_signal(signal.SIGKILL)
                process.wait(PATIENCE)

    def aim(self, process: subprocess.Popen[Any] | None) -> None:
        """Kill this process at the next point; None: none."""
        with self._lock:
            self._process = process

    def until_done(self, arguments: Sequence[str], **environ: str) -> Ended:
        """Call a command again and again until it ends by itself; ``environ``: added to the environment."""
        most = _MOST_EACH if self._each else _MOST
        while True:
            pipe = subprocess.PIPE
            process = self._process = subprocess.Popen(
                _command(arguments),
                env={**os.environ, **environ},
                stdout=pipe,
                stderr=pipe,
                text=True,
            )
            out, err = process.communicate(timeout=PATIENCE)
            if process.returncode != -signal.SIGKILL:
                self._process = None
                return Ended(process.returncode, out, err)
            assert len(self.points) < most, self.points


@contextmanager
def seen_by(plane: ControlPlane, kubeconfig: Path, seen: Callable[[Seen], None]) -> Iterator[Path]:
    """Stand between a process and the API server; yield its kubeconfig. ``seen`` gets each request before it is answered."""
    with Proxy(Upstream.of(plane), Script(), seen) as proxy:
        config = yaml.safe_load(kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
        path = kubeconfig.with_name(f"killed-{kubeconfig.name}")
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        yield path
    assert proxy.errors == []


def describe_node_patch(seen: Seen) -> tuple[str, str] | None:
    """Return (node, or node and subresource; what it writes) of a patch of a node that was carried out; None for others."""
    if seen.method != "PATCH" or "/nodes/" not in seen.target or seen.status >= 300:
        return None
    body = json.loads(seen.body)
    what = [
        f"{one['type']} {one.get('$patch', one.get('status', 'beat'))}"
        for one in body.get("status", {}).get("conditions", ())
    ]
    drain = body["metadata"].get("annotations", {}).get(DRAIN)
    stage = json.loads(drain).get("stage") if drain else None
    what += [stage["phase"]] if stage else []
    what += [f"{key}={value is not None}" for key, value in body.get("spec", {}).items()]
    return seen.target.partition("/nodes/")[2].partition("?")[0], ", ".join(what) or "record"
