"""Floating-point arithmetic of Go, equal to the last bit where a score may depend on it."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from rebalancer.snapshot.columns import Floats, Ints

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ODD = (6.666666666666735130e-01, 2.857142874366239149e-01, 1.818357216161805012e-01)
_LAST_ODD = 1.479819860511658591e-01
_EVEN = (3.999999999940941908e-01, 2.222219843214978396e-01, 1.531383769920937332e-01)


@lru_cache(maxsize=4096)
def go_log(x: float) -> float:
    """Return the natural logarithm of a positive ``x``, equal to Go's ``math.Log``.

    Go uses FreeBSD's ``e_log.c``, which differs from the C library in the last bit for about one in a hundred small
    integers.
    """
    fraction, exponent = math.frexp(x)
    if fraction < math.sqrt(2) / 2:
        fraction, exponent = fraction * 2, exponent - 1
    f, k = fraction - 1, float(exponent)
    s = f / (2 + f)
    s2 = s * s
    s4 = s2 * s2
    odd = s2 * (_ODD[0] + s4 * (_ODD[1] + s4 * (_ODD[2] + s4 * _LAST_ODD)))
    even = s4 * (_EVEN[0] + s4 * (_EVEN[1] + s4 * _EVEN[2]))
    half = 0.5 * f * f
    return k * _LN2_HIGH - ((half - (s * (half + (odd + even)) + k * _LN2_LOW)) - f)


def go_round(values: Floats) -> Ints:
    """Return non-negative ``values`` rounded half away from zero (``math.Round``)."""
    down = np.floor(values)
    rounded: Ints = (down + (values - down >= 0.5)).astype(np.int64)
    return rounded
