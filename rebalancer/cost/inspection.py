"""What a term may show of itself beside its cost, for explanations: its groups, and how full a node is."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rebalancer.cost.groups import Group
from rebalancer.snapshot.columns import Int32s


@runtime_checkable
class Grouped(Protocol):
    """A term that is made of groups."""

    def groups_of(self, classes: Int32s) -> Sequence[Group]:
        """Return the groups with a member among ``classes``; nothing that decides anything changes by it.

        The groups go with the state: asked again after moves, they are about the state then.
        """


@runtime_checkable
class Described(Protocol):
    """A group that can be described as a whole, and not only as seen from a node."""

    def requirement(self) -> str:
        """Return what the rule asks for, in a few words."""

    def standing(self) -> str:
        """Return how its pods stand now, with numbers."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """How a node stands to the thresholds of a term."""

    class Standing(enum.StrEnum):
        """On which side of the thresholds it is."""

        UNDER = "under-used"
        BETWEEN = "between"
        OVER = "over-used"

    @dataclass(frozen=True, slots=True)
    class Level:
        """How full a node is of one resource, all as shares of its allocatable."""

        resource: str
        share: float
        under: float
        over: float
        what: str
        """``requested``, ``used``, or empty for pods, which are only counted."""

    standing: Standing
    gives: bool
    """Its pods are candidates."""
    note: str
    """What follows from its standing, in a sentence."""
    levels: tuple[Level, ...]


@runtime_checkable
class Gauging(Protocol):
    """A term that judges nodes by how full they are."""

    def gauge(self, node: int) -> Gauge | None:
        """Return how a node stands now; None if it does not count at all."""
