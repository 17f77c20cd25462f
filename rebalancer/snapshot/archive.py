"""Reads snapshot files of ours: their manifest, and their lists piece by piece.

A file may be damaged, cut off, or made to do harm. Only what the manifest lists is read, each member once and
never more of it than its size in the manifest; only one piece is in memory.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from rebalancer.snapshot.file_format import MANIFEST, Manifest, StoredList, decode_manifest

MAGIC = b"PK"
_PIECE = 1 << 20
_LARGEST_MANIFEST = 1 << 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class SnapshotArchive:
    """An open file."""

    def __init__(self, stream: BinaryIO) -> None:
        """Read the manifest from a stream that can seek.

        Raises:
            ValueError: it is no such file, or not a whole one.
        """
        with _as_value_errors():
            self._zip = zipfile.ZipFile(stream)
        text = b"".join(self._pieces(MANIFEST, _LARGEST_MANIFEST))
        self.manifest: Manifest = decode_manifest(text)

    def pieces(self, stored: StoredList) -> Iterator[bytes]:
        """Yield the bytes of a list.

        Raises:
            ValueError: they are damaged, or not all there.
        """
        size = 0
        for piece in self._pieces(stored.file, stored.bytes):
            size += len(piece)
            yield piece
        if size < stored.bytes:
            raise ValueError(
                f"{stored.file}: it has {size} bytes, not the {stored.bytes} of the manifest"
            )

    def _pieces(self, name: str, most: int) -> Iterator[bytes]:
        with _as_value_errors(name):
            info = self._zip.getinfo(name)
            if info.compress_type not in _METHODS:
                raise ValueError("it is compressed in a way that snapshots are not")
            with self._zip.open(info) as member:
                left = most
                # One byte more than there should be: the end is seen, and the checksum compared.
                while piece := member.read(min(_PIECE, left + 1)):
                    left -= len(piece)
                    if left < 0:
                        raise ValueError(f"it has more than {most} bytes")
                    yield piece


@contextmanager
def _as_value_errors(name: str = "") -> Iterator[None]:
    """Turn what zipfile raises of damaged files into a ValueError that names the member."""
    where = f"{name}: " if name else ""
    try:
        yield
    except KeyError:
        raise ValueError(f"{where}it is not in the file, which is cut off or no snapshot") from None
    except EOFError:
        raise ValueError(f"{where}cut off") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{where}damaged or cut off: {error}") from None
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where}{error}") from None
