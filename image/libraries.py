"""The shared libraries that an interpreter and its extension modules need, according to ldd."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_TO = Path("usr/lib")
"""One of the places where every dynamic loader looks, whatever the distribution."""
_NAMED = re.compile(r"^\s+(\S+) => (/\S+) \(0x", re.MULTILINE)
_LOADER = re.compile(r"^\s+(/\S*/ld-\S+) \(0x", re.MULTILINE)
_MISSING = re.compile(r"^\s+(\S+) => not found", re.MULTILINE)


def copy(root: Path) -> dict[str, Path]:
    """Copy what the ELF files under ``root`` need and ``root`` lacks; return library name -> where from.

    The loader goes where it was, since its path stands in every program.

    Raises:
        FileNotFoundError: a library is not there.
    """
    libraries: dict[str, Path] = {}
    for file in sorted(_elf_files(root)):
        needed, loaders = _needs(file)
        # Wheels bring some libraries along, and find them by themselves.
        outside = (item for item in needed.items() if not _is_below(item[1], root))
        libraries.update(outside)
        for loader in loaders:
            target = root / loader.relative_to("/")
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(loader.resolve(), target)
            libraries.pop(loader.name, None)
    (root / _TO).mkdir(parents=True, exist_ok=True)
    for name, path in libraries.items():
        shutil.copy2(path.resolve(), root / _TO / name)
    return libraries


def _is_below(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())


def _elf_files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as handle:
                if handle.read(4) == b"\x7fELF":
                    yield path


def _needs(file: Path) -> tuple[dict[str, Path], list[Path]]:
    done = subprocess.run(  # noqa: S603
        ["ldd", str(file)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if missing := _MISSING.findall(done.stdout):
        raise FileNotFoundError(f"{file} needs {', '.join(missing)}")
    named = {name: Path(path) for name, path in _NAMED.findall(done.stdout)}
    return named, [Path(path) for path in _LOADER.findall(done.stdout)]
