"""Where snapshots are: files, and directories of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rebalancer.base.errors import PolicyError
from rebalancer.fleet.delta import SUFFIX, file_digest, restore
from rebalancer.snapshot.load import load_judgeable
from rebalancer.snapshot.model import Snapshot

_SUFFIXES = (".zip", ".json", ".json.gz")


def list_snapshots(named: Sequence[str]) -> list[str]:
    """Return the snapshot files that ``named`` files and directories hold, each once, in order.

    Raises:
        PolicyError: something does not exist, or a directory holds no snapshot.
    """
    every: dict[str, None] = {}
    for name in named:
        path = Path(name)
        if not path.is_dir():
            if not path.is_file():
                raise PolicyError([f"{name}: there is no such file or directory"])
            every[name] = None
            continue
        inside = sorted(
            str(file)
            for file in path.rglob("*")
            if file.name.endswith(_SUFFIXES) and not file.name.startswith(".") and file.is_file()
        )
        if not inside:
            raise PolicyError([f"{name}: holds no snapshot (*{', *'.join(_SUFFIXES)})"])
        every |= dict.fromkeys(inside)
    return list(every)


def absolute(source: str) -> str:
    """Return a source that does not depend on the working directory."""
    return str(Path(source).absolute())


def load(source: str, finished: frozenset[str]) -> Snapshot:
    """Return the snapshot of a file, with finished pods in these phases.

    Raises:
        PolicyError: it cannot be read, or holds no nodes or pods.
    """
    if not source.endswith(SUFFIX):
        return load_judgeable(source, finished=finished)
    try:
        restored = restore(Path(source))
    except (ValueError, EOFError) as error:
        raise PolicyError([f"{source}: {error}"]) from None
    except OSError as error:
        raise PolicyError([f"{source}: cannot be read: {error.strerror or error}"]) from None
    return load_judgeable("-", stdin=restored, finished=finished)


def digest(source: str) -> str:
    """Return the sha256 of a snapshot's content in hex.

    Raises:
        PolicyError: it cannot be read.
    """
    try:
        return file_digest(Path(source))
    except OSError as error:
        raise PolicyError([f"{source}: cannot be read: {error.strerror or error}"]) from None
