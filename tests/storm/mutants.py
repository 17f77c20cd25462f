"""Proof that the storm can fail: each mend is undone in a copy of the packages, and a seed must find it.

`python -m tests.storm.mutants`. A seed counts only if nothing is violated where the mend stands.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.storm.invariants import violations
from tests.storm.mends import MENDS, Mend
from tests.storm.run import Ground, ground
from tests.storm.schedule import scenario

_HERE = Path(__file__).resolve().parents[2]
_PACKAGES = ("rebalancer", "strategies")
_TRIES = 2
"""How often a seed is played before a mend counts as undone unseen: what happens at once may go either way."""


class StaleError(RuntimeError):
    """The text that a mend consists of stands nowhere, or more than once."""


@dataclass(frozen=True)
class Verdict:
    """What became of one mend undone."""

    mend: Mend
    clean: bool
    """Whether nothing is violated where it stands."""
    found: Sequence[tuple[str, str]]
    """What is violated where it is undone."""

    @property
    def killed(self) -> bool:
        """Whether the storm has found it."""
        return self.clean and bool(self.found)


def undone(mend: Mend, folder: Path, tree: Path = _HERE) -> Path:
    """Return a folder with the packages in which a mend is undone.

    Files are searched for the mend's text, so that it does not matter where they are moved.
    """
    target = folder / mend.name.replace(" ", "-")
    for package in _PACKAGES:
        shutil.copytree(tree / package, target / package, ignore=shutil.ignore_patterns("*.pyc"))
    for old, new in mend.changes:
        places = [path for path in target.rglob("*.py") if old in path.read_text()]
        counts = [path.read_text().count(old) for path in places]
        if counts != [1]:
            raise StaleError(f"{mend.name}: its text stands {sum(counts)} times: {old[:80]!r}")
        places[0].write_text(places[0].read_text().replace(old, new))
    return target


def judge(stage: Ground, mend: Mend, folder: Path, tree: Path, clean: dict[int, bool]) -> Verdict:
    """Play the seeds of a mend, as it stands and undone, until the storm has found it."""
    source = undone(mend, folder, tree)
    stands = True
    for seed in mend.seeds:
        if seed not in clean:
            clean[seed] = any(not violations(stage.play(scenario(seed))) for _ in range(_TRIES))
        stands = stands and clean[seed]
        for _ in range(_TRIES):
            if found := violations(stage.play(scenario(seed), source)):
                return Verdict(mend, clean[seed], found)
    return Verdict(mend, stands, ())


def _verdicts(mends: Sequence[Mend], tree: Path) -> Iterator[Verdict]:
    clean: dict[int, bool] = {}
    with (
        tempfile.TemporaryDirectory(prefix="storm-mutants-") as folder,
        ground(Path(folder)) as stage,
    ):
        for mend in mends:
            yield judge(stage, mend, Path(folder), tree, clean)


def main() -> int:
    """Undo each mend in turn; return 1 if one is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm.mutants", description=__doc__)
    parser.add_argument("--only", help="mends whose name has this in it")
    parser.add_argument("--source", type=Path, default=_HERE, help="another tree than this one")
    chosen = parser.parse_args()
    mends = [mend for mend in MENDS if (chosen.only or "") in mend.name]
    missed = 0
    for verdict in _verdicts(mends, chosen.source.resolve()):
        letter, text = verdict.found[0] if verdict.found else ("-", "nothing is violated")
        said = "found " if verdict.killed else "MISSED"
        unclean = "" if verdict.clean else " (violated where it stands, too)"
        _say(f"{said} {verdict.mend.defect:4} {verdict.mend.name}: ({letter}) {text}{unclean}")
        missed += not verdict.killed
    _say(f"{len(mends)} mends undone one at a time, {len(mends) - missed} found")
    return 1 if missed or not mends else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
