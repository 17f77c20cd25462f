"""Arrays as memory views: compiled code reads them without Python, and interpreted code gets plain numbers from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def view_of(array: NDArray[Any]) -> Any:
    """Return a view of an array, which must be contiguous; of booleans as bytes."""
    return (array.view(np.uint8) if array.dtype == np.bool_ else array).data


def ints(*shape: int) -> Any:
    """Return a view of int64 zeros."""
    return np.zeros(shape, np.int64).data


def minus_ones(*shape: int) -> Any:
    """Return a view of int64 numbers, all -1."""
    return np.full(shape, -1, np.int64).data


def flags(*shape: int) -> Any:
    """Return a view of bytes, all 0."""
    return np.zeros(shape, np.uint8).data


def reals(*shape: int) -> Any:
    """Return a view of float64 zeros."""
    return np.zeros(shape, np.float64).data


def nodes_of_pods(size: int) -> Any:
    """Return a view of int32 zeros, one node for each pod."""
    return np.zeros(size, np.int32).data
