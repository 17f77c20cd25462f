"""Takes out of the installed packages what no run can reach, and proves that all the rest still imports.

``kubernetes`` brings a second, asynchronous client along, as large as the first, and aiohttp for it; nothing
else imports them. The first client stays whole, though runs use little of it: an OIDC token's refresh does.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

_FOLDER = Path("kubernetes/aio")
_DISTRIBUTIONS = frozenset(
    {
        "aiohappyeyeballs",
        "aiohttp",
        "aiosignal",
        "attrs",
        "frozenlist",
        "multidict",
        "propcache",
        "yarl",
    }
)
"""aiohttp, and what only aiohttp needs."""

_IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import kubernetes, rebalancer, strategies
for package in (rebalancer, strategies):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""
"""The client's own ``__init__`` imports all of its parts; some of its modules are tests that lack what they test."""


def remove(packages: Path) -> None:
    """Remove it from ``packages``, a folder that pip has filled.

    Raises:
        FileNotFoundError: a part is not there: these lists are out of date.
    """
    shutil.rmtree(packages / _FOLDER)
    unused = {
        dist.name.lower(): dist for dist in importlib.metadata.distributions(path=[str(packages)])
    }
    if absent := sorted(_DISTRIBUTIONS - unused.keys()):
        raise FileNotFoundError(f"{', '.join(absent)} are not installed: no need to leave them out")
    for name in sorted(_DISTRIBUTIONS):
        files = unused[name].files
        if files is None:
            raise FileNotFoundError(f"{name} has no list of its files")
        for file in files:
            (packages / file).unlink(missing_ok=True)
    _remove_empty(packages)


def check(packages: Path) -> None:
    """Import all of our modules, and all of the client, with nothing but ``packages`` and the standard library.

    Raises:
        subprocess.CalledProcessError: something is missing; Python's message is on standard error.
    """
    # Without site, the packages of the interpreter that builds are out of reach.
    command = [sys.executable, "-ISB", "-c", _IMPORT_ALL, str(packages)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)  # noqa: S603


def _remove_empty(folder: Path) -> None:
    for path in sorted(folder.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
        if not any(path.iterdir()):
            path.rmdir()
