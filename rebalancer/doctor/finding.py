"""The result of a check: its findings, each with a grade and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Grade(enum.StrEnum):
    """The severity of a finding, from good to bad. Stable: ``--fail-on`` and the JSON use the values."""

    OK = "ok"
    """Looked at, and as it should be."""
    NOTE = "note"
    """Good to know; it may be wanted."""
    NOT_JUDGED = "notJudged"
    """It could not be looked at; the message says why."""
    WARNING = "warning"
    """Some pods are not moved, or not well, because of it."""
    PROBLEM = "problem"
    """A run would move nothing, or would end with an error."""

    def is_at_least(self, other: Grade) -> bool:
        """Return whether this grade is as bad as ``other``, or worse."""
        order = list(Grade)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check."""

    grade: Grade
    message: str
    advice: str = ""
    """What to do about it; empty where nothing has to be done."""
    lines: tuple[str, ...] = ()
    """Lines to copy, as rules of a role."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, and the findings."""

    name: str
    """Stable name, as in ``rights``."""
    findings: tuple[Finding, ...]

    @property
    def grade(self) -> Grade:
        """The worst grade of the findings."""
        return max((one.grade for one in self.findings), key=list(Grade).index, default=Grade.OK)


def check(name: str, findings: Iterable[Finding], ok: str) -> Check:
    """Return the check ``name``. ``ok``: its text if no finding is worse than a note."""
    seen = tuple(findings)
    if all(one.grade is Grade.NOTE for one in seen):
        seen = (Finding(Grade.OK, ok), *seen)
    return Check(name, seen)


def not_judged(name: str, why: str) -> Check:
    """Return the check ``name`` for something that could not be checked; ``why``: the reason."""
    return Check(name, (Finding(Grade.NOT_JUDGED, why),))
