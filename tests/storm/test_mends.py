"""The table of mends: each can be undone in the packages as they are."""

from pathlib import Path

import pytest

from tests.storm.mends import MENDS
from tests.storm.mutants import StaleError, changed_files, undone
from tests.storm.schedule import scenario

_HERE = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.name)
def test_a_mend_stands_in_the_packages_and_can_be_undone(mend):
    assert changed_files(mend)
    assert mend.seeds
    assert [scenario(seed).seed for seed in mend.seeds] == list(mend.seeds)


def test_only_its_files_are_other_ones_where_a_mend_is_undone(tmp_path):
    target = undone(MENDS[0], tmp_path)
    changed = changed_files(MENDS[0])
    for path in (target / "rebalancer").rglob("*.py"):
        of = path.relative_to(target)
        assert path.read_text() == changed.get(of, (_HERE / of).read_text())


def test_a_mend_that_stands_nowhere_is_named():
    stale = MENDS[0].__class__("gone", "D0", [("no such text", "")], [0])
    with pytest.raises(StaleError, match="stands 0 times"):
        changed_files(stale)
