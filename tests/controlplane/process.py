"""The processes of a control plane: started in groups of their own, and surely ended."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.controlplane import reaper


class Reaper:
    """Kills our process groups even if this process is killed itself (see reaper.py)."""

    def __init__(self, folder: Path | None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", reaper.__file__],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if folder is not None:
            self._tell(f"rm {folder}")

    def add(self, group: int) -> None:
        """Watch over a process group."""
        self._tell(f"+{group}")

    def remove(self, group: int) -> None:
        """Forget a process group that has ended."""
        self._tell(f"-{group}")

    def close(self) -> None:
        """Let it kill the remaining processes, clean up, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=300)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


class Component:
    """One program of the control plane with its log; can be stopped and started again."""

    def __init__(self, name: str, command: Sequence[str], log: Path, reaper_: Reaper) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._reaper = reaper_
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether its process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group."""
        if self._process is None:
            raise RuntimeError(f"{self.name} does not run")
        return self._process.pid

    def start(self) -> None:
        """Start it; its output is appended to its log."""
        if self.running:
            raise RuntimeError(f"{self.name} runs already")
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._reaper.add(self._process.pid)

    def stop(self, *, kill: bool = False, timeout: float = 5.0) -> None:
        """End it by SIGTERM, and by SIGKILL at once or when the time is up."""
        process, self._process = self._process, None
        if process is None:
            return
        if not kill and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
        self._reaper.remove(process.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, such as SIGSTOP and SIGCONT for a server that hangs."""
        if self._process is not None:
            self._process.send_signal(number)

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of its log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class ProcessGroup:
    """Components that end together, in any case."""

    def __init__(self, folder: Path | None) -> None:
        self._reaper = Reaper(folder)
        self._components: dict[str, Component] = {}

    def add(self, name: str, command: Sequence[str], log: Path) -> Component:
        """Make a component, not yet started."""
        component = Component(name, command, log, self._reaper)
        self._components[name] = component
        return component

    def __getitem__(self, name: str) -> Component:
        return self._components[name]

    def close(self) -> None:
        """Kill all of them; for a graceful end, stop each of them before."""
        try:
            for component in reversed(self._components.values()):
                component.stop(kill=True)
        finally:
            self._reaper.close()
