"""The peer itself, in a dry run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.controlplane import build

_EVICTED = re.compile(r'"Evicted pod in dry run mode" pod="([^"]+)".*strategy="(\w+)"')
_CYCLE = re.compile(r'descheduler\.go:\d+\] "Number of evictions/requests"')
_SECONDS = 180.0
_CYCLES = 2
"""Its first cycle of a dry run is made on a copy that is not whole yet; later ones are right."""


class PeerError(RuntimeError):
    """It did not come to the end of a cycle; the message has its log."""


def evicted_by_peer(kubeconfig: Path, policy: Mapping[str, Any]) -> dict[str, str]:
    """Return the pods (``namespace/name``) that it would evict, each with the plug-in."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        # JSON is YAML, without words that one version of it reads as booleans.
        json.dump(policy, file)
        file.flush()
        process = subprocess.Popen(
            [
                str(build.binary("descheduler")),
                f"--policy-config-file={file.name}",
                f"--kubeconfig={kubeconfig}",
                *("--dry-run", "--descheduling-interval=200ms", "--v=1", "--secure-port=0"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # The embedded API server sends no initial events over a watch.
            env={**os.environ, "KUBE_FEATURE_WatchListClient": "false"},
        )
        alarm = threading.Timer(_SECONDS, process.kill)
        alarm.start()
        try:
            return _last_cycle(process)
        finally:
            alarm.cancel()
            process.kill()
            process.wait()


def _last_cycle(process: subprocess.Popen[str]) -> dict[str, str]:
    log: list[str] = []
    evicted: dict[str, str] = {}
    cycles = 0
    for line in process.stderr or ():
        log.append(line)
        if (match := _EVICTED.search(line)) is not None:
            evicted[match[1]] = match[2]
        elif _CYCLE.search(line):
            cycles += 1
            if cycles == _CYCLES:
                return evicted
            evicted = {}
    raise PeerError("".join(log[-20:]))
