"""The table of mends: each can be undone in the packages as they are."""

import pytest

from tests.storm.mends import MENDS
from tests.storm.mutants import StaleError, undone
from tests.storm.schedule import scenario


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.name)
def test_a_mend_stands_in_the_packages_and_can_be_undone(mend, tmp_path):
    undone(mend, tmp_path)
    assert mend.seeds
    assert [scenario(seed).seed for seed in mend.seeds] == list(mend.seeds)


def test_a_mend_that_stands_nowhere_is_named(tmp_path):
    stale = MENDS[0].__class__("gone", "D0", [("no such text", "")], [0])
    with pytest.raises(StaleError, match="stands 0 times"):
        undone(stale, tmp_path)
