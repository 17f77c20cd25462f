"""Writes docs/evidence.md from what was measured."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.evidence.experiments import EXPERIMENTS, Experiment

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "evidence.md"
RESULTS = Path(__file__).resolve().parent / "results"
_HEAD = """\
# Evidence

Written by `make evidence`, which goes on where it was stopped. Each number has its command, its seeds, the machine, an interval of 95 %
(the median by the order of values, of fewer than six the least and the most; shares by Wilson), and the case where kube-rebalancer
loses. What was not measured says so. Earlier studies, with their methods: [Limits and numbers](limits.md), `benchmarks/*/RESULTS.md`.
"""


def results_of(one: Experiment) -> list[dict[str, Any]]:
    """Return what was kept of the parts that were run, in order."""
    path = RESULTS / f"{one.name}.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return [kept[part] for part in one.parts if part in kept]


def written() -> str:
    """Return the page."""
    lines = [_HEAD]
    for section, members in groupby(EXPERIMENTS, lambda one: one.section):
        lines.append(f"## {section}\n")
        for one in members:
            lines += _describe(one)
    return "\n".join(lines).rstrip("\n") + "\n"


def _describe(one: Experiment) -> list[str]:
    lines = [f"### {one.name}\n", f"{one.question[:1].upper()}{one.question[1:]}.\n"]
    done = results_of(one)
    if not done:
        lines.append(
            f"| what | number |\n|---|---|\n| {one.question} | not run: `make evidence` runs it |\n"
        )
    else:
        rows = one.read([part["output"] for part in done])
        tables = [row.number for row in rows if row.what == "table"]
        cells = [f"| {row.what} | {row.number} |" for row in rows if row.what != "table"]
        lines += ["| what | number |", "|---|---|", *cells, ""] if cells else []
        lines += [*tables, ""] if tables else []
        if len(done) < len(one.parts):
            lines.append(f"{len(done)} of {len(one.parts)} parts; the others were not run.\n")
        commits = list(dict.fromkeys(part["commit"] for part in done))
        lines.append(
            f"Commit{'s' * (len(commits) > 1)} {', '.join(commits)}, {done[-1]['machine']}, load {_loads(done)}.\n"
        )
    lines.append(f"```\n{_shown(one)}\n```\n")
    lines.append(f"Where it loses: {one.loses}.\n")
    return lines


def _shown(one: Experiment) -> str:
    """Return the command, with what its names stand for."""
    values = (f"{name}: {', '.join(map(str, of))}" for name, of in one.values.items())
    return "\n".join([f"python -m {one.command}", *(f"# {line}" for line in values)])


def _loads(done: list[dict[str, Any]]) -> str:
    loads = [part["load"] for part in done]
    return f"{min(loads):.0f} to {max(loads):.0f}"


def write() -> None:
    """Write the page."""
    PAGE.write_text(written(), encoding="utf-8")
