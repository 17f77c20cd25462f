"""Compiles the modules of ``rebalancer/core`` that have a ``.pxd`` beside them; all else stands in pyproject.toml.

Where the machine has no C compiler, the build asks the index for one: ziglang, which is a wheel. Where that fails as
well, the same modules run interpreted, and the program says so (``rebalancer --version``, ``doctor``, every report).

Variables of the environment, for those who build:

- ``REBALANCER_COMPILE=0``: nothing is compiled.
- ``REBALANCER_WHEEL``: the platform of the wheel, such as ``manylinux_2_17_aarch64``. Ziglang compiles for it, on any
  machine, the same bytes each time; a build that fails is an error.
- ``REBALANCER_CHECKS=1``: an index out of bounds is an IndexError, as in Python. Tests run with it.
- ``CC``: the C compiler, as ever.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

# x86-64-v2, by flags that old compilers know, too: processors from 2009 on. Nothing is chosen at run time.
BASELINE = {"x86_64": ["-msse4.2", "-mpopcnt"], "aarch64": []}
# A product and a sum stay two roundings: the same numbers on every processor, and as Python has them.
SAME_NUMBERS = ["-ffp-contract=off", "-fno-fast-math"]
LIMITED_API = "0x030B0000"
_DESCRIBES = {"sdist", "egg_info", "dist_info"}
ZIG = "ziglang==0.17.1"
"""The compiler of the index: the version that releases are made with (image/build-requirements.txt)."""
MEMORY_VIEWS = "rebalancer.core._memory_views"
"""What Cython writes for arrays, once instead of in every module."""


def main() -> None:
    """Set up the distribution."""
    wheel = os.environ.get("REBALANCER_WHEEL", "")
    has_compiler = bool(not wheel and _find_compiler())
    if wheel or not has_compiler:
        _use_zig(wheel)
    options = {
        "bdist_wheel": {"py_limited_api": "cp311", **({"plat_name": wheel} if wheel else {})},
        # One compiler for each processor: whoever installs this waits for it.
        "build_ext": {"parallel": True},
    }
    setup(
        ext_modules=_extensions(_machine(wheel), optional=not wheel),
        options=options,
        setup_requires=[] if has_compiler else [ZIG],
    )


def _machine(wheel: str) -> str:
    """Return the processor that is compiled for: that of the wheel, or of this interpreter."""
    platform = (wheel or sysconfig.get_platform()).replace("-", "_")
    return next((name for name in BASELINE if platform.endswith(name)), "")


def _find_compiler() -> str | None:
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return next(filter(None, map(shutil.which, (shlex.split(command)[0], "cc"))), None)


def _use_zig(wheel: str) -> None:
    """Have distutils call ziglang, which need not be installed before the build begins."""
    target = f" -target {_zig_target(wheel)}" if wheel else ""
    zig = f"{shlex.quote(sys.executable)} -m ziglang"
    # Without -O2 it links for debugging, and compiles a runtime for that first: four times as long.
    link = f"{zig} cc{target} -O2 -shared"
    os.environ.update(CC=f"{zig} cc{target}", LDSHARED=link, AR=f"{zig} ar")
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        os.environ.setdefault(name, str(Path("build", "zig").absolute()))


def _zig_target(wheel: str) -> str:
    """Return what ziglang calls ``manylinux_2_17_x86_64``: ``x86_64-linux-gnu.2.17``."""
    kind, major, minor, machine = wheel.split("_", 3)
    if kind != "manylinux" or machine not in BASELINE:
        raise SystemExit(
            f"REBALANCER_WHEEL={wheel}: expected manylinux_2_17_x86_64 or manylinux_2_17_aarch64"
        )
    return f"{machine}-linux-gnu.{major}.{minor}"


def _extensions(machine: str, *, optional: bool) -> list[Extension]:
    """Return an extension for each module of the core that is written to be compiled."""
    # What only describes the distribution compiles nothing: Cython may not be there yet, and pip asks before each build.
    if os.environ.get("REBALANCER_COMPILE") == "0" or _DESCRIBES & set(sys.argv):
        return []
    from Cython.Build import cythonize  # noqa: PLC0415

    checks = os.environ.get("REBALANCER_CHECKS") == "1"
    sources = {
        ".".join(path.with_suffix("").parts): [str(path.with_suffix(".py"))]
        for path in sorted(Path("rebalancer", "core").glob("*.pxd"))
    }
    extensions = [
        Extension(
            name,
            files,
            define_macros=[("Py_LIMITED_API", LIMITED_API), ("CYTHON_LIMITED_API", "1")],
            extra_compile_args=["-O2", "-g0", *SAME_NUMBERS, *BASELINE.get(machine, [])],
            py_limited_api=True,
            optional=optional,
        )
        for name, files in {**sources, MEMORY_VIEWS: []}.items()
    ]
    return cythonize(
        extensions,
        shared_utility_qualified_name=MEMORY_VIEWS,
        build_dir=str(Path("build", "cython")),
        compiler_directives={
            "language_level": 3,
            # Types stand in the .pxd: those of the .py are for readers and mypy.
            "annotation_typing": False,
            "infer_types": True,
            "wraparound": False,
            # Nothing copies these objects by pickle; its code is a third of what is compiled.
            "auto_pickle": False,
            "boundscheck": checks,
            "initializedcheck": checks,
        },
        force=True,
    )


main()
