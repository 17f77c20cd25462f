"""The command line of both storms: which seeds are played, how often, and where what they say is kept."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def storm_parser(program: str, description: str | None, seeds: str) -> argparse.ArgumentParser:
    """Return a parser of what both storms take; ``seeds`` are played if none are named."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--seeds", default=seeds, help="one, or a range, or several of both: 3,7-9")
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
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="play so many at a time, each on a control plane of its own: a run waits more than it works",
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
    return list(range(seeds[0], seeds[0] + runs)) if runs else seeds


def share_seeds(module: str, seeds: Sequence[int], at_once: int) -> int:
    """Play the seeds in that many processes of ``python -m module``, with our other arguments; return the worst exit code."""
    begun = time.monotonic()
    shares = [seeds[number::at_once] for number in range(at_once)]
    players = [
        # What is named last counts.
        subprocess.Popen(
            [
                *(sys.executable, "-m", module, *sys.argv[1:]),
                *("--at-once=1", "--runs=0", f"--seeds={','.join(map(str, share))}"),
            ]
        )
        for share in shares
        if share
    ]
    codes = [player.wait() for player in players]
    say(f"{len(seeds)} seeds by {len(players)} in {time.monotonic() - begun:.0f} s")
    return max(codes, default=1)


def folder_of(chosen: argparse.Namespace) -> Path:
    """Return the folder for the runs' outputs, which is there."""
    folder = Path(chosen.keep or tempfile.mkdtemp(prefix="storm-"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def play_seeds(
    seeds: Sequence[int], chosen: argparse.Namespace, holds: Callable[[int], bool]
) -> int:
    """Play one seed after the other, say how many were violated, and return the exit code.

    ``holds`` plays one, and returns whether nothing was violated.
    """
    begun = time.monotonic()
    bad: list[int] = []
    played = 0
    for seed in seeds:
        if chosen.minutes and time.monotonic() - begun > chosen.minutes * 60:
            break
        played += 1
        if not any(holds(seed) for _ in range(1 + chosen.again)):
            bad.append(seed)
    say(f"{played} runs in {time.monotonic() - begun:.0f} s, {len(bad)} with violations: {bad}")
    return 1 if bad or not played else 0


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
