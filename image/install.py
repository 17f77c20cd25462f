"""Installs the chart of this checkout on a cluster, with an image that this machine serves while a first run pulls it.

``python -m image.install ARCHIVE [--context NAME] [--address HOST:PORT] [--helm-flags=FLAGS]``; ``make install`` builds the archive, too. The
release only reports; the report of its first run is printed.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from image.registry import ADDRESS, Archive, serving

ROOT = Path(__file__).resolve().parents[1]
RELEASE = "kube-rebalancer"


def main() -> int:
    """Install, wait for the first run, and print what it says."""
    parser = argparse.ArgumentParser(prog="python -m image.install", description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--context", default="")
    parser.add_argument("--namespace", default="rebalancing")
    parser.add_argument("--address", default=ADDRESS)
    parser.add_argument("--helm-flags", default="", help="further flags, in one word")
    given = parser.parse_args()
    programs = {name: shutil.which(name) or "" for name in ("helm", "kubectl")}
    if missing := [name for name, path in programs.items() if not path]:
        return _fail(f"not on the PATH: {', '.join(missing)}")
    where = [f"--namespace={given.namespace}"]
    context = [given.context] if given.context else []
    try:
        with serving(archive := Archive.read(given.archive), given.address) as repository:
            _say(f"installing {repository}@{archive.digest}")
            image = [f"image.repository={repository}", f"image.digest={archive.digest}"]
            values = [f"--set={one}" for one in ("mode=observe", "runNow.enabled=true", *image)]
            flags = ["--create-namespace", *(f"--kube-context={one}" for one in context), *where]
            command = ["upgrade", "--install", RELEASE, str(ROOT / "chart"), *flags, *values]
            code = _call([programs["helm"], *command, *shlex.split(given.helm_flags)])
    except (OSError, ValueError) as error:
        return _fail(f"{given.archive}, {given.address}: {error}")
    if code != 0:
        return _fail(
            "the first run has not ended well; kubectl describe pods says whether its node could pull"
            f" from {given.address}. A node elsewhere needs a registry that it reaches: push the archive there"
        )
    at = [f"--context={one}" for one in context]
    code = _call([programs["kubectl"], *at, *where, "logs", f"job/{RELEASE}-now"])
    _say(
        "\nIt reports every two minutes, and moves nothing. The registry has ended: only nodes that have run it have the image."
    )
    return code


def _call(command: list[str]) -> int:
    return subprocess.run(command, check=False).returncode  # noqa: S603 - programs of the PATH


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _fail(text: str) -> int:
    sys.stderr.write(f"install: {text}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
