"""`python -m tests.storm.machines --seeds 0-11`: plays scenarios, and says what was violated."""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from tests.storm.arguments import folder_of, parse_seeds, play_seeds, say, share_seeds, storm_parser
from tests.storm.machines.invariants import violations
from tests.storm.machines.play import CLOUD, PROVIDERS, Stage, stage


def main() -> int:
    """Play the scenarios of the seeds; return 1 if anything was violated."""
    chosen = _parser().parse_args()
    folder = folder_of(chosen)
    begun = time.monotonic()
    hits: Counter[str] = Counter()
    seeds = parse_seeds(chosen.seeds, chosen.runs)
    if chosen.at_once > 1:
        return share_seeds("tests.storm.machines", seeds, chosen.at_once)
    with stage(folder, chosen.provider) as made:
        if chosen.short:
            seeds = [seed for seed in seeds if not made.scenario(seed).hits_long]
        say(f"all is ready after {time.monotonic() - begun:.0f} s; outputs: {folder}")
        code = play_seeds(seeds, chosen, lambda seed: _holds(made, seed, chosen, hits))
    say(f"faults that came to bear: {dict(sorted(hits.items()))}")
    return code


def _holds(made: Stage, seed: int, chosen: argparse.Namespace, hits: Counter[str]) -> bool:
    started = time.monotonic()
    try:
        record = made.play(seed, chosen.source)
    except Exception as error:  # noqa: BLE001 - the next one may show more; this one counts as failed
        say(f"         NOT PLAYED to its end: {error!r}  {made.scenario(seed)}")
        return False
    violated = violations(record)
    codes = ", ".join(str(ran.code) for ran in record.runs)
    ended = len(record.endings(of_hooks=False)) + len(record.hooked)
    moved = len([*record.evictions()])
    say(
        f"{time.monotonic() - started:5.1f} s  exit {codes}, {moved} evicted, {ended} ended  {record.scenario}"
    )
    for letter, text in violated:
        say(f"         VIOLATED ({letter}) {text}")
    hits.update(record.hits)
    if chosen.rows:
        row = {
            "seed": seed,
            "provider": chosen.provider,
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
    parser = storm_parser("python -m tests.storm.machines", __doc__, "0-11")
    parser.add_argument(
        "--provider", choices=PROVIDERS, default=CLOUD, help="whose groups the machines are in"
    )
    parser.add_argument(
        "--short", action="store_true", help="leave out what stops a process for minutes"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
