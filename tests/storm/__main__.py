"""`python -m tests.storm --seeds 0-19`: plays scenarios, says what was violated, and writes the figures down."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.storm.invariants import violations
from tests.storm.results import row_of
from tests.storm.run import Ground, ground
from tests.storm.schedule import scenario, served


def main() -> int:
    """Play the scenarios of the seeds; return 1 if anything was violated."""
    chosen = _parser().parse_args()
    folder = Path(chosen.keep or tempfile.mkdtemp(prefix="storm-"))
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    bad: list[int] = []
    played = 0
    with ground(folder.resolve()) as stage:
        _say(
            f"the control plane is ready after {time.monotonic() - begun:.0f} s; outputs: {folder}"
        )
        for seed in parse_seeds(chosen.seeds, chosen.runs):
            if chosen.minutes and time.monotonic() - begun > chosen.minutes * 60:
                break
            played += 1
            if not any(_holds(stage, seed, chosen) for _ in range(1 + chosen.again)):
                bad.append(seed)
    _say(f"{played} runs in {time.monotonic() - begun:.0f} s, {len(bad)} with violations: {bad}")
    return 1 if bad or not played else 0


def _holds(stage: Ground, seed: int, chosen: argparse.Namespace) -> bool:
    """Play the scenario of a seed, say how it went, and return whether nothing was violated."""
    started = time.monotonic()
    try:
        made = served(scenario(seed)) if chosen.serve else scenario(seed)
        record = stage.play(made, chosen.source)
    except Exception as error:  # noqa: BLE001 - the next one may show more; this one counts as failed
        _say(f"         NOT PLAYED to its end: {error!r}  {scenario(seed)}")
        return False
    violated = violations(record)
    codes = ", ".join(str(ran.code) for ran in record.runs)
    _say(
        f"{time.monotonic() - started:5.1f} s  exit {codes}, {len(record.evicted)} evicted"
        f" + {record.clean_evictions}  {record.scenario}"
    )
    for letter, text in violated:
        _say(f"         VIOLATED ({letter}) {text}")
    if chosen.rows:
        with Path(chosen.rows).open("a") as file:
            file.write(json.dumps(row_of(record, violated).as_data()) + "\n")
    return not violated


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument(
        "--seeds", default="0-19", help="one, or a range, or several of both: 3,7-9"
    )
    parser.add_argument("--runs", type=int, help="so many seeds, from the first one on")
    parser.add_argument("--minutes", type=float, help="begin no further run after so long")
    parser.add_argument(
        "--again",
        type=int,
        default=0,
        metavar="N",
        help="play a seed that violated something up to N times more: real processes on a busy machine",
    )
    parser.add_argument(
        "--serve", action="store_true", help="play rebalancer serve in the place of a run"
    )
    parser.add_argument("--source", type=Path, help="play another tree than the installed one")
    parser.add_argument("--keep", metavar="FOLDER", help="where the runs' outputs are kept")
    parser.add_argument(
        "--rows", metavar="FILE", help="add a line of JSON per run, for the results"
    )
    return parser


def parse_seeds(text: str, runs: int | None) -> list[int]:
    """Return the seeds of a text such as 3,7-9; with ``runs``: so many from the first one on."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds if runs is None else list(range(seeds[0], seeds[0] + runs))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
