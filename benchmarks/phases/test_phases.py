"""Each phase over four sizes of an ordinary cluster, and over severities at one size.

``make bench``, or ``pytest benchmarks/phases --benchmark-enable --benchmark-group-by=param:phase``.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

from benchmarks.phases.phases import PHASES, Course
from benchmarks.phases.shapes import SEVERITIES, SIZES, shape

_CASES = [("ordinary", size) for size in SIZES] + [
    (severity, SIZES[0]) for severity in SEVERITIES if severity != "ordinary"
]


@lru_cache(maxsize=1)
def course(severity: str, size: tuple[int, int]) -> Course:
    """Return the last course asked for: its phases are run one after the other."""
    return Course(shape(severity, *size))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("severity", "size"), _CASES, ids=str)
def test_phase(benchmark, severity, size, phase):
    prepare, run = PHASES[phase]
    of = course(severity, size)
    result = benchmark.pedantic(run, setup=lambda: ((of, *prepare(of)), {}), rounds=2)
    assert result is not None
