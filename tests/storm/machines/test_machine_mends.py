"""The table of mends: each can be undone in the packages as they are."""

import pytest

from tests.storm.machines.mends import MENDS
from tests.storm.machines.test_promises import list_promised_tests
from tests.storm.mutants import changed_files


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.name)
def test_a_mend_stands_in_the_packages_and_can_be_undone(mend):
    assert changed_files(mend)
    assert mend.seeds or mend.defect in list_promised_tests()
