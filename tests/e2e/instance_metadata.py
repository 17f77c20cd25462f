"""The metadata of an EC2 instance as amazon-ec2-metadata-mock has them: AWS's own, written by nobody here.

It cannot lapse tokens by a clock, break single paths, or count what it is asked for: that is what tests/aws/imds.py is for.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rebalancer.base.sending import attempt
from tests.controlplane import ports, wait_until
from tests.controlplane.build import binary

INSTANCE = "i-1234567890abcdef0"
NOTHING = ("spot", "--mock-delay-sec=1000000", "--rebalance-delay-sec=1000000")
"""What it is started with to announce nothing."""
_LASTING = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}


class InstanceMetadata:
    """The service at an address, with tokens only (IMDSv2); each of its announcements needs a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, ports.free(["imds"])["imds"]
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def say(self, *command: str) -> None:
        """Announce what a command of the program says, and nothing else; tokens of before are of no use."""
        self.end()
        at = ("--imdsv2", "--hostname=127.0.0.1", f"--port={self._port}")
        with (self._folder / "metadata.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(binary("ec2-metadata-mock")), *command, *at],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"HOME": str(self._folder)},
                cwd=self._folder,
            )
        asked = f"{self.url}/latest/api/token"
        wait_until(lambda: attempt("PUT", asked, b"", _LASTING, 2.0) is None, 60, "a token")

    def end(self) -> None:
        """End the process that answers."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)


@contextmanager
def instance_metadata(folder: Path) -> Iterator[InstanceMetadata]:
    """Yield the metadata of an instance that is not announced to go."""
    made = InstanceMetadata(folder)
    try:
        made.say(*NOTHING)
        yield made
    finally:
        made.end()
