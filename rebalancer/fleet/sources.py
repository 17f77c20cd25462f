"""Where snapshots are: files, directories of them, and objects of a bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rebalancer.base.errors import PolicyError
from rebalancer.fleet.delta import SUFFIX, restore, stream_digest
from rebalancer.fleet.stores import S3, SnapshotStore, store_of
from rebalancer.snapshot.load import load_judgeable
from rebalancer.snapshot.model import Snapshot

_SUFFIXES = (".zip", ".json", ".json.gz")


def list_snapshots(named: Sequence[str]) -> list[str]:
    """Return the snapshots in the ``named`` files, directories and URLs, each once, in order.

    Raises:
        PolicyError: something does not exist, or a directory holds no snapshot.
    """
    every: dict[str, None] = {}
    for name in named:
        path = Path(name)
        if name.startswith(S3):
            if name.endswith(_SUFFIXES):
                every[name] = None
                continue
            inside = _list_bucket(name)
        elif path.is_dir():
            inside = sorted(str(file) for file in path.rglob("*") if file.is_file())
        elif path.is_file():
            every[name] = None
            continue
        else:
            raise PolicyError([f"{name}: there is no such file or directory"])
        snapshots = [
            one for one in inside if one.endswith(_SUFFIXES) and not Path(one).name.startswith(".")
        ]
        if not snapshots:
            raise PolicyError([f"{name}: holds no snapshot (*{', *'.join(_SUFFIXES)})"])
        every |= dict.fromkeys(snapshots)
    return list(every)


def _list_bucket(url: str) -> list[str]:
    store = store_of(url)
    with _as_policy_errors(url):
        visible = [
            name
            for name in store.sizes()
            if not any(part.startswith(".") for part in name.split("/"))
        ]
        return sorted(map(store.url, visible))


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
