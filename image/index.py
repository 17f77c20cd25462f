"""Joins OCI archives of one image, each of another architecture, into one archive with an image index.

``python -m image.index ARCHIVE NAME PART...`` writes it and prints the digest of the index: nodes of every architecture pull
one name.
Parts are written by :mod:`image.oci`, each on a machine of its architecture. Equal parts, in any order, give equal archives.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from image.oci import add, blob, descriptor, path_of, sha256

_INDEX = "application/vnd.oci.image.index.v1+json"


def join(parts: Sequence[Path], archive: Path, name: str) -> str:
    """Write ``archive`` with the images of ``parts`` under one ``name`` (``repository:tag``); return the index's digest.

    Raises:
        ValueError: two parts are of the same architecture, or one is no such archive.
    """
    with ExitStack() as stack:
        layouts = [stack.enter_context(tarfile.open(part)) for part in parts]
        manifests: dict[str, dict[str, Any]] = {}
        for part, layout in zip(parts, layouts, strict=True):
            described = _manifest_of(layout)
            architecture = described["platform"]["architecture"]
            if architecture in manifests:
                raise ValueError(f"{part}: there is an image for {architecture} already")
            manifests[architecture] = described
        index = blob(
            {
                "schemaVersion": 2,
                "mediaType": _INDEX,
                "manifests": [manifests[architecture] for architecture in sorted(manifests)],
            }
        )
        names = {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        }
        described = {**descriptor(_INDEX, index), "annotations": names}
        with tarfile.open(archive, "w") as out:
            add(out, "oci-layout", blob({"imageLayoutVersion": "1.0.0"}))
            add(out, "index.json", blob({"schemaVersion": 2, "manifests": [described]}))
            add(out, path_of(sha256(index)), index)
            _copy_blobs(layouts, out)
    return sha256(index)


def _manifest_of(layout: tarfile.TarFile) -> dict[str, Any]:
    """Return the descriptor of a part's image, with its platform instead of its name."""
    (described,) = _json_of(layout, "index.json")["manifests"]
    manifest = _json_of(layout, path_of(described["digest"]))
    config = _json_of(layout, path_of(manifest["config"]["digest"]))
    del described["annotations"]
    platform = {"architecture": config["architecture"], "os": config["os"]}
    return {**described, "platform": platform}


def _json_of(layout: tarfile.TarFile, path: str) -> Any:
    content = layout.extractfile(path)
    if content is None:
        raise ValueError(f"{layout.name!s}: {path} is not a file")
    return json.load(content)


def _copy_blobs(layouts: Sequence[tarfile.TarFile], out: tarfile.TarFile) -> None:
    """Copy the parts' blobs in the order of their digests; one that several parts have, once."""
    blobs: Mapping[str, tarfile.TarFile] = {
        path: layout
        for layout in layouts
        for path in layout.getnames()
        if path.startswith("blobs/")
    }
    for path, layout in sorted(blobs.items()):
        out.addfile(layout.getmember(path), layout.extractfile(path))


def main() -> None:
    """Write the archive named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m image.index", description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("name", help="repository:tag")
    parser.add_argument("parts", type=Path, nargs="+")
    chosen = parser.parse_args()
    try:
        digest = join(chosen.parts, chosen.archive, chosen.name)
    except ValueError as error:
        parser.error(str(error))
    sys.stdout.write(f"{digest}\n")


if __name__ == "__main__":
    main()
