"""Writes a directory as an OCI archive of one layer, which containerd, podman and skopeo read.

``python -m image.oci DIRECTORY ARCHIVE NAME`` writes it with the entry point and user of our image, and prints
its digest.
Equal directories give equal archives: names are sorted, owners and times are 0.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import platform
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from image.root import ENTRYPOINT, USER

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write(
    root: Path, archive: Path, name: str, *, entrypoint: Sequence[str], user: str = USER
) -> str:
    """Write ``root`` to ``archive`` as image ``name`` (``repository:tag``); return the manifest's digest."""
    with tempfile.TemporaryFile() as layer, tarfile.open(archive, "w") as out:
        _write_layer(root, layer)
        digest, size = _digest(layer), layer.tell()
        config = blob(
            {
                "architecture": architecture(),
                "os": "linux",
                "config": {
                    "User": user,
                    "Entrypoint": list(entrypoint),
                    "WorkingDir": "/",
                    "Env": ["LANG=C.UTF-8", "PATH=/usr/local/bin"],
                },
                "rootfs": {"type": "layers", "diff_ids": [digest]},
                "history": [{"created_by": "image/root.py"}],
            }
        )
        layers = [{"mediaType": _LAYER, "digest": digest, "size": size}]
        manifest = blob(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": descriptor(_CONFIG, config),
                "layers": layers,
            }
        )
        index = {
            "schemaVersion": 2,
            "manifests": [
                {
                    **descriptor(_MANIFEST, manifest),
                    "annotations": {
                        "io.containerd.image.name": name,
                        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
                    },
                }
            ],
        }
        add(out, "oci-layout", blob({"imageLayoutVersion": "1.0.0"}))
        add(out, "index.json", blob(index))
        for content in (config, manifest):
            add(out, path_of(sha256(content)), content)
        layer.seek(0)
        out.addfile(_entry(path_of(digest), size), layer)
    return sha256(manifest)


def architecture() -> str:
    """Return what images call the architecture of this machine."""
    return _ARCHITECTURES[platform.machine()]


def _write_layer(root: Path, to: BinaryIO) -> None:
    with tarfile.open(fileobj=to, mode="w", format=tarfile.PAX_FORMAT) as layer:
        for path in sorted(root.rglob("*")):
            layer.add(path, str(path.relative_to(root)), recursive=False, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    entry.pax_headers = {}
    # The builder may have a stricter umask than the image's user can do with.
    if entry.isfile():
        entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    elif entry.isdir() and entry.mode & 0o7777 != 0o1777:
        entry.mode = 0o755
    return entry


def _digest(layer: BinaryIO) -> str:
    layer.seek(0)
    digest = hashlib.sha256()
    while chunk := layer.read(1 << 20):
        digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def blob(value: Mapping[str, Any]) -> bytes:
    """Return ``value`` as canonical JSON: equal values are equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def sha256(content: bytes) -> str:
    """Return the digest of ``content`` as OCI writes it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    """Return what refers to a blob with this ``content``."""
    return {"mediaType": media_type, "digest": sha256(content), "size": len(content)}


def path_of(digest: str) -> str:
    """Return where an archive has the blob of this ``digest``."""
    return "blobs/" + digest.replace(":", "/")


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = 0o644
    return entry


def add(out: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file to an archive, without owner and time."""
    out.addfile(_entry(name, len(content)), io.BytesIO(content))


def main() -> None:
    """Write the archive named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m image.oci", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("archive", type=Path)
    parser.add_argument("name", help="repository:tag")
    chosen = parser.parse_args()
    digest = write(chosen.directory, chosen.archive, chosen.name, entrypoint=ENTRYPOINT)
    sys.stdout.write(f"{digest}\n")


if __name__ == "__main__":
    main()
