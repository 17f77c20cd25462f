"""`python -m tests.storm.machines --seeds 0-11`: plays scenarios, and says what was violated."""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.storm.__main__ import parse_seeds
from tests.storm.machines.invariants import violations
from tests.storm.machines.play import Stage, stage
from tests.storm.machines.scenario import scenario


def main() -> int:
    """Play the scenarios of the seeds; return 1 if anything was violated."""
    chosen = _parser().parse_args()
    folder = Path(chosen.keep or tempfile.mkdtemp(prefix="storm-machines-"))
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    bad: list[int] = []
    hits: Counter[str] = Counter()
    seeds = parse_seeds(chosen.seeds, chosen.runs)
    with stage(folder.resolve()) as made:
        _say(f"all is ready after {time.monotonic() - begun:.0f} s; outputs: {folder}")
        for seed in seeds:
            if chosen.short and scenario(seed).hits_long:
                continue
            if not any(_holds(made, seed, chosen, hits) for _ in range(1 + chosen.again)):
                bad.append(seed)
    _say(
        f"{len(seeds)} scenarios in {time.monotonic() - begun:.0f} s, {len(bad)} with violations: {bad}"
    )
    _say(f"faults that came to bear: {dict(sorted(hits.items()))}")
    return 1 if bad or not seeds else 0


def _holds(made: Stage, seed: int, chosen: argparse.Namespace, hits: Counter[str]) -> bool:
    started = time.monotonic()
    try:
        record = made.play(scenario(seed), chosen.source)
    except Exception as error:  # noqa: BLE001 - the next one may show more; this one counts as failed
        _say(f"         NOT PLAYED to its end: {error!r}  {scenario(seed)}")
        return False
    violated = violations(record)
    codes = ", ".join(str(ran.code) for ran in record.runs)
    ended = sum(call.done and "Terminate" in call.name for call in record.calls) + len(
        record.hooked
    )
    moved = len([*record.evictions()])
    _say(
        f"{time.monotonic() - started:5.1f} s  exit {codes}, {moved} evicted, {ended} ended  {record.scenario}"
    )
    for letter, text in violated:
        _say(f"         VIOLATED ({letter}) {text}")
    hits.update(record.hits)
    if chosen.rows:
        row = {
            "seed": seed,
            "duty": record.scenario.duty,
            "codes": [ran.code for ran in record.runs],
            "evicted": moved,
            "ended": ended,
            "hits": list(record.hits),
            "acts": sorted(record.acted),
            "violated": violated,
        }
        with Path(chosen.rows).open("a") as file:
            file.write(json.dumps(row) + "\n")
    return not violated


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.storm.machines", description=__doc__)
    parser.add_argument(
        "--seeds", default="0-11", help="one, or a range, or several of both: 3,7-9"
    )
    parser.add_argument("--runs", type=int, help="so many seeds, from the first one on")
    parser.add_argument(
        "--again",
        type=int,
        default=0,
        metavar="N",
        help="play a seed that violated something up to N times more: real processes on a busy machine",
    )
    parser.add_argument(
        "--short", action="store_true", help="leave out what stops a process for minutes"
    )
    parser.add_argument("--source", type=Path, help="play another tree than the installed one")
    parser.add_argument("--keep", metavar="FOLDER", help="where the runs' outputs are kept")
    parser.add_argument(
        "--rows", metavar="FILE", help="add a line of JSON per run, for the results"
    )
    return parser


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
