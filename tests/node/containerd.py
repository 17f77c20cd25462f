"""A containerd with a folder of its own, beside whatever else runs on this machine."""

import subprocess
from pathlib import Path

from tests.controlplane import wait_until
from tests.controlplane.process import ProcessGroup
from tests.node import config

_SECONDS = 60.0


class Containerd:
    """A process of a group that its owner ends."""

    def __init__(self, folder: Path, programs: config.Programs) -> None:
        self._folder, self._programs = folder, programs

    def start(self, processes: ProcessGroup) -> None:
        """Start it, and wait until it answers.

        Raises:
            TimeoutError: it does not; the message has its last words.
        """
        path = config.write_containerd(self._folder, self._programs)
        # It finds its shim by PATH.
        command = ["/usr/bin/env", f"PATH={self._programs.shim.parent}:/usr/sbin:/sbin:/bin"]
        command += [str(self._programs.containerd), f"--config={path}"]
        containerd = processes.add("containerd", command, self._folder / "containerd.log")
        containerd.start()
        try:
            wait_until(self._answers, _SECONDS, "containerd ready")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; its last words:\n{containerd.tail()}") from None

    def load(self, archive: Path) -> None:
        """Import an image: hundreds of megabytes, which a busy disk writes slowly."""
        self.ctr("images", "import", "--all-platforms", str(archive), timeout=900)

    def ctr(self, *arguments: str, timeout: float = 120.0) -> str:
        """Run its own client on the pods' containers and return what it printed.

        Raises:
            RuntimeError: it failed; the message is its own.
        """
        address = f"--address={self._folder}/containerd.sock"
        done = subprocess.run(
            [str(self._programs.ctr), address, "--namespace=k8s.io", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        if done.returncode != 0:
            raise RuntimeError(f"ctr {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _answers(self) -> bool:
        try:
            self.ctr("version", timeout=30)
        except (RuntimeError, subprocess.TimeoutExpired):
            return False
        return True
