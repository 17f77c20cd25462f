"""``python -m benchmarks.evidence [--only NAMES] [--minutes N]``: measure what is missing, and write docs/evidence.md.

Each part is kept when it has ended, so that it can be stopped at any time. ``--again`` forgets what is kept of the chosen ones.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.evidence.experiments import EXPERIMENTS, Experiment
from benchmarks.evidence.page import RESULTS, ROOT, write


def main() -> int:
    """Run, keep, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=__doc__)
    parser.add_argument("--only", default="", help="names, by commas")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no part later")
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    names = set(given.only.split(",")) - {""}
    end, failed = time.monotonic() + 60 * given.minutes, 0
    for one in EXPERIMENTS:
        if names and one.name not in names:
            continue
        kept = RESULTS / f"{one.name}.json"
        if given.again:
            kept.unlink(missing_ok=True)
        failed += _measure(one, kept, end)
    write()
    return int(bool(failed))


def _measure(one: Experiment, kept: Path, end: float) -> int:
    """Run the parts of an experiment that are missing until ``end``; return how many have failed."""
    failed = 0
    results = json.loads(kept.read_text()) if kept.exists() else {}
    for part in one.parts:
        if part in results or time.monotonic() > end:
            continue
        expanded = os.path.expandvars(part)
        if "$" in expanded:
            print(f"{one.name}: skipped, for a variable is not set: {part}", flush=True)
            break
        print(f"{one.name}: {part}", flush=True)
        load = os.getloadavg()[0]
        command = [sys.executable, "-m", *expanded.split()]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{one.name}: FAILED: {done.stderr.strip()[-300:]}", flush=True)
            failed += 1
            continue
        results[part] = {
            "commit": _commit(),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}",
            "load": round(load, 1),
            "output": done.stdout,
        }
        kept.write_text(json.dumps(results, indent=1) + "\n")
    return failed


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
