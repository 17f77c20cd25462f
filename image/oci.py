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
        config = _blob(
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
        manifest = _blob(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _descriptor(_CONFIG, config),
                "layers": layers,
            }
        )
        index = {
            "schemaVersion": 2,
            "manifests": [
                {
                    **_descriptor(_MANIFEST, manifest),
                    "annotations": {
                        "io.containerd.image.name": name,
                        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
                    },
                }
            ],
        }
        _add(out, "oci-layout", _blob({"imageLayoutVersion": "1.0.0"}))
        _add(out, "index.json", _blob(index))
        for blob in (config, manifest):
            _add(out, _path(_sha256(blob)), blob)
        layer.seek(0)
        out.addfile(_entry(_path(digest), size), layer)
    return _sha256(manifest)


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


def _blob(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _sha256(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _sha256(blob), "size": len(blob)}


def _path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = 0o644
    return entry


def _add(out: tarfile.TarFile, name: str, blob: bytes) -> None:
    out.addfile(_entry(name, len(blob)), io.BytesIO(blob))


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
