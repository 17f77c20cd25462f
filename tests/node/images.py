"""The images of the real node: the rebalancer's, made by the Containerfile's own steps, and the sandbox's."""

import shutil
from pathlib import Path

from image import oci, root
from tests.controlplane import build
from tests.node import containerfile

REBALANCER = "localhost/kube-rebalancer:under-test"
PAUSE = "rebalancer.test/pause:1"

_PAUSE_SOURCE = Path(__file__).resolve().parent / "pause"


def write_rebalancer(folder: Path) -> Path:
    """Build the product's image and return its archive."""
    made = containerfile.build(folder)
    archive = folder / "rebalancer.tar"
    oci.write(made, archive, REBALANCER, entrypoint=root.ENTRYPOINT)
    return archive


def write_pause(folder: Path) -> Path:
    """Build the sandbox's image, a program that waits, and return its archive."""
    source, made = folder / "pause-source", folder / "pause"
    shutil.copytree(_PAUSE_SOURCE, source)
    made.mkdir()
    build.go(["build", "-trimpath", "-ldflags", "-s -w", "-o", f"{made}/pause", "."], source)
    archive = folder / "pause.tar"
    oci.write(made, archive, PAUSE, entrypoint=["/pause"])
    return archive
