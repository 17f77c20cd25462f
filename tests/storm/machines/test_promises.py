"""The table of promises names each of the 33, and only tests that are there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.storm.machines.mends import MENDS

_TREE = Path(__file__).resolve().parents[3]
_TEXT = (Path(__file__).parent / "PROMISES.md").read_text()
_ROW = re.compile(r"^\| (M\d+) \|.*\|$", re.MULTILINE)
_NAMED = re.compile(r"`(tests/[^`]+\.py)::(test_\w+)`")
ROWS = [match[0] for match in _ROW.finditer(_TEXT)]


@cache
def _tests_of(path: str) -> frozenset[str]:
    tree = ast.parse((_TREE / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_each_promise_has_one_row():
    assert [row.split()[1] for row in ROWS] == [f"M{number}" for number in range(1, 34)]


def named_tests() -> dict[str, set[str]]:
    """Return promise -> the tests that fail without its mends."""
    return {row.split()[1]: {"::".join(one) for one in _NAMED.findall(row)} for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split()[1])
def test_a_promise_names_tests_that_are_there(row):
    named = _NAMED.findall(row)
    assert named
    assert [name for path, name in named if name not in _tests_of(path)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split()[1])
def test_a_promise_names_the_seeds_that_show_its_mends(row):
    promise, seeds = row.split()[1], row.split("|")[-2].strip()
    named = [seed for mend in MENDS if mend.defect == promise for seed in mend.seeds]
    assert seeds == (", ".join(map(str, named)) or "-")
