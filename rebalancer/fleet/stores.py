"""Stores of snapshots, and how commands find and load the snapshots that are named on the command line.

A store is a folder, or a prefix in a bucket of an object store (``s3://BUCKET/PREFIX``).

In both, a file gets its name only when it is complete: by a rename, or because S3 creates an object by one request.
Buckets need the extra ``aws``; boto3 finds credentials, region and the address of the store (``AWS_ENDPOINT_URL``).
"""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, Protocol

from rebalancer.base.errors import PolicyError, import_extra
from rebalancer.base.output import PARTIAL, replace_file
from rebalancer.fleet.delta import SUFFIX, restore, stream_digest
from rebalancer.snapshot.load import load_judgeable
from rebalancer.snapshot.model import Snapshot

S3 = "s3://"
_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?", re.ASCII)
_CONNECT, _READ, _ATTEMPTS = 5.0, 60.0, 5
_MAX_OBJECT = 1 << 30
"""Bytes of an object, which is in memory as a whole."""


class StoredFile(NamedTuple):
    """A file as a store lists it."""

    bytes: int
    written: float
    """When, in Unix seconds by the store's clock."""


class SnapshotStore(Protocol):
    """The interface of stores. All methods raise OSError if a file cannot be read or written."""

    where: str

    def files(self) -> Mapping[str, StoredFile]:
        """Return name -> size and time of all files."""

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

    def files(self) -> Mapping[str, StoredFile]:
        """Return name -> size and time of all files; links do not count."""
        every = {file.name: file.lstat() for file in self._path.iterdir()}
        return {
            name: StoredFile(of.st_size, of.st_mtime)
            for name, of in every.items()
            if stat.S_ISREG(of.st_mode)
        }

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
        replace_file(self._path / name, data)

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
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(self._path / ".lock", flags, 0o600)
        except OSError as error:
            raise PolicyError(
                [f"{self.where}: cannot be written: {error.strerror or error}"]
            ) from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PolicyError([f"{self.where}: another process records into it"]) from None
            # What a process that was killed has left.
            for left in self._path.glob(f".*{PARTIAL}"):
                left.unlink()
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

    def files(self) -> Mapping[str, StoredFile]:
        """Return name -> size and time of all objects; names may have folders."""
        with _as_os_errors():
            pages = _client().get_paginator("list_objects_v2")
            return {
                one["Key"].removeprefix(self._prefix): StoredFile(
                    one["Size"], one["LastModified"].timestamp()
                )
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
            if answer["ContentLength"] > _MAX_OBJECT:
                raise OSError(
                    f"S3: it is larger than {_MAX_OBJECT >> 30} GiB, which no snapshot is"
                )
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
        for name in self.files():
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
    boto3 = import_extra("boto3", "aws", "s3://")
    config = import_extra("botocore.config", "aws", "s3://").Config(
        connect_timeout=_CONNECT,
        read_timeout=_READ,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
    )
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


_SUFFIXES = (".zip", ".json", ".json.gz")


def list_snapshots(named: Sequence[str]) -> list[str]:
    """Return the snapshots in the ``named`` files, directories and URLs, each once, in order.

    A file that is named in several ways counts once, by its first name; hidden files and folders do not count. A file that is named itself is read once, so that a wrong one is said before anything is played. Those of a directory are
    not: one torn file is no reason to stop.

    Raises:
        PolicyError: something does not exist, a directory holds no snapshot, or a named file is none.
    """
    every: dict[str, str] = {}
    for name in named:
        path = Path(name)
        if name.startswith(S3):
            if name.endswith(_SUFFIXES):
                load(name, frozenset())
                every.setdefault(name, name)
                continue
            inside = _list_bucket(name)
        elif path.is_dir():
            inside = sorted(
                str(file)
                for file in path.rglob("*")
                if not _is_hidden(file.relative_to(path)) and file.is_file()
            )
        elif path.is_file():
            load(name, frozenset())
            every.setdefault(place_of(name), name)
            continue
        else:
            raise PolicyError([f"{name}: there is no such file or directory"])
        snapshots = [one for one in inside if one.endswith(_SUFFIXES)]
        if not snapshots:
            raise PolicyError([f"{name}: holds no snapshot (*{', *'.join(_SUFFIXES)})"])
        for one in snapshots:
            every.setdefault(place_of(one), one)
    return list(every.values())


def _list_bucket(url: str) -> list[str]:
    store = store_of(url)
    with _as_policy_errors(url):
        visible = [name for name in store.files() if not _is_hidden(PurePosixPath(name))]
        return sorted(map(store.url, visible))


def _is_hidden(path: PurePath) -> bool:
    return any(part.startswith(".") for part in path.parts)


def place_of(source: str) -> str:
    """Return where a snapshot lies, in the one spelling that all of its names have in common."""
    return source if source.startswith(S3) else os.path.realpath(source)


def absolute(source: str) -> str:
    """Return the snapshot's path or URL in a form that does not depend on the working directory."""
    return source if source.startswith(S3) else str(Path(source).absolute())


def folder_of(named: str) -> str:
    """Return the directory or bucket prefix that contains a snapshot; a directory or prefix itself is returned unchanged."""
    place = absolute(named).rstrip("/")
    return place.rpartition("/")[0] if place.endswith(_SUFFIXES) else place


def load(source: str, finished: frozenset[str]) -> Snapshot:
    """Load a snapshot from a file or an object of a bucket, with the finished pods in these phases.

    Raises:
        PolicyError: it cannot be read, or holds no nodes or pods.
    """
    if not source.endswith(SUFFIX) and not source.startswith(S3):
        return load_judgeable(source, finished=finished)
    store, name = _split(source)
    with _as_policy_errors(source), store.open(name) as stream:
        whole = restore(stream, store.open) if source.endswith(SUFFIX) else stream
        try:
            return load_judgeable("-", stdin=whole, finished=finished)
        except PolicyError as error:
            raise PolicyError([f"{source}: {error}"]) from None


def digest(source: str) -> str:
    """Return the sha256 of a snapshot's content in hex.

    Raises:
        PolicyError: it cannot be read.
    """
    store, name = _split(source)
    with _as_policy_errors(source), store.open(name) as stream:
        return stream_digest(stream)


def _split(source: str) -> tuple[SnapshotStore, str]:
    """Return the store of a file or an object, and its name in it."""
    if source.startswith(S3):
        folder, _, name = source.rpartition("/")
        return store_of(folder), name
    path = Path(source)
    return store_of(str(path.parent)), path.name


@contextmanager
def _as_policy_errors(source: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, EOFError) as error:
        raise PolicyError([f"{source}: {error}"]) from None
    except OSError as error:
        raise PolicyError([f"{source}: cannot be read: {error.strerror or error}"]) from None
