"""``python -m benchmarks.evidence [--only NAMES] [--minutes N] [--at-once N]``: measure what is missing, and write docs/evidence.md.

Each part is kept when it has ended, so that it can be stopped at any time. To measure again, delete its file in ``results``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from benchmarks.evidence.experiments import EXPERIMENTS, Experiment
from benchmarks.evidence.page import RESULTS, ROOT, write


def main() -> int:
    """Run, keep, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=__doc__)
    parser.add_argument("--only", default="", help="names, by commas")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no part later")
    parser.add_argument("--at-once", type=int, default=1, help="parts; more than one for counts")
    given = parser.parse_args()
    names = set(given.only.split(",")) - {""}
    end, failed = time.monotonic() + 60 * given.minutes, 0
    for one in EXPERIMENTS:
        if names and one.name not in names:
            continue
        failed += _measure(one, end, given.at_once)
    write()
    return int(bool(failed))


def _measure(one: Experiment, end: float, at_once: int) -> int:
    """Run the parts of an experiment that are missing until ``end``; return how many have failed."""
    kept = RESULTS / f"{one.name}.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    failed = 0
    pool = ThreadPoolExecutor(max(1, at_once))
    ended = {
        pool.submit(_run, one.name, part, end): part for part in one.parts if part not in results
    }
    try:
        for future in as_completed(ended):
            if isinstance(result := future.result(), str):
                print(f"{one.name}: {result}", flush=True)
                failed += result.startswith("FAILED")
            elif result is not None:
                results[ended[future]] = result
                in_order = {part: results[part] for part in one.parts if part in results}
                kept.write_text(json.dumps(in_order, indent=1) + "\n")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # by Ctrl-C nothing more begins
    return failed


def _run(name: str, part: str, end: float) -> dict[str, str | float] | str | None:
    """Return what a part printed, why it has none, or None if it is too late to begin."""
    if time.monotonic() > end:
        return None
    expanded = os.path.expandvars(part)
    if "$" in expanded:
        return f"skipped, for a variable is not set: {part}"
    print(f"{name}: {part}", flush=True)
    load = os.getloadavg()[0]
    command = [sys.executable, "-m", *expanded.split()]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        return f"FAILED: {part}: {done.stderr.strip()[-300:]}"
    return {
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "load": round(load, 1),
        "output": done.stdout,
    }


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
