"""The contenders: one process per run, as a CronJob would start it."""

from __future__ import annotations

import contextlib
import copy
import json
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import build

_ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 900.0
_PROGRAM = (sys.executable, "-m", "rebalancer")


@dataclass(frozen=True)
class Process:
    """How one process ended."""

    code: int
    out: str
    err: str
    seconds: float
    peak_mib: float


@dataclass(frozen=True)
class Run:
    """One run of a contender."""

    process: Process
    report: dict[str, Any] = field(default_factory=dict)


class Contender(ABC):
    """Something that evicts."""

    name: str

    @abstractmethod
    def run(self, kubeconfig: Path) -> Run:
        """Run once."""


class Ours(Contender):
    """``rebalancer run`` with the default policy, but for pods that are only minutes old."""

    def __init__(
        self,
        folder: Path,
        *,
        lifted: bool = False,
        marks: bool = False,
        policy: str | None = None,
        memory: str | None = None,
        start: Sequence[str] = _PROGRAM,
    ) -> None:
        """``marks``: the policy lets marks choose landings. ``memory`` is ``namespace/name`` of a ConfigMap that exists; without it nothing is remembered.

        ``start`` starts the program; by default so that its seconds and its memory are those of a CronJob's run.
        """
        self._start = start
        self.name = "ours" + (", budgets lifted" if lifted else "") + (", marks" if marks else "")
        self._flags = ["--lift-budgets"] if lifted else []
        if memory is not None:
            self._flags.append(f"--memory={memory}")
        self._policy = folder / "rebalancer.yaml"
        self._policy.write_text(policy or default_policy(marks=marks))

    def run(self, kubeconfig: Path) -> Run:
        """Run once; a run that fails is an error of the benchmark."""
        done = process(
            [
                *(*self._start, "run", "--yes", "--output=json", "--quiet"),
                *(f"--policy={self._policy}", f"--kubeconfig={kubeconfig}", *self._flags),
            ]
        )
        if done.code not in (0, 4):
            raise RuntimeError(f"exit code {done.code}: {done.err[-2000:]}")
        return Run(done, json.loads(done.out))


class Peer(Contender):
    """The descheduler, by default with the policy of its name in `PEER_POLICIES`."""

    def __init__(
        self, folder: Path, policy: Mapping[str, Any] | None = None, *, name: str = "peer"
    ) -> None:
        self.name = name
        self._policy = folder / f"{name}.yaml"
        self._policy.write_text(yaml.safe_dump(dict(policy or PEER_POLICIES[name])))

    def run(self, kubeconfig: Path) -> Run:
        """Run one cycle with the chart's flags."""
        done = process(
            [
                str(build.binary("descheduler")),
                f"--policy-config-file={self._policy}",
                f"--kubeconfig={kubeconfig}",
                *("--descheduling-interval=0", "--v=3", "--secure-port=0"),
            ]
        )
        if done.code != 0:
            raise RuntimeError(f"exit code {done.code}: {done.err[-2000:]}")
        return Run(done)


def default_policy(*, without: Collection[str] = (), marks: bool = False) -> str:
    """Return the policy of a default install, but with no minimum age of a pod.

    ``without`` leaves strategies out; ``marks`` may choose landings.
    """
    folder = _ROOT / "rebalancer" / "policy" / "default"
    policy = yaml.safe_load((folder / "rebalancer.yaml").read_text())
    policy["protect"]["minPodAge"] = "0s"
    policy["steer"] = "marks" if marks else "off"
    policy["strategies"] = {
        path.stem: {
            key: value
            for key, value in yaml.safe_load(path.read_text()).items()
            if key not in ("apiVersion", "kind")
        }
        for path in sorted(folder.glob("*.yaml"))
        if path.stem not in ("rebalancer", *without)
    }
    return str(yaml.safe_dump(policy, sort_keys=False))


def process(command: list[str]) -> Process:
    """Run a command to its end, and measure it."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        process = subprocess.Popen(
            command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=_ROOT
        )
        try:
            peak = _follow(process, began + _SECONDS)
        except BaseException:
            process.kill()
            process.wait()
            raise
        seconds = time.monotonic() - began
        out.seek(0)
        err.seek(0)
        return Process(process.returncode, out.read().decode(), err.read().decode(), seconds, peak)


def _follow(process: subprocess.Popen[bytes], deadline: float) -> float:
    """Wait for a process; return its peak memory in MiB.

    The kernel's own high-water mark, read again and again: what it tells after the end (``ru_maxrss``)
    counts this process as well, which the child was a copy of before it became another program.
    """
    peak = 0.0
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{process.args!r} did not end within {_SECONDS:g} s")
        time.sleep(0.02)
        with contextlib.suppress(OSError):
            marks = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
            peak = max([peak, *(int(mark.split()[1]) / 1024 for mark in marks)])
    return peak


PEER_POLICY: dict[str, Any] = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerPolicy",
    "profiles": [
        {
            "name": "default",
            "pluginConfig": [
                {
                    "name": "DefaultEvictor",
                    "args": {
                        "nodeFit": True,
                        "podProtections": {
                            "defaultDisabled": ["PodsWithLocalStorage"],
                            "extraEnabled": ["PodsWithPVC"],
                        },
                    },
                },
                {"name": "RemoveDuplicates"},
                {
                    "name": "RemovePodsHavingTooManyRestarts",
                    "args": {"podRestartThreshold": 100, "includingInitContainers": True},
                },
                {
                    "name": "RemovePodsViolatingNodeAffinity",
                    "args": {
                        "nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]
                    },
                },
                {"name": "RemovePodsViolatingNodeTaints"},
                {"name": "RemovePodsViolatingInterPodAntiAffinity"},
                {"name": "RemovePodsViolatingTopologySpreadConstraint"},
                {
                    "name": "LowNodeUtilization",
                    "args": {
                        "thresholds": {"cpu": 20, "memory": 20, "pods": 20},
                        "targetThresholds": {"cpu": 50, "memory": 50, "pods": 50},
                    },
                },
            ],
            "plugins": {
                "balance": {
                    "enabled": [
                        "RemoveDuplicates",
                        "RemovePodsViolatingTopologySpreadConstraint",
                        "LowNodeUtilization",
                    ]
                },
                "deschedule": {
                    "enabled": [
                        "RemovePodsHavingTooManyRestarts",
                        "RemovePodsViolatingNodeTaints",
                        "RemovePodsViolatingNodeAffinity",
                        "RemovePodsViolatingInterPodAntiAffinity",
                    ]
                },
            },
        }
    ],
}
"""The default values of its chart (v0.36.0), and ``nodeFit``."""


def _with_soft_constraints(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the policy with one option more: spread constraints that only prefer are rules, too."""
    changed = copy.deepcopy(dict(policy))
    (spread,) = (
        plugin
        for plugin in changed["profiles"][0]["pluginConfig"]
        if plugin["name"] == "RemovePodsViolatingTopologySpreadConstraint"
    )
    spread["args"] = {"constraints": ["DoNotSchedule", "ScheduleAnyway"]}
    return changed


PEER_POLICIES: Mapping[str, Mapping[str, Any]] = {
    "peer": PEER_POLICY,
    "peer-soft": _with_soft_constraints(PEER_POLICY),
}
"""By contender. Its default policy looks at hard spread constraints only; most who care about zones set both kinds."""
