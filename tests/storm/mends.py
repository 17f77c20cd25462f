"""The mends that promises under fire rest on, each as the text that undoes it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mend:
    """One mend, by what its code is and what it was before."""

    name: str
    defect: str
    """Of the review."""
    changes: Sequence[tuple[str, str]]
    """Text as it is, which stands once in the packages, and text in its place."""
    seeds: Sequence[int]
    """Scenarios of which one at least must be violated then."""


MENDS: tuple[Mend, ...] = ()
