"""The figures of many runs: a row for each, and tables in Markdown of them all."""

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.storm.invariants import INVARIANTS
from tests.storm.witnesses import Record


@dataclass(frozen=True)
class Row:
    """What counts of one scenario."""

    seed: int
    scenario: str
    code: int | None
    seconds: float
    evicted: int
    beyond: int
    """Evictions beyond the undisturbed plan, the clean runs included."""
    hits: Sequence[str]
    hit_kinds: Sequence[str]
    acts: Sequence[str]
    after_term: float | None
    """Seconds from SIGTERM to the exit."""
    starved: float
    """Seconds that the machine kept it from running."""
    needless: bool
    """It ended in part although all that went wrong was a fault of one request."""
    violated: Sequence[Sequence[str]]

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def row_of(record: Record, violated: Sequence[tuple[str, str]]) -> Row:
    """Return the row of a record."""
    scenario, main = record.scenario, record.main
    recoverable = not scenario.acts and all(fault.transient for fault in scenario.faults)
    return Row(
        seed=scenario.seed,
        scenario=str(scenario),
        code=main.code,
        seconds=round(main.ended - main.started, 2),
        evicted=len(record.evicted),
        beyond=len(record.evicted) + record.clean_evictions - record.least,
        hits=sorted(set(record.hits)),
        hit_kinds=sorted(set(record.hit_kinds)),
        acts=sorted(record.acted),
        after_term=round(main.ended - main.terms[0], 2) if main.terms else None,
        starved=round(main.starved_since(0.0), 2),
        needless=recoverable and main.code != 0,
        violated=[list(one) for one in violated],
    )


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the figures as Markdown."""
    terms = sorted(row["after_term"] for row in rows if row["after_term"] is not None)
    clean = [row for row in rows if not row["violated"]]
    lines = [
        "| | |",
        "|---|---|",
        f"| runs | {len(rows):,} |",
        f"| runs without violation | {len(clean):,} |",
        f"| evictions | {sum(row['evicted'] for row in rows):,} |",
        f"| evictions beyond the undisturbed plan | {sum(max(0, row['beyond']) for row in rows):,} |",
        f"| needless partial ends | {sum(row['needless'] for row in rows):,} |",
        f"| runs with SIGTERM | {len(terms):,} |",
    ]
    if terms:
        worst = terms[min(len(terms) - 1, int(len(terms) * 0.99))]
        lines += [
            f"| SIGTERM to exit, median | {statistics.median(terms):.1f} s |",
            f"| SIGTERM to exit, 99th percentile | {worst:.1f} s |",
        ]
    lines += tables(
        rows, INVARIANTS, {"fault": "hits", "request": "hit_kinds", "beside it": "acts"}
    )
    return "\n".join(lines) + "\n"


def tables(
    rows: Sequence[Mapping[str, Any]],
    invariants: Mapping[str, Callable[..., object]],
    counted: Mapping[str, str],
) -> list[str]:
    """Return in how many runs each invariant was violated, and for each title in how many what its key holds came to bear."""
    lines = ["", "| invariant | violated in runs |", "|---|---|"]
    broken = Counter(letter for row in rows for letter in {one[0] for one in row["violated"]})
    for letter, check in invariants.items():
        said = (check.__doc__ or "").strip().rstrip(".")
        lines.append(f"| {said} | {broken[letter]} |")
    for title, key in counted.items():
        lines += ["", f"| {title} | runs hit |", "|---|---|"]
        counts = Counter(name for row in rows for name in set(row[key]))
        lines += [f"| {name} | {count} |" for name, count in sorted(counts.items())]
    return lines


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; a seed that was played again counts once, as it went the last time."""
    rows = {row["seed"]: row for row in map(json.loads, path.read_text().splitlines())}
    return [rows[seed] for seed in sorted(rows)]


def main() -> None:
    """Print the tables of a file of rows."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm.results")
    parser.add_argument("rows", type=Path)
    sys.stdout.write(table(rows_of(parser.parse_args().rows)))


if __name__ == "__main__":
    main()
