"""The figures of many runs of the storm for machines, as tables in Markdown."""

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.storm.machines.invariants import INVARIANTS
from tests.storm.results import rows_of, tables


def main() -> None:
    """Print the tables of a file of rows."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm.machines.results")
    parser.add_argument("rows", type=Path)
    rows = rows_of(parser.parse_args().rows)
    lines = ["| duty | runs | evictions | machines ended |", "|---|---|---|---|"]
    runs = Counter(row["duty"] for row in rows)
    for duty, count in sorted(runs.items()):
        of_it = [row for row in rows if row["duty"] == duty]
        evicted, ended = (sum(row[key] for row in of_it) for key in ("evicted", "ended"))
        lines.append(f"| {duty} | {count} | {evicted} | {ended} |")
    clean = sum(not row["violated"] for row in rows)
    lines.append(f"| all | {len(rows)}, {clean} without violation | | |")
    lines += tables(rows, INVARIANTS, {"fault": "hits", "beside it": "acts"})
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
