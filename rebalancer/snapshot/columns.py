"""Columns of strings without a Python object per row."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_Scalar = TypeVar("_Scalar", bound=np.generic)
_NO_MEMBERS = np.zeros(0, np.int32)


class StringColumn(Sequence[str]):
    """Many short strings in one byte buffer; a ``str`` is created on access.

    150,000 pod names take 4 MB here and 12 MB as ``str`` objects; uids save more.
    """

    __slots__ = ("_bytes", "_ends")

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._bytes = bytearray()
        self._ends = array("Q")
        for value in values:
            self.append(value)

    def append(self, value: str) -> None:
        """Add one row."""
        self._bytes += value.encode()
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: int) -> str:  # type: ignore[override]
        # Slices are not offered: code that needs many rows iterates or takes them one by one.
        start = self._ends[row - 1] if row > 0 else 0
        return self._bytes[start : self._ends[row]].decode()

    def __iter__(self) -> Iterator[str]:
        start = 0
        for end in self._ends:
            yield self._bytes[start:end].decode()
            start = end

    def take(self, rows: NDArray[np.integer[Any]]) -> StringColumn:
        """Return a new column of the given rows, in the given order; consecutive rows are copied at once."""
        taken = StringColumn()
        if not len(rows):
            return taken
        ends = np.frombuffer(self._ends, np.uint64).astype(np.int64)
        starts = np.concatenate([[0], ends[:-1]])
        breaks = np.flatnonzero(np.diff(rows) != 1)
        first = starts[rows[np.concatenate([[0], breaks + 1])]].tolist()
        last = ends[rows[np.concatenate([breaks, [len(rows) - 1]])]].tolist()
        whole = memoryview(self._bytes)
        taken._bytes = bytearray().join(map(whole.__getitem__, map(slice, first, last)))
        sizes = (ends - starts)[rows]
        taken._ends = array("Q", np.cumsum(sizes).astype(np.uint64).tobytes())
        return taken

    def concat(self, other: StringColumn) -> StringColumn:
        """Return a new column: the rows of this column, then those of ``other``."""
        both = StringColumn()
        both._bytes = self._bytes + other._bytes
        shifted = np.frombuffer(other._ends, np.uint64) + np.uint64(len(self._bytes))
        both._ends = self._ends + array("Q", shifted.tobytes())
        return both

    def rows_of(self, values: Collection[str]) -> Ints:
        """Return the rows, ascending, whose string is in ``values``."""
        wanted = np.array(sorted(value.encode() for value in values), np.bytes_)
        size, ends = wanted.itemsize, np.frombuffer(self._ends, np.uint64)
        if not len(wanted) or not len(ends):
            return np.zeros(0, np.int64)
        if np.array_equal(ends, np.arange(1, len(ends) + 1, dtype=np.uint64) * np.uint64(size)):
            # All of one length, as uids are: compared where they lie.
            rows = np.frombuffer(self._bytes, wanted.dtype)
            nearest = np.minimum(np.searchsorted(wanted, rows), len(wanted) - 1)
            return np.flatnonzero(wanted[nearest] == rows)
        known = set(values)
        return np.array([row for row, value in enumerate(self) if value in known], np.int64)


class Interner:
    """Maps distinct strings to consecutive integers, in order of first appearance."""

    __slots__ = ("_ids", "values")

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self.values: list[str] = []

    def __call__(self, value: str) -> int:
        """Return the integer of ``value``; a new value gets the next integer."""
        number = self._ids.get(value)
        if number is None:
            number = self._ids[value] = len(self.values)
            self.values.append(value)
        return number

    def get(self, value: str) -> int:
        """Return the integer of ``value``, or -1 if it never appeared."""
        return self._ids.get(value, -1)

    def __len__(self) -> int:
        return len(self.values)


def sum_by_node(amounts: Ints, cls: Int32s, nodes: Int32s, size: int) -> Ints:
    """Return the exact sums (R, N) per node of the pods' amounts (R, C), given class and node of each pod (P,)."""
    total = np.zeros((len(amounts), size), np.int64)
    for row in range(len(amounts)):
        np.add.at(total[row], nodes, amounts[row, cls])
    return total


def freeze(values: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Return ``values`` as a read-only array, so that a strategy cannot modify a snapshot."""
    values.setflags(write=False)
    return values


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """An array as a key of a dictionary: it is equal to itself alone, and lives as long as the key."""

    array: NDArray[Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.array is self.array

    def __hash__(self) -> int:
        return id(self.array)


def unite(sets: Iterable[Int32s]) -> Int32s:
    """Return the union of ``sets``, ascending and without duplicates; each set is ascending and without duplicates.

    Most sets are empty, or one array shared by several rules; then that array itself is returned.
    """
    some = list({id(one): one for one in sets if len(one)}.values())
    if len(some) <= 1:
        return some[0] if some else _NO_MEMBERS
    return np.unique(np.concatenate(some)).astype(np.int32, copy=False)
