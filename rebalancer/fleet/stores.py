"""Stores of snapshots: a folder, or a prefix in a bucket of an object store (``s3://BUCKET/PREFIX``).

In both, a file gets its name only when it is complete: by a rename, or because S3 creates an object by one request.
Buckets need the extra ``aws``; boto3 finds credentials, region and the address of the store (``AWS_ENDPOINT_URL``).
"""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from rebalancer.base.errors import PolicyError

S3 = "s3://"
_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?", re.ASCII)
_CONNECT, _READ, _ATTEMPTS = 5.0, 60.0, 5


class SnapshotStore(Protocol):
    """The interface of stores. All methods raise OSError if a file cannot be read or written."""

    where: str

    def sizes(self) -> Mapping[str, int]:
        """Return name -> bytes of all files."""

    def url(self, name: str) -> str:
        """Return the path or URL of a file for ``--snapshots``."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading; it is seekable."""

    def fetch(self, name: str, work: Path) -> Path:
        """Return the path of a local copy of a file. A copy of a remote file is in ``work``."""

    def add(self, file: Path, name: str) -> None:
        """Move a local file into the store under a new name, which appears only when the file is complete and safe."""

    def put(self, name: str, data: bytes) -> None:
        """Write or replace a file; its name appears only when it is complete."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def clear(self) -> None:
        """Remove all files, and the folder itself if the store has one."""

    def hold(self) -> Any:
        """Lock the store for recording; return a context that yields a local working folder.

        Raises:
            PolicyError: another process holds the lock, or the store cannot be written.
        """


def store_of(where: str) -> SnapshotStore:
    """Return the store of a directory or of ``s3://BUCKET/PREFIX``.

    Raises:
        PolicyError: the URL is invalid, or boto3 is not installed.
    """
    return Bucket(where) if where.startswith(S3) else Folder(where)


class Folder:
    """A folder of this machine, or a volume."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._path = Path(where)

    def sizes(self) -> Mapping[str, int]:
        """Return name -> bytes of all files."""
        return {file.name: file.stat().st_size for file in self._path.iterdir() if file.is_file()}

    def url(self, name: str) -> str:
        """Return the path of a file."""
        return str(self._path / name)

    def open(self, name: str) -> BinaryIO:
        """Return a file."""
        return (self._path / name).open("rb")

    def fetch(self, name: str, work: Path) -> Path:  # noqa: ARG002  (it is local)
        """Return the file itself."""
        return self._path / name

    def add(self, file: Path, name: str) -> None:
        """Rename a file that lies in the folder."""
        with file.open("rb+") as stream:
            os.fsync(stream.fileno())
        file.replace(self._path / name)

    def put(self, name: str, data: bytes) -> None:
        """Write a file by a rename; its folder is created if it does not exist."""
        self._path.mkdir(parents=True, exist_ok=True)
        descriptor, written = tempfile.mkstemp(prefix=f".{name}.", dir=self._path)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            # Pods of another user read it.
            os.fchmod(stream.fileno(), 0o644)
        self.add(Path(written), name)

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self._path / name).unlink()

    def clear(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._path, ignore_errors=True)

    @contextmanager
    def hold(self) -> Iterator[Path]:
        """Lock and yield the folder, which is created if it does not exist."""
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise PolicyError(
                [f"{self.where}: cannot be written: {error.strerror or error}"]
            ) from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PolicyError([f"{self.where}: another process records into it"]) from None
            yield self._path
        finally:
            os.close(descriptor)


class Bucket:
    """The objects of a bucket whose keys begin with a prefix."""

    def __init__(self, where: str) -> None:
        match = _BUCKET.fullmatch(where)
        if match is None:
            raise PolicyError([f"{where}: write s3://BUCKET/PREFIX"])
        self.where = where
        self._bucket, prefix = match[1], (match[2] or "").rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""

    def sizes(self) -> Mapping[str, int]:
        """Return name -> bytes of all objects; names may have folders."""
        with _as_os_errors():
            pages = _client().get_paginator("list_objects_v2")
            return {
                one["Key"].removeprefix(self._prefix): one["Size"]
                for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix)
                for one in page.get("Contents", ())
            }

    def url(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{S3}{self._bucket}/{self._prefix}{name}"

    def open(self, name: str) -> BinaryIO:
        """Open an object, which is downloaded as a whole first: an interrupted download is an error, never a shorter file."""
        with _as_os_errors():
            answer = _client().get_object(Bucket=self._bucket, Key=self._prefix + name)
            return BytesIO(answer["Body"].read())

    def fetch(self, name: str, work: Path) -> Path:
        """Return a copy of an object in ``work``. The copy is reused, since objects never change."""
        copy = work / Path(name).name
        if not copy.exists():
            partial = work / ".fetched"
            partial.write_bytes(self.open(name).read())
            partial.replace(copy)
        return copy

    def add(self, file: Path, name: str) -> None:
        """Create an object by one request, if it does not exist yet; the store checks its checksum."""
        with file.open("rb") as stream:
            self._put(name, stream, IfNoneMatch="*")
        file.unlink()

    def put(self, name: str, data: bytes) -> None:
        """Write or replace an object."""
        self._put(name, data)

    def _put(self, name: str, body: bytes | BinaryIO, **conditions: str) -> None:
        with _as_os_errors():
            _client().put_object(
                Bucket=self._bucket,
                Key=self._prefix + name,
                Body=body,
                ChecksumAlgorithm="SHA256",
                **conditions,
            )

    def remove(self, name: str) -> None:
        """Remove an object."""
        with _as_os_errors():
            _client().delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def clear(self) -> None:
        """Remove all objects."""
        for name in self.sizes():
            self.remove(name)

    @contextmanager
    def hold(self) -> Iterator[Path]:
        """Yield a temporary folder. A bucket has no lock: two processes never write the same object, but both may record."""
        with tempfile.TemporaryDirectory(prefix="rebalancer-record-") as work:
            yield Path(work)


@cache
def _client() -> Any:
    """Return the client of S3 of this process.

    Raises:
        PolicyError: boto3 is not installed.
    """
    try:
        boto3 = importlib.import_module("boto3")
        config = importlib.import_module("botocore.config").Config(
            connect_timeout=_CONNECT,
            read_timeout=_READ,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        )
    except ImportError as error:
        raise PolicyError(
            [f"s3:// needs the extra aws: pip install '.[aws]' in a checkout ({error})"]
        ) from None
    with _as_os_errors():
        return boto3.client("s3", config=config)


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Convert boto3's errors into OSError; its message is one line without secrets."""
    errors = importlib.import_module("botocore.exceptions")
    try:
        yield
    except errors.ClientError as error:
        said = error.response.get("Error", {})
        words = f"S3: {said.get('Code', 'unknown')}: {said.get('Message', '')}"
        raise OSError(" ".join(words.split())) from None
    except errors.BotoCoreError as error:
        raise OSError(f"S3: {' '.join(str(error).split())}") from None
