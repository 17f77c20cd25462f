"""The compiled core: what the scheduler does with one pod, in loops over flat arrays.

Each module here is plain Python beside a ``.pxd`` that gives Cython the C types of its functions and fields. Where the
modules are compiled, Python imports the extensions instead of the ``.py`` files; else it runs these, with equal
results. docs/core.md explains it.
"""

from rebalancer.core import windows


def is_compiled() -> bool:
    """Return whether the compiled modules are in use, and not their Python source."""
    return not str(windows.__file__).endswith(".py")
