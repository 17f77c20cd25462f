"""Proof that the storm can fail: each mend is undone in a copy of the packages, and a seed must find it.

`python -m tests.storm.mutants`. What is violated where the mend stands, too, does not count.
"""

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.storm.invariants import violations
from tests.storm.mends import MENDS, Mend
from tests.storm.run import ground
from tests.storm.schedule import scenario

_HERE = Path(__file__).resolve().parents[2]
_PACKAGES = ("rebalancer", "strategies", "chart", "docs")
_TEXTS = (".py", ".yaml", ".md")
_TRIES = 3
"""How often a seed is played before a mend counts as undone unseen: what happens at once may go either way."""


class StaleError(RuntimeError):
    """The text that a mend consists of stands nowhere, or more than once."""


@dataclass(frozen=True)
class Verdict:
    """What happened to one mend undone."""

    mend: Mend
    violations: Sequence[tuple[str, str]]
    """What is violated where it is undone, and not where it stands."""
    anyway: Sequence[tuple[str, str]] = ()
    """What is violated where it stands."""


def undone(mend: Mend, folder: Path, tree: Path = _HERE) -> Path:
    """Return a folder with the packages, the chart and the documentation, in which a mend is undone."""
    # A colon would end the path in PYTHONPATH, and the installed packages be played.
    target = folder / re.sub(r"[^A-Za-z0-9]+", "-", mend.name)
    for package in _PACKAGES:
        shutil.copytree(tree / package, target / package, ignore=shutil.ignore_patterns("*.pyc"))
    for path, text in changed_files(mend, tree).items():
        (target / path).write_text(text)
    return target


def changed_files(mend: Mend, tree: Path = _HERE) -> dict[Path, str]:
    """Return path below the tree -> its text without the mend, for each file that undoing it changes.

    Files are searched for the mend's text, so that it does not matter where they are moved.

    Raises:
        StaleError: a text of the mend stands nowhere, or more than once.
    """
    changed: dict[Path, str] = {}
    for old, new in mend.changes:
        texts = (_texts(tree) | changed).items()
        places = {path: count for path, text in texts if (count := text.count(old))}
        if [*places.values()] != [1]:
            stands = sum(places.values())
            raise StaleError(f"{mend.name}: its text stands {stands} times: {old[:80]!r}")
        (path,) = places
        changed[path] = (_texts(tree) | changed)[path].replace(old, new)
    return changed


@cache
def _texts(tree: Path) -> dict[Path, str]:
    """Return path below the tree -> text of each file that a mend may be part of."""
    paths = (path for package in _PACKAGES for path in (tree / package).rglob("*"))
    return {path.relative_to(tree): path.read_text() for path in paths if path.suffix in _TEXTS}


Play = Callable[[int, Path], Sequence[tuple[str, str]]]
"""Plays the scenario of a seed with the packages of a tree; returns what was violated."""


class Judge:
    """Plays the seeds of mends, as they stand in a tree and undone."""

    def __init__(self, play: Play, tree: Path, folder: Path) -> None:
        self._play, self._tree, self._folder = play, tree, folder
        self._standing: dict[int, Sequence[tuple[str, str]]] = {}

    def judge(self, mend: Mend) -> Verdict:
        """Undo a mend and play its seeds until the storm shows it."""
        source = undone(mend, self._folder, self._tree)
        anyway: list[tuple[str, str]] = []
        for seed in mend.seeds:
            standing = self._as_it_stands(seed)
            anyway += standing
            known = {letter for letter, _ in standing}
            for _ in range(_TRIES):
                violated = self._play(seed, source)
                if new := [one for one in violated if one[0] not in known]:
                    return Verdict(mend, new, anyway)
        return Verdict(mend, (), anyway)

    def _as_it_stands(self, seed: int) -> Sequence[tuple[str, str]]:
        """Return what a seed violates each time where all mends stand: nothing, it should be."""
        if seed not in self._standing:
            for _ in range(_TRIES):
                self._standing[seed] = self._play(seed, self._tree)
                if not self._standing[seed]:
                    break
        return self._standing[seed]


@contextmanager
def _playing(folder: Path) -> Iterator[Play]:
    with ground(folder) as stage:
        yield lambda seed, tree: violations(stage.play(scenario(seed), tree))


def main(
    mends: Sequence[Mend] = MENDS,
    playing: Callable[[Path], AbstractContextManager[Play]] = _playing,
    program: str = "python -m tests.storm.mutants",
) -> int:
    """Undo each mend in turn; return 1 if one does not show."""
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--only", help="mends whose name or defect has this in it")
    parser.add_argument("--source", type=Path, default=_HERE, help="another tree than this one")
    chosen = parser.parse_args()
    mends = [mend for mend in mends if (chosen.only or "") in f"{mend.defect} {mend.name}"]
    played = [mend for mend in mends if mend.seeds]
    for mend in mends:
        if not mend.seeds:
            _say(f"tests  {mend.defect:4} {mend.name}: no seed shows it, only its tests do")
    missed = 0
    with (
        tempfile.TemporaryDirectory(prefix="storm-mutants-") as folder,
        playing(Path(folder)) as play,
    ):
        judge = Judge(play, chosen.source.resolve(), Path(folder))
        for mend in played:
            verdict = judge.judge(mend)
            missed += not verdict.violations
            _report(verdict)
    _say(f"{len(played)} mends undone one at a time, {len(played) - missed} shown")
    return 1 if missed or not played else 0


def _report(verdict: Verdict) -> None:
    letter, text = verdict.violations[0] if verdict.violations else ("-", "nothing is violated")
    said = "shown " if verdict.violations else "MISSED"
    _say(f"{said} {verdict.mend.defect:4} {verdict.mend.name}: ({letter}) {text}")
    for other, why in verdict.anyway:
        _say(f"              violated where it stands, too: ({other}) {why}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
