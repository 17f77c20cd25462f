"""The shared libraries that an interpreter and its extension modules need, according to ldd, and their packages."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

_TO = Path("usr/lib")
"""One of the places where every dynamic loader looks, whatever the distribution."""
_NAMED = re.compile(r"^\s+(\S+) => (/\S+) \(0x", re.MULTILINE)
_LOADER = re.compile(r"^\s+(/\S*/ld-\S+) \(0x", re.MULTILINE)
_MISSING = re.compile(r"^\s+(\S+) => not found", re.MULTILINE)
_DOCS = Path("/usr/share/doc")


class Package(NamedTuple):
    """A package of Debian, or of a distribution made from it."""

    name: str
    version: str
    architecture: str
    source: str

    @property
    def purl(self) -> str:
        """Its package URL, by which scanners know it."""
        system = platform.freedesktop_os_release()
        name, version = self.name, quote(self.version, safe="")
        of = f"{system['ID']}-{system.get('VERSION_ID', '')}".rstrip("-")
        more = f"arch={self.architecture}&distro={of}&upstream={self.source}"
        return f"pkg:deb/{system['ID']}/{name}@{version}?{more}"


def find_package(path: Path) -> Package | None:
    """Return the package that has a file; None if there is no dpkg, or no package of its has the file."""
    program = shutil.which("dpkg-query")
    if program is None:
        return None
    real = path.resolve()
    # /lib may be a link to /usr/lib, and dpkg knows a file by the path that its package says.
    short = [Path("/") / real.relative_to("/usr")] if real.is_relative_to("/usr") else []
    for each in (path, real, *short):
        owners = _ask(program, "--search", str(each))
        if owners:
            owner = owners.partition(": ")[0].partition(", ")[0]
            form = "${Package} ${Version} ${Architecture} ${source:Package}\n"
            shown = _ask(program, "--show", f"--showformat={form}", owner)
            return Package(*shown.split("\n", 1)[0].split())
    return None


def _ask(program: str, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603
        [program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout if done.returncode == 0 else ""


def copy_licences(root: Path, packages: Iterable[Package]) -> None:
    """Copy the licence texts of packages below ``root``, those that this machine has."""
    for name in sorted({one.name for one in packages}):
        text = _DOCS / name / "copyright"
        if text.is_file():
            to = root / text.relative_to("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(text, to)


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
