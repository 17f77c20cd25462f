"""Proof that the tests of the promises can fail: each mend is undone in a copy of the tree, and its tests are run there.

`python -m tests.storm.machines.by_tests [--only M3]`. Every test that a promise names must fail with one of its mends undone;
where they stand, `make test` runs them.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.storm.machines.mends import MENDS
from tests.storm.machines.test_promises import list_promised_tests
from tests.storm.mends import Mend
from tests.storm.mutants import undone

_TREE = Path(__file__).resolve().parents[3]
_LONGEST = 150.0
"""Seconds after which a test has failed that waits for what does not come."""
_PASSED, _SOME_FAILED = 0, 1


def fails(name: str, tree: Path) -> bool:
    """Return whether a test fails with the packages of a tree, or does not end."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        [*command, "--tb=no", name],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            code = process.wait(_LONGEST)
        except subprocess.TimeoutExpired:
            process.kill()
            return True
    if code not in (_PASSED, _SOME_FAILED):
        raise RuntimeError(f"{name}: pytest exited with {code}")
    return code == _SOME_FAILED


def whole_tree(mend: Mend, folder: Path) -> Path:
    """Return a copy of the tree, with its tests, in which a mend is undone."""
    target = undone(mend, folder)
    for path in _TREE.iterdir():
        if path.name == "tests":
            shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns("*.pyc"))
        elif not path.name.startswith(".git") and not (target / path.name).exists():
            (target / path.name).symlink_to(path)
    return target


def missed(promise: str, mends: Sequence[Mend], names: set[str], folder: Path) -> set[str]:
    """Return the tests of a promise that hold whichever of its mends is undone."""
    left = set(names)
    for mend in mends:
        tree = whole_tree(mend, folder)
        failed = {name for name in sorted(left) if fails(name, tree)}
        left -= failed
        _say(f"{promise:4} {mend.name}: {', '.join(sorted(failed)) or 'no test'} failed")
    return left


def main() -> int:
    """Undo the mends in turn; return 1 if a test of a promise does not show it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.storm.machines.by_tests", description=__doc__
    )
    parser.add_argument("--only", nargs="*", default=(), help="promises, as M3")
    only = parser.parse_args().only
    wanted = {
        name: tests for name, tests in list_promised_tests().items() if not only or name in only
    }
    holes = 0
    with tempfile.TemporaryDirectory(prefix="storm-by-tests-") as folder:
        for promise, names in wanted.items():
            mends = [mend for mend in MENDS if mend.defect == promise]
            left = missed(promise, mends, names, Path(folder))
            holes += bool(left)
            if left:
                _say(f"MISSED {promise}: {', '.join(sorted(left))}")
    _say(f"{len(wanted)} promises, {len(wanted) - holes} of which all tests fail without them")
    return 1 if holes or not wanted else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
