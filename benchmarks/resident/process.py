"""`rebalancer serve` as a process of its own, which may look but not act unless other options are given."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PATIENCE = 300.0
OURS = str(Path(sys.executable).with_name("rebalancer"))
POLICY = ("--mode=observe", "--set=strategies.low-utilisation.mode=off")
"""Some node of a random cluster is always a little fuller than the others."""


@contextmanager
def serving(
    kubeconfig: Path, *, every: float, options: Sequence[str] = POLICY
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Yield the process, which looks every so many seconds, and the file that it writes its lines to."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [OURS, "serve", *options, f"--every={every:.0f}", f"--kubeconfig={kubeconfig}"],
                stdout=written,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process, log
        finally:
            process.terminate()
            process.wait(_PATIENCE)


def megabytes(pid: int | str = "self", key: str = "VmRSS") -> float:
    """Return the memory of a process, by a key of its status."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(rf"{key}:\s+(\d+) kB", status)[0]) / 1024
