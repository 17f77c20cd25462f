"""Serves the image of one OCI archive as a registry does, to read only: what a node needs to pull it.

``python -m image.registry ARCHIVE`` serves it until Ctrl-C. Container runtimes pull from an address of the loopback
interface without TLS; from any other address only where that is configured.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from image.oci import path_of

ADDRESS = "127.0.0.1:5000"
_PATH = re.compile(r"/v2/kube-rebalancer/(manifests|blobs)/([\w.:+-]+)\Z", re.ASCII)
_PIECE = 1 << 20


@dataclass(frozen=True)
class Archive:
    """Where the blobs of an archive are in its file, and which of them is the image's manifest."""

    path: Path
    digest: str
    media_type: str
    blobs: dict[str, tuple[int, int]]
    """Digest -> offset and size."""

    @classmethod
    def read(cls, path: Path) -> Archive:
        """Read the index of an archive.

        Raises:
            OSError, tarfile.TarError: it cannot be read.
            ValueError: it is no OCI archive of one image.
        """
        with tarfile.open(path, "r:") as archive:
            index = archive.extractfile("index.json")
            (manifest,) = json.loads(b"" if index is None else index.read())["manifests"]
            blobs = {
                entry.name.removeprefix("blobs/").replace("/", ":"): (entry.offset_data, entry.size)
                for entry in archive
                if entry.name.startswith("blobs/")
            }
        digest = manifest["digest"]
        if digest not in blobs:
            raise ValueError(f"{path}: {path_of(digest)} is missing")
        return cls(path, digest, manifest["mediaType"], blobs)


class _Handler(BaseHTTPRequestHandler):
    archive: ClassVar[Archive]

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self._answer(with_body=False)

    def do_GET(self) -> None:
        """Answer with the body."""
        self._answer(with_body=True)

    def log_message(self, *_: object) -> None:
        """Say nothing: the node's events say what was pulled."""

    def _answer(self, *, with_body: bool) -> None:
        if self.path == "/v2/":
            self._begin(HTTPStatus.OK, "application/json", 2, "")
            self._write(b"{}" if with_body else b"")
            return
        match = _PATH.match(self.path)
        kind, name = ("", "") if match is None else match.groups()
        # There is one image, whatever its tag.
        digest = self.archive.digest if kind == "manifests" and ":" not in name else name
        place = self.archive.blobs.get(digest)
        if place is None:
            self._begin(HTTPStatus.NOT_FOUND, "application/json", 0, "")
            return
        of_manifest = digest == self.archive.digest
        media_type = self.archive.media_type if of_manifest else "application/octet-stream"
        self._begin(HTTPStatus.OK, media_type, place[1], digest)
        if with_body:
            self._send(*place)

    def _begin(self, status: HTTPStatus, media_type: str, size: int, digest: str) -> None:
        self.send_response(status)
        self.send_header("Docker-Distribution-API-Version", "registry/2.0")
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(size))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()

    def _write(self, body: bytes) -> None:
        self.wfile.write(body)

    def _send(self, offset: int, size: int) -> None:
        with self.archive.path.open("rb") as file:
            file.seek(offset)
            while size and (piece := file.read(min(_PIECE, size))):
                self._write(piece)
                size -= len(piece)


@contextmanager
def serving(archive: Archive, address: str = ADDRESS) -> Iterator[str]:
    """Serve an archive while inside; yield the image's repository.

    Raises:
        OSError: the address cannot be had.
        ValueError: it is no HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    handler = type("Handler", (_Handler,), {"archive": archive})
    with ThreadingHTTPServer((host, int(port)), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"{host}:{server.server_port}/kube-rebalancer"
        finally:
            server.shutdown()
            thread.join()


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m image.registry", description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--address", default=ADDRESS)
    given = parser.parse_args()
    with serving(Archive.read(given.archive), given.address) as repository:
        sys.stdout.write(f"{repository}: Ctrl-C ends it\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
