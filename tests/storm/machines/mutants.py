"""Proof that this storm can fail: each mend is undone in a copy of the packages, and a seed must find it.

`python -m tests.storm.machines.mutants`. What is violated where the mend stands, too, does not count.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.storm import mutants
from tests.storm.machines.invariants import violations
from tests.storm.machines.mends import MENDS
from tests.storm.machines.play import stage
from tests.storm.machines.scenario import scenario


@contextmanager
def _playing(folder: Path) -> Iterator[mutants.Play]:
    with stage(folder) as made:
        yield lambda seed, tree: violations(made.play(scenario(seed), tree))


if __name__ == "__main__":
    sys.exit(mutants.main(MENDS, _playing, "python -m tests.storm.machines.mutants"))
