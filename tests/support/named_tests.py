"""Tests that a page names: `tests/x/test_y.py::test_z` between backticks."""

import ast
import re
from functools import cache
from pathlib import Path

_TREE = Path(__file__).resolve().parents[2]
_NAMED = re.compile(r"`(tests/[^`]+\.py)::(test_\w+)`")


@cache
def _tests_of(path: str) -> frozenset[str]:
    tree = ast.parse((_TREE / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def named_tests(text: str) -> set[str]:
    """Return the tests that a text names."""
    return {"::".join(one) for one in _NAMED.findall(text)}


def missing_tests(text: str) -> list[str]:
    """Return those of them that are not there."""
    return sorted(
        f"{path}::{name}"
        for path, name in _NAMED.findall(text)
        if not (_TREE / path).is_file() or name not in _tests_of(path)
    )
