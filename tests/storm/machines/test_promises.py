"""The table of promises names each of the 33, and only tests that are there."""

import re
from pathlib import Path

import pytest

from tests.storm.machines.mends import MENDS
from tests.support.named_tests import missing_tests, named_tests

_TEXT = (Path(__file__).parent / "PROMISES.md").read_text()
_ROW = re.compile(r"^\| (M\d+) \|.*\|$", re.MULTILINE)
ROWS = [match[0] for match in _ROW.finditer(_TEXT)]


def test_each_promise_has_one_row():
    assert [row.split()[1] for row in ROWS] == [f"M{number}" for number in range(1, 34)]


def list_promised_tests() -> dict[str, set[str]]:
    """Return promise -> the tests that fail without its mends."""
    return {row.split()[1]: named_tests(row) for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split()[1])
def test_a_promise_names_tests_that_are_there(row):
    assert named_tests(row)
    assert missing_tests(row) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split()[1])
def test_a_promise_names_the_seeds_that_show_its_mends(row):
    promise, seeds = row.split()[1], row.split("|")[-2].strip()
    named = [seed for mend in MENDS if mend.defect == promise for seed in mend.seeds]
    assert seeds == (", ".join(map(str, named)) or "-")
