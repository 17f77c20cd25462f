"""The results of the checks, for people and as plain data."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rebalancer.report.document import UNBROKEN, Block, Passage


class Grade(enum.StrEnum):
    """The severity of a finding, from good to bad. Stable: ``--fail-on`` and the JSON use the values."""

    OK = "ok"
    """Looked at, and as it should be."""
    NOTE = "note"
    """Good to know; it may be wanted."""
    NOT_JUDGED = "notJudged"
    """It could not be checked; the message has the reason."""
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
    """The advice on the finding; empty if nothing has to be done."""
    lines: tuple[str, ...] = ()
    """Lines to copy, as rules of a role."""
    cause: str = ""
    """The error in the message, which findings of other checks may have, too."""
    brief: str = ""
    """The message if that error is shown above."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check with its findings."""

    name: str
    """Stable name, as in ``rights``."""
    findings: tuple[Finding, ...]

    @property
    def grade(self) -> Grade:
        """The worst grade of the findings."""
        return max((one.grade for one in self.findings), key=list(Grade).index, default=Grade.OK)


def finding_of(grade: Grade, cause: str, *, before: str = "", after: str = "") -> Finding:
    """Return a finding whose message is an error, ``cause``, with words before and after it."""
    lead = f"{before}: " if before else ""
    return Finding(grade, f"{lead}{cause}{after}", cause=cause, brief=f"{lead}as above{after}")


def check(name: str, findings: Iterable[Finding], ok: str) -> Check:
    """Return the check ``name``. ``ok``: its text if no finding is worse than a note."""
    seen = tuple(findings)
    if all(one.grade is Grade.NOTE for one in seen):
        seen = (Finding(Grade.OK, ok), *seen)
    return Check(name, seen)


def not_judged(name: str, why: str) -> Check:
    """Return the check ``name`` for something that could not be checked; ``why``: the reason."""
    return Check(name, (Finding(Grade.NOT_JUDGED, why),))


_WORDS = {
    Grade.OK: ("ok", "green"),
    Grade.NOTE: ("note", "cyan"),
    Grade.NOT_JUDGED: ("not judged", "dim"),
    Grade.WARNING: ("WARNING", "yellow"),
    Grade.PROBLEM: ("PROBLEM", "red"),
}
_INDENT = " " * 14
"""As wide as the grades."""


def format_checks(checks: Sequence[Check]) -> list[Block]:
    """Return all findings for people, check by check, with a summary in the last line.

    A cause that several findings have is written out once.
    """
    lines: list[Block] = []
    causes: set[str] = set()
    for of in checks:
        lines.append(Passage(of.name, style="bold"))
        for finding in of.findings:
            lines += _lines(finding, known=finding.cause in causes)
            if finding.cause:
                causes.add(finding.cause)
    return [*lines, "", _sum(checks)]


def _lines(finding: Finding, *, known: bool) -> Iterator[Block]:
    """Yield the lines of a finding; ``known``: its cause is shown above."""
    word, style = _WORDS[finding.grade]
    yield Passage(finding.brief if known else finding.message, _INDENT, label=word, style=style)
    if finding.advice:
        yield Passage(finding.advice, f"{_INDENT}-> ", f"{_INDENT}   ")
    yield from (Passage(f"{_INDENT}   {line}", width=UNBROKEN) for line in finding.lines)


def _sum(checks: Sequence[Check]) -> str:
    counts = Counter(finding.grade for of in checks for finding in of.findings)
    bad = [
        f"{counts[grade]} {word}{'' if counts[grade] == 1 else 's'}"
        for grade, word in ((Grade.PROBLEM, "problem"), (Grade.WARNING, "warning"))
        if counts[grade]
    ]
    left = f"; {counts[Grade.NOT_JUDGED]} not judged" if counts[Grade.NOT_JUDGED] else ""
    return f"{', '.join(bad) or 'Nothing is in the way'}{left}."


def doctor_data(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """Return the checks as plain data."""
    return [
        {
            "check": of.name,
            "grade": of.grade.value,
            "findings": [
                {
                    "grade": finding.grade.value,
                    "message": finding.message,
                    **({"advice": finding.advice} if finding.advice else {}),
                    **({"lines": list(finding.lines)} if finding.lines else {}),
                }
                for finding in of.findings
            ],
        }
        for of in checks
    ]
