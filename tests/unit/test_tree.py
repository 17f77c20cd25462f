"""What CONTRIBUTING says of the tree is true."""

import ast
import re
from pathlib import Path

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


def decides(module: Path) -> bool:
    """Whether a module has a function with more than a docstring: protocols and plain data need no test."""
    functions = (
        node
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    )
    return any(ast.get_docstring(of) is None or len(of.body) > 1 for of in functions)


def test_each_package_that_decides_has_tests_of_its_own() -> None:
    modules = (path for path in (ROOT / "rebalancer").glob("*/*.py") if decides(path))
    deciding = {path.parent.name for path in modules}
    tested = {path.parent.name for path in (ROOT / "tests" / "unit").glob("*/test_*.py")}
    # What helps to test is tried by tests of all other packages; `plan` is data with properties.
    assert deciding - tested <= {"plan", "testing"}
