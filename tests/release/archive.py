"""Reads an OCI archive back: every blob has the digest and the size by which it is named."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from tests.release.source import ReleaseError


def unpack(archive: Path, to: Path, name: str) -> None:
    """Check the archive of one image called ``name``, and write its root to ``to``.

    Raises:
        ReleaseError: it is not such an archive; the message says what differs.
    """
    with tarfile.open(archive) as layout:
        index = json.loads(_read(layout, "index.json"))
        if json.loads(_read(layout, "oci-layout")) != {"imageLayoutVersion": "1.0.0"}:
            raise ReleaseError(f"{archive.name}: not an OCI image layout")
        (described,) = index["manifests"]
        if described["annotations"]["io.containerd.image.name"] != name:
            raise ReleaseError(f"{archive.name}: its image is not called {name}")
        manifest = json.loads(_blob(layout, described))
        config = json.loads(_blob(layout, manifest["config"]))
        layers = [_checked(layout, each) for each in manifest["layers"]]
        if config["rootfs"]["diff_ids"] != [each["digest"] for each in manifest["layers"]]:
            raise ReleaseError(f"{archive.name}: its configuration names other layers")
        for layer in layers:
            with tarfile.open(fileobj=layout.extractfile(layer)) as files:
                # Only a file of the release itself is read here; the filter refuses what leaves the folder.
                files.extractall(to, filter="tar")


def _read(layout: tarfile.TarFile, path: str) -> bytes:
    try:
        content = layout.extractfile(path)
    except KeyError:
        raise ReleaseError(f"{layout.name!s}: {path} is missing") from None
    assert content is not None
    return content.read()


def _blob(layout: tarfile.TarFile, described: dict[str, Any]) -> bytes:
    return _read(layout, _checked(layout, described))


def _checked(layout: tarfile.TarFile, described: dict[str, Any]) -> str:
    """Return the path of a blob whose content is as its descriptor says."""
    path = "blobs/" + described["digest"].replace(":", "/")
    content = _read(layout, path)
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != described["digest"]:
        raise ReleaseError(f"{layout.name!s}: {path} has another digest")
    if len(content) != described["size"]:
        raise ReleaseError(f"{layout.name!s}: {path} has another size than its descriptor says")
    return path
