"""Proof that this storm can fail: each mend is undone in a copy of the packages, and a seed must find it.

`python -m tests.storm.machines.mutants`. What is violated where the mend stands, too, does not count.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.storm import mutants
from tests.storm.machines.invariants import violations
from tests.storm.machines.mends import MENDS
from tests.storm.machines.play import CLOUD, stage


def playing_on(provider: str) -> Callable[[Path], AbstractContextManager[mutants.Play]]:
    """Return what plays seeds on a provider's groups."""

    @contextmanager
    def playing(folder: Path) -> Iterator[mutants.Play]:
        with stage(folder, provider) as made:
            yield lambda seed, tree: violations(made.play(seed, tree))

    return playing


if __name__ == "__main__":
    sys.exit(mutants.main(MENDS, playing_on(CLOUD), "python -m tests.storm.machines.mutants"))
