"""Arithmetic with the results of Go."""

from __future__ import annotations


def truncate(value: float) -> int:
    """Return a number without its fraction."""
    return int(value)


def round_half_up(value: float) -> int:
    """Return a non-negative number rounded half away from zero (``math.Round``)."""
    down = truncate(value)
    return down + (value - down >= 0.5)
