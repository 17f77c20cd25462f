"""Time, memory and CPU of whole processes, and of the API server meanwhile."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Measured:
    """One process from exec to exit."""

    status: int
    """Its exit code; negative if a signal ended it (the time limit's is -9)."""
    seconds: float
    cpu: float
    peak_mb: float
    server_cpu: float
    """Seconds of CPU that another process used meanwhile."""
    out: str
    err: str


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a running process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def settle(pids: Sequence[int], *, quiet: float = 0.25, limit: float = 180.0) -> bool:
    """Wait until these processes together use less than ``quiet`` cores for three seconds running.

    Otherwise the first program measured pays for what the servers still have to digest. Return whether
    that came about within ``limit`` seconds.
    """
    ends = time.monotonic() + limit
    while time.monotonic() < ends:
        before, started = sum(map(cpu_seconds, pids)), time.monotonic()
        time.sleep(3.0)
        if sum(map(cpu_seconds, pids)) - before < quiet * (time.monotonic() - started):
            return True
    return False


def run(
    command: Sequence[str],
    *,
    server: int | None = None,
    limit: float = 900.0,
    environment: Mapping[str, str] | None = None,
) -> Measured:
    """Run a command to its end, or to the time limit; ``server`` is the process id of the API server."""
    before = cpu_seconds(server) if server is not None else 0.0
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.monotonic()
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=dict(environment) if environment is not None else None,
        )
        watchdog = threading.Timer(limit, process.kill)
        peaks = _Peaks(process.pid)
        watchdog.start()
        peaks.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            watchdog.cancel()
            peaks.end()
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    return Measured(
        status=process.returncode,
        seconds=seconds,
        cpu=usage.ru_utime + usage.ru_stime,
        peak_mb=peaks.megabytes,
        server_cpu=cpu_seconds(server) - before if server is not None else 0.0,
        out=texts[0],
        err=texts[1],
    )


class _Peaks:
    """Looks at the peak of a process's memory until it ends.

    What the kernel says of it at its end counts the memory of this process, too, which it had until its exec.
    """

    _LOOK = 0.02

    def __init__(self, pid: int) -> None:
        self.megabytes = 0.0
        self._status, self._ended = Path(f"/proc/{pid}/status"), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin, after the exec."""
        self._thread.start()

    def end(self) -> None:
        """The process has ended."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._LOOK):
            with contextlib.suppress(OSError):
                for peak in re.findall(r"VmHWM:\s+(\d+) kB", self._status.read_text()):
                    self.megabytes = int(peak) / 1024
