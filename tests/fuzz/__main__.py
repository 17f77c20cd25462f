"""`python -m tests.fuzz SECONDS [TARGET...]`: fuzz the targets one after the other; all share the seconds.

Each runs in a process of its own under atheris (tests/fuzz/requirements.txt), from its kept inputs and with a
fixed seed. An input that a target does not stand is left in build/fuzz and named, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.target import CORPUS

FOLDER = Path(__file__).parent
TARGETS = tuple(sorted(path.stem.removeprefix("fuzz_") for path in FOLDER.glob("fuzz_*.py")))
_LONGEST = 25
"""Seconds that one input may take. What is fuzzed is small, but the first ones import and instrument what they need, on
a machine that may be busy."""
_LARGEST = 4096
_PROGRAM = """
import importlib, sys
import atheris
with atheris.instrument_imports(include=["rebalancer"]):
    target = importlib.import_module("tests.fuzz.fuzz_" + sys.argv.pop(1)).TARGET
atheris.Setup(sys.argv, target)
atheris.Fuzz()
"""


def fuzz(name: str, seconds: int, crashes: Path) -> tuple[int, str]:
    """Fuzz one target; return its number of executions, and what it printed if it failed."""
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-c", _PROGRAM, name),
                *(folder, str(CORPUS / name)),
                f"-max_total_time={seconds}",
                f"-artifact_prefix={crashes}/{name}-",
                f"-timeout={_LONGEST}",
                f"-max_len={_LARGEST}",
                *("-seed=1", "-print_final_stats=1", "-rss_limit_mb=2048"),
            ],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
        )
    count = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    return int(count[1]) if count else 0, done.stdout + done.stderr if done.returncode else ""


def _essence(output: str) -> str:
    """Return the traceback, if there is one, and the end with the name of the input."""
    lines = output.splitlines()
    begin = next((n for n, line in enumerate(lines) if "Uncaught Python" in line), len(lines))
    ends = [line for line in lines if line.startswith(("SUMMARY", "artifact_prefix", "ALARM"))]
    return "\n".join([*lines[begin : begin + 40], *ends])


def main() -> int:
    """Fuzz what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("seconds", type=int)
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET")
    chosen = parser.parse_args()
    crashes = Path("build/fuzz")
    crashes.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in chosen.targets:
        count, output = fuzz(name, max(1, chosen.seconds // len(chosen.targets)), crashes)
        print(f"{name}: {count} executions{', and one that it does not stand:' if output else ''}")
        if output:
            print(_essence(output))
        failed = failed or bool(output) or not count
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
