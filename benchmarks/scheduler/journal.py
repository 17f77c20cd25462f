"""What kube-scheduler says at --v=10: the scores of every decision, read as they are written."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

# With contextual logging, a logger's name may stand between the message and its values.
_NAMED = r'(?: logger="[^"]*")? '
_SCORED = re.compile(
    '"Plugin scored node for pod"'
    + _NAMED
    + r'pod="([^"]+)" plugin="([^"]+)" node="([^"]+)" score=(-?\d+)'
)
_CHOSEN = re.compile(
    '"(?:Attempting to bind pod to node|AssumePodVolumes)"'
    + _NAMED
    + 'pod="([^"]+)" node="([^"]+)"'
)
_UNFIT = re.compile(
    '"Unable to schedule pod; no fit; waiting"' + _NAMED + r'pod="([^"]+)" err="((?:[^"\\]|\\.)*)"'
)
_FAILED = re.compile(
    '"Error scheduling pod; retrying" err="((?:[^"\\\\]|\\\\.)*)"' + _NAMED + 'pod="([^"]+)"'
)
_KNOWN = re.compile('"Add event for (?:scheduled pod|node)"' + _NAMED + '(?:pod|node)="([^"]+)"')
_CHANGED = re.compile('"Update event for scheduled pod"' + _NAMED + 'pod="([^"]+)"')
_GONE = re.compile(
    '"Delete event for (?:(?:un)?scheduled pod|node)"' + _NAMED + '(?:pod|node)="([^"]+)"'
)


@dataclass
class Decision:
    """One scheduling attempt, as far as the log tells."""

    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    """Plug-in -> node -> weighted score."""
    node: str = ""
    refused: str | None = None
    """The message, if no node fitted."""
    failed: str | None = None
    """The error, if the attempt ended with one."""

    @property
    def done(self) -> bool:
        """Whether the attempt has ended, for the better or the worse."""
        return bool(self.node) or self.refused is not None or self.failed is not None

    @property
    def scored(self) -> set[str]:
        """The nodes that were scored."""
        return {node for of_plugin in self.scores.values() for node in of_plugin}


class Journal:
    """Follows a log file. Only the first attempt of each pod is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._rest = b""
        self.decisions: dict[str, Decision] = {}
        self.known: set[str] = set()
        """Nodes and scheduled pods that the scheduler has taken notice of."""
        self.changed: set[str] = set()
        """Scheduled pods whose change it has taken notice of."""
        self.gone: set[str] = set()
        """Nodes and pods whose end it has taken notice of."""

    def read(self) -> None:
        """Take in what was written since the last call."""
        with self._path.open("rb") as log:
            log.seek(self._position)
            data = self._rest + log.read()
            self._position = log.tell()
        *lines, self._rest = data.split(b"\n")
        for raw in lines:
            self._line(raw.decode(errors="replace"))

    def wait_for(self, pod: str, timeout: float) -> Decision:
        """Return the first decision on a pod; TimeoutError if there is none in time."""
        deadline = time.monotonic() + timeout
        while True:
            self.read()
            decision = self.decisions.get(pod)
            if decision is not None and decision.done:
                return decision
            if time.monotonic() > deadline:
                raise TimeoutError(f"no decision on {pod} within {timeout:g} s")
            time.sleep(0.005)

    def wait_known(self, names: set[str], timeout: float) -> None:
        """Wait until the scheduler knows these nodes and scheduled pods."""
        self._wait_in(self.known, names, timeout)

    def wait_changed(self, names: set[str], timeout: float) -> None:
        """Wait until the scheduler knows of a change of these scheduled pods."""
        self._wait_in(self.changed, names, timeout)

    def wait_gone(self, names: set[str], timeout: float) -> None:
        """Wait until the scheduler knows that these nodes and pods are gone."""
        self._wait_in(self.gone, names, timeout)

    def forget(self) -> None:
        """Forget what was known: the next cluster may use the same names."""
        for noticed in (self.known, self.changed, self.gone):
            noticed.clear()

    def _wait_in(self, noticed: set[str], names: set[str], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self.read()
        while not names <= noticed:
            if time.monotonic() > deadline:
                raise TimeoutError(f"unnoticed by the scheduler: {sorted(names - noticed)[:5]}")
            time.sleep(0.01)
            self.read()

    def _of(self, pod: str) -> Decision:
        return self.decisions.setdefault(pod, Decision())

    def _line(self, line: str) -> None:
        if match := _SCORED.search(line):
            pod, plugin, node, score = match.groups()
            if not self._of(pod).done:
                self._of(pod).scores.setdefault(plugin, {})[node] = int(score)
        elif match := _KNOWN.search(line):
            self.known.add(match[1])
        elif match := _CHANGED.search(line):
            self.changed.add(match[1])
        elif match := _GONE.search(line):
            self.gone.add(match[1])
        elif match := _CHOSEN.search(line):
            if not self._of(match[1]).done:
                self._of(match[1]).node = match[2]
        elif (match := _UNFIT.search(line)) and not self._of(match[1]).done:
            self._of(match[1]).refused = match[2]
        elif (match := _FAILED.search(line)) and not self._of(match[2]).done:
            self._of(match[2]).failed = match[1]
