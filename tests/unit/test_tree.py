"""What CONTRIBUTING says of the tree is true."""

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
