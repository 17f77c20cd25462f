"""`python -m tests.storm --seeds 0-19`: plays scenarios, says what was violated, and writes the figures down."""

import argparse
import json
import sys
import time
from pathlib import Path

from tests.storm.arguments import folder_of, parse_seeds, play_seeds, say, share_seeds, storm_parser
from tests.storm.invariants import violations
from tests.storm.results import row_of
from tests.storm.run import Ground, ground
from tests.storm.schedule import scenario, served


def main() -> int:
    """Play the scenarios of the seeds; return 1 if anything was violated."""
    chosen = _parser().parse_args()
    seeds = parse_seeds(chosen.seeds, chosen.runs)
    if chosen.at_once > 1:
        return share_seeds("tests.storm", seeds, chosen.at_once)
    folder = folder_of(chosen)
    begun = time.monotonic()
    with ground(folder) as stage:
        say(f"the control plane is ready after {time.monotonic() - begun:.0f} s; outputs: {folder}")
        return play_seeds(seeds, chosen, lambda seed: _holds(stage, seed, chosen))


def _holds(stage: Ground, seed: int, chosen: argparse.Namespace) -> bool:
    """Play the scenario of a seed, say how it went, and return whether nothing was violated."""
    started = time.monotonic()
    try:
        made = served(scenario(seed)) if chosen.serve else scenario(seed)
        record = stage.play(made, chosen.source)
    except Exception as error:  # noqa: BLE001 - the next one may show more; this one counts as failed
        say(f"         NOT PLAYED to its end: {error!r}  {scenario(seed)}")
        return False
    violated = violations(record)
    codes = ", ".join(str(ran.code) for ran in record.runs)
    say(
        f"{time.monotonic() - started:5.1f} s  exit {codes}, {len(record.evicted)} evicted"
        f" + {record.clean_evictions}  {record.scenario}"
    )
    for letter, text in violated:
        say(f"         VIOLATED ({letter}) {text}")
    if chosen.rows:
        with Path(chosen.rows).open("a") as file:
            file.write(json.dumps(row_of(record, violated).as_data()) + "\n")
    return not violated


def _parser() -> argparse.ArgumentParser:
    parser = storm_parser("python -m tests.storm", __doc__, "0-19")
    parser.add_argument(
        "--serve", action="store_true", help="play rebalancer serve in the place of a run"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
