"""Known vulnerabilities of what the image ships, beside what the VEX file says of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_ANSWERED = frozenset({"not_affected", "fixed"})
"""Statuses of OpenVEX after which nothing is left to do."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the packages that were asked about."""

    judged: int
    """Packages of which the service knows whether they have vulnerabilities."""
    unjudged: tuple[str, ...]
    open: tuple[str, ...]
    """Vulnerabilities without a statement that answers them, one line each."""
    answered: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield what to print."""
        yield from (f"audit: {line}" for line in (*self.open, *self.answered))
        if self.unjudged:
            whole = len(self.unjudged) + self.judged
            yield (
                f"audit: NOT JUDGED: {len(self.unjudged)} of {whole} packages:"
                f" the service for vulnerabilities gave no answer ({', '.join(self.unjudged[:3])} ...)"
            )
        if self.judged:
            yield f"audit: {self.judged} packages judged, {len(self.open)} open vulnerabilities"


def judge(found: Mapping[str, Any], vex: Mapping[str, Any] | None) -> Verdict:
    """Judge the JSON of pip-audit by an OpenVEX document, if there is one."""
    said = {} if vex is None else dict(_statements(vex))
    judged, unjudged, opened, answered = 0, [], [], []
    for package in found["dependencies"]:
        if "skip_reason" in package:
            unjudged.append(package["name"])
            continue
        judged += 1
        url = f"pkg:pypi/{package['name']}"
        for one in package["vulns"]:
            names = [one["id"], *one.get("aliases", ())]
            statuses = {said[name, url] for name in names if (name, url) in said}
            line = f"{package['name']} {package['version']}: {one['id']}"
            if statuses & _ANSWERED:
                answered.append(f"{line}: {', '.join(sorted(statuses))}, says the VEX file")
            else:
                fixed = ", ".join(one.get("fix_versions", ())) or "no version yet"
                opened.append(f"{line}: fixed in {fixed}")
    return Verdict(judged, tuple(unjudged), tuple(opened), tuple(answered))


def _statements(vex: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    for statement in vex["statements"]:
        for product in statement["products"]:
            yield (statement["vulnerability"]["name"], product["@id"]), statement["status"]
