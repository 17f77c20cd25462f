"""The results of the checks, as lines for people and as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rebalancer.base.plain_text import Paint, printable, wrap
from rebalancer.doctor.finding import Check, Finding, Grade

_WORDS = {
    Grade.OK: ("ok", "green"),
    Grade.NOTE: ("note", "cyan"),
    Grade.NOT_JUDGED: ("not judged", "dim"),
    Grade.WARNING: ("WARNING", "yellow"),
    Grade.PROBLEM: ("PROBLEM", "red"),
}
_COLUMN = 14
"""Width of the grades."""
_INDENT = " " * _COLUMN


def doctor_text(checks: Sequence[Check], width: int, paint: Paint) -> str:
    """Return all findings in lines of ``width``, check by check, with a summary in the last line."""
    lines: list[str] = []
    for of in checks:
        lines.append(paint(of.name, "bold"))
        for finding in of.findings:
            lines += _lines(finding, width, paint)
    return "\n".join([*lines, "", _sum(checks), ""])


def _lines(finding: Finding, width: int, paint: Paint) -> Iterator[str]:
    word, style = _WORDS[finding.grade]
    first, *rest = wrap(finding.message, _INDENT, width=width)
    yield f"  {paint(word, style)}{' ' * (_COLUMN - 2 - len(word))}{first[_COLUMN:]}"
    yield from rest
    if finding.advice:
        yield from wrap(finding.advice, f"{_INDENT}-> ", f"{_INDENT}   ", width=width)
    # What is to be copied stands as it is.
    yield from (f"{_INDENT}   {printable(line)}" for line in finding.lines)


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
