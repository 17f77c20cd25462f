"""The compiled core: the scheduler's filters and scores for one pod, in loops over flat arrays.

Each module here is plain Python beside a ``.pxd`` that gives Cython the C types of its functions and fields. Where the
modules are compiled, Python imports the extensions instead of the ``.py`` files; else it runs these, with equal
results. docs/core.md explains it.
"""

from importlib.util import find_spec

INTERPRETED = (
    "the planner is not compiled here, so that planning takes many times longer: "
    "install it again where a C compiler is, or from a wheel"
)


def is_compiled() -> bool:
    """Return whether Python imports the compiled modules, and not their source; none is imported for that."""
    spec = find_spec("rebalancer.core.prediction")
    return spec is not None and not str(spec.origin).endswith(".py")
