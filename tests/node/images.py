"""The images of the real node: the rebalancer's, made by the Containerfile's own steps, and the sandbox's."""

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from image import oci, root
from tests.controlplane import build
from tests.node import containerfile

REBALANCER = "localhost/kube-rebalancer:under-test"
PAUSE = "rebalancer.test/pause:1"

_CACHE = root.SOURCE / ".cache" / "image"
_ARCHIVE = "rebalancer.tar"
_PAUSE_SOURCE = Path(__file__).resolve().parent / "pause"


def make_rebalancer() -> Path:
    """Return the archive of the product's image, built once from these sources: its compiler takes minutes."""
    target = _CACHE / _digest_of_sources()

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="rebalancer-image-") as scratch:
            made = containerfile.build(Path(scratch))
            oci.write(made, folder / _ARCHIVE, REBALANCER, entrypoint=root.ENTRYPOINT)

    build.make_once(target, what="the image", build=make)
    return target / _ARCHIVE


def _digest_of_sources() -> str:
    """Return a digest of all that the build can read: what .containerignore lets through, and how it is built."""
    lines = (root.SOURCE / ".containerignore").read_text().splitlines()
    named = [
        "Containerfile",
        "tests/node/containerfile.py",
        *(one[1:] for one in lines if one[0] == "!"),
    ]
    made = {"__pycache__", ".mypy_cache", ".ruff_cache"}
    digest = hashlib.sha256(sys.version.encode())
    for top in map(root.SOURCE.joinpath, named):
        for path in [top, *sorted(top.rglob("*"))]:
            if path.is_file() and path.suffix != ".so" and not made & set(path.parts):
                digest.update(f"\0{path.relative_to(root.SOURCE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def write_pause(folder: Path) -> Path:
    """Build the sandbox's image, a program that waits, and return its archive."""
    source, made = folder / "pause-source", folder / "pause"
    shutil.copytree(_PAUSE_SOURCE, source)
    made.mkdir()
    build.go(["build", "-trimpath", "-ldflags", "-s -w", "-o", f"{made}/pause", "."], source)
    archive = folder / "pause.tar"
    oci.write(made, archive, PAUSE, entrypoint=["/pause"])
    return archive
