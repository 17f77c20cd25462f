"""What CONTRIBUTING says of the tree is true."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_contributing_names_every_package_and_no_other() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `rebalancer/(\w+)` \|", text, re.MULTILINE))
    folders = {path.parent.name for path in (ROOT / "rebalancer").glob("*/__init__.py")}
    assert named - {"api", "cli"} == folders - {"testing"}


def test_each_folder_of_unit_tests_is_that_of_a_package() -> None:
    tested = {path.parent.name for path in (ROOT / "tests" / "unit").glob("*/test_*.py")}
    packages = {path.parent.name for path in (ROOT / "rebalancer").glob("*/__init__.py")}
    assert tested - packages == {"benchmarks"}


# Modules that decide, and that only tests of whole plans look at: tests of their own are owed. None is added.
OWED = {
    "cost": set[str](),
    "evictor": set[str](),
    "planner": set[str](),
}


def decides(module: Path) -> bool:
    """Whether a module has a function with more than a docstring: protocols and plain data need no test."""
    functions = (
        node
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    )
    return any(ast.get_docstring(of) is None or len(of.body) > 1 for of in functions)


@pytest.mark.parametrize("package", sorted(OWED))
def test_each_module_that_decides_has_tests_of_its_own(package: str) -> None:
    modules = (ROOT / "rebalancer" / package).glob("*.py")
    deciding = {module.stem for module in modules if decides(module)}
    tested = {
        path.stem.removeprefix("test_")
        for path in (ROOT / "tests" / "unit" / package).glob("test_*.py")
    }
    assert deciding - tested <= OWED[package]
    assert not tested & OWED[package], "take it off the list"
