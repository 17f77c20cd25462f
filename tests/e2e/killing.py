"""A process that is killed after each of its writes, and others that go on.

What the process writes to passes each write here when it was carried out, before it is answered: the process dies
without knowing of it. A kill after one write is a kill before the next one, too.

A write of what is kept is named by what is new in it: that a step begins, or what it keeps for itself. A patch of a node is named by
what it changes of the node; one that only shows how far the steps are, by that.
"""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rebalancer.signals.state import STATE
from rebalancer.snapshot.leaving import LEAVE
from tests.controlplane import ControlPlane, wait_until
from tests.e2e.served import PATIENT, Server
from tests.storm.proxy import Seen
from tests.support.killed_processes import seen_by

_CHANGE_NODES = ("cordon", "exclude", "leave")


class Killing:
    """Kills at each write once, by its name: a write that is made again by the next process passes."""

    def __init__(self, only: str = "") -> None:
        """``only``: the name of the one write to kill at."""
        self._only = only
        self._kept: dict[str, str] = {}
        """Step -> what it has kept so far."""
        self.writes: list[str] = []
        """Names of all writes, in the order in which they were carried out."""
        self.points: list[str] = []
        """Those of them at which a process was killed."""
        self._which: dict[str, list[str]] = {}
        self._lock = threading.Lock()
        self._aimed: Server | None = None

    def wrote(self, what: str, which: str = "") -> None:
        """A write was carried out. ``which``: what distinguishes it from others of the same name; these have a number."""
        with self._lock:
            known = self._which.setdefault(what, [])
            if which not in known:
                known.append(which)
            number = known.index(which) + 1
            name = what if number == 1 else f"{what} {number}"
            self.writes.append(name)
            due = name not in self.points and self._only in ("", name)
            if self._aimed is not None and due:
                self.points.append(name)
                self._aimed.process.send_signal(signal.SIGKILL)
                self._aimed.process.wait(PATIENT)
                self._aimed = None

    def patched(self, body: dict[str, Any]) -> None:
        """A node was patched by the pipeline."""
        metadata = body["metadata"]
        state = json.loads(metadata["annotations"][STATE])
        step = next(reversed(state["steps"]))
        if "spec" in body or "labels" in metadata or LEAVE in metadata["annotations"]:
            self.wrote(f"{step} changes the node")
        else:
            self.wrote(f"{'end' if state.get('ended') else step} is shown")

    def kept(self, body: dict[str, Any]) -> None:
        """What is kept where only the product writes was written: how far the steps are, or a new text of one."""
        for text in (body.get("data") or {}).values():
            of_machine = json.loads(text)
            for step, kept in of_machine.get("steps", {}).items():
                if self._is_new(f"{step} apart", kept):
                    self.wrote(f"{step} keeps")
            state = of_machine.get("state")
            if state is not None and self._is_new("state", json.dumps(state)):
                self._recorded(state)

    def _recorded(self, state: dict[str, Any]) -> None:
        step, last = next(reversed(state["steps"].items()))
        # What these keep stands on the node first, with their change of it.
        keeps = self._is_new(step, last.get("left", "")) and step not in _CHANGE_NODES
        if state.get("ended"):
            self.wrote("all is over")
        else:
            self.wrote(f"{step} keeps" if keeps else f"{step} begins")

    def _is_new(self, name: str, text: str) -> bool:
        before, self._kept[name] = self._kept.get(name, ""), text
        return text != before

    def until(
        self,
        over: Callable[[], bool],
        start: Callable[[str], Server],
        when_begun: Callable[[], None],
    ) -> None:
        """Start process after process until ``over``; the last one may live. ``when_begun`` is called with each."""
        while not over():
            with self._lock:
                self._aimed = server = start(f"killed-{len(self.points)}")
            when_begun()
            wait_until(
                lambda: server.process.poll() is not None or over(),  # noqa: B023  # called at once
                PATIENT,
                f"{server.name} killed; points so far: {self.points}",
            )
            assert server.process.poll() in (None, -signal.SIGKILL), server.log.read_text()
        with self._lock:
            self._aimed = None


@contextmanager
def between(plane: ControlPlane, kubeconfig: Path, killing: Killing) -> Iterator[Path]:
    """Stand between processes and the API server; yield the kubeconfig of those that are to be killed."""
    with seen_by(plane, kubeconfig, lambda seen: _noted(seen, killing)) as path:
        yield path


def _noted(seen: Seen, killing: Killing) -> None:
    if not 200 <= seen.status < 300:
        return
    if seen.kind == "patch node":
        killing.patched(json.loads(seen.body))
    elif seen.method == "PUT" and "/configmaps/" in seen.target:
        killing.kept(json.loads(seen.body))
    elif seen.kind == "eviction":
        killing.wrote("eviction", seen.target)
    elif seen.method == "DELETE":
        killing.wrote("deletion", seen.target)
