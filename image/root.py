"""Fills a directory with all that the image holds, and nothing else: no shell, no package manager.

That is the interpreter that runs this, its shared libraries, our wheel, its dependencies, a list of it all.

``python -m image.root DIRECTORY`` is what the Containerfile runs in its build stage, and what tests run.
Standard library and pip only.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import os
import platform
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from image import libraries, unused
from image.contents import write_contents

SOURCE = Path(__file__).resolve().parents[1]
PREFIX = "usr/local"
"""Where the interpreter is, under the root; it finds its library from there, wherever it came from."""
ENTRYPOINT = ("/usr/local/bin/python3", "-IB", "-m", "rebalancer")
"""Isolated from the environment, and writing nothing: the root is read-only."""
USER = "65532:65532"
GLIBC = "manylinux_2_17"
"""What wheels are compiled for: Linux distributions from 2014 on."""

_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_SOURCES = (
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
    "NOTICE",
    "rebalancer",
    "strategies",
)
_LEFT_OUT = (
    "__pycache__",
    "config-*",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtle*",
    # Extension modules for terminals, databases and tests of the interpreter.
    "_curses*",
    "_dbm*",
    "_gdbm*",
    "_test*",
    "_tkinter*",
    "_xxtestfuzz*",
    "_xxsubinterp*",
    "readline*",
    "xxlimited*",
)
"""Parts of the standard library that a run never imports."""


def build(root: Path) -> None:
    """Fill ``root``, which must be empty or not there yet.

    Raises:
        FileExistsError: it is neither.
        FileNotFoundError: a source, a shared library, or something that was to be left out is not there.
        subprocess.CalledProcessError: pip failed, or something cannot be imported; standard error says more.
    """
    if root.exists() and any(root.iterdir()):
        raise FileExistsError(f"{root} is not empty")
    _copy_interpreter(root)
    packages = root / PREFIX / "lib" / _VERSION / "site-packages"
    _install(packages)
    unused.remove(packages)
    unused.check(packages)
    copied = libraries.copy(root)
    _write_etc(root)
    write_contents(root, packages, copied)
    _compile(root)


def _copy_interpreter(root: Path) -> None:
    binaries = root / PREFIX / "bin"
    binaries.mkdir(parents=True)
    executable = Path(sys.base_prefix) / "bin" / _VERSION
    shutil.copy2(executable.resolve(), binaries / _VERSION)
    (binaries / "python3").symlink_to(_VERSION)
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        root / PREFIX / "lib" / _VERSION,
        ignore=shutil.ignore_patterns(*_LEFT_OUT),
        symlinks=True,
    )


def _install(packages: Path) -> None:
    """Install the pinned dependencies, then our own wheel, built from a copy of the sources."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    to = ["--no-compile", "--no-warn-conflicts", f"--target={packages}"]
    pinned = [
        "--only-binary=:all:",
        "--require-hashes",
        f"--requirement={SOURCE}/image/requirements.txt",
    ]
    _run([*pip, "install", *to, *pinned])
    shutil.rmtree(packages / "bin", ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="wheel-") as scratch:
        sources = Path(scratch) / "source"
        sources.mkdir()
        for name in _SOURCES:
            _copy(SOURCE / name, sources / name)
        wheels = Path(scratch) / "wheels"
        _run(
            [
                *pip,
                "wheel",
                "--no-deps",
                "--no-build-isolation",
                f"--wheel-dir={wheels}",
                str(sources),
            ],
            **_compiler(),
        )
        (wheel,) = wheels.glob("*.whl")
        _run([*pip, "install", *to, "--no-deps", "--no-index", str(wheel)])
    forget_origin(packages)
    forget_scripts(packages)
    for tests in [*packages.rglob("tests"), *packages.rglob("*.pyi")]:
        if tests.is_dir():
            shutil.rmtree(tests)
        else:
            tests.unlink(missing_ok=True)


def _compiler() -> dict[str, str]:
    """Return what has ziglang compile, where it is: equal sources give equal bytes, and what fails is an error."""
    if importlib.util.find_spec("ziglang") is None:
        return {}
    return {"REBALANCER_WHEEL": f"{GLIBC}_{platform.machine()}"}


def forget_origin(packages: Path) -> None:
    """Remove where our wheel was installed from: a directory that has another name in every build."""
    for origin in packages.glob("*.dist-info/direct_url.json"):
        origin.unlink()
        _strike(origin.with_name("RECORD"), f"{origin.parent.name}/{origin.name},")


def forget_scripts(packages: Path) -> None:
    """Remove scripts and their sums: the first line of each names the interpreter that builds."""
    shutil.rmtree(packages / "bin", ignore_errors=True)
    for record in packages.glob("*.dist-info/RECORD"):
        _strike(record, "../../bin/")


def _strike(record: Path, beginning: str) -> None:
    """Remove the lines of a list of files that begin so."""
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(line for line in lines if not line.startswith(beginning)))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    else:
        shutil.copy2(source, target)


def _run(command: list[str], **variables: str) -> None:
    environ = {**os.environ, **variables}
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env=environ)  # noqa: S603


def _write_etc(root: Path) -> None:
    """Write users and groups (ours has no shell and no home), and an empty /tmp."""
    etc = root / "etc"
    etc.mkdir(exist_ok=True)
    (etc / "passwd").write_text(
        "root:x:0:0:root:/:/nonexistent\nnonroot:x:65532:65532:nonroot:/:/nonexistent\n"
    )
    (etc / "group").write_text("root:x:0:\nnonroot:x:65532:\n")
    temporary = root / "tmp"
    temporary.mkdir(exist_ok=True)
    temporary.chmod(0o1777)


def _compile(root: Path) -> None:
    """Compile everything: a read-only root keeps no cache, and compiling again would take seconds.

    Twice: the node agent runs without docstrings (-OO), which are a fourth of its memory.
    """
    for level in (0, 2):
        compileall.compile_dir(
            root / PREFIX / "lib" / _VERSION,
            quiet=2,
            optimize=level,
            stripdir=str(root),
            prependdir="/",
            # The sources cannot be changed, so that nothing has to look at them.
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def main() -> None:
    """Fill the directory named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m image.root", description=__doc__)
    parser.add_argument("directory", type=Path)
    build(parser.parse_args().directory.resolve())


if __name__ == "__main__":
    main()
