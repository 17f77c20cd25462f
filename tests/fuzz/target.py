"""What a fuzz target is: a reader of bytes, and the errors by which it may refuse them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")


@dataclass(frozen=True)
class Target:
    """One reader. Any exception but ``refusals`` is a defect, and so is one that takes too long."""

    read: Callable[[bytes], object]
    refusals: tuple[type[BaseException], ...]

    def __call__(self, data: bytes) -> None:
        """Read ``data``; raise what is a defect."""
        try:
            self.read(data)
        except self.refusals:
            return


def kept(name: str) -> list[Path]:
    """Return the kept inputs of a target, seeds and former defects."""
    return sorted((CORPUS / name).iterdir())


def split(data: bytes, most: int = 4) -> list[bytes]:
    """Return the parts of an input that holds several: each behind two bytes of length."""
    parts: list[bytes] = []
    while data and len(parts) < most - 1:
        length = int.from_bytes(data[:2], "big")
        parts.append(data[2 : 2 + length])
        data = data[2 + length :]
    return [*parts, data]


def joined(*parts: bytes) -> bytes:
    """Return an input that :func:`split` takes apart so."""
    *first, last = parts
    return b"".join(len(part).to_bytes(2, "big") + part for part in first) + last
