"""The table of mends of Cluster API: each can be undone in the packages as they are, and has a seed."""

import pytest

from tests.storm.machines.cluster_api.mends import MENDS
from tests.storm.mutants import changed_files


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.name)
def test_a_mend_stands_in_the_packages_and_can_be_undone(mend):
    assert changed_files(mend)
    assert mend.seeds
