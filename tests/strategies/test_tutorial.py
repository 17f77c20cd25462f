"""The strategy that CONTRIBUTING shows works as it stands there, and needs one import of ours."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rebalancer import api
from rebalancer.testing.contract import check_strategy, view_of
from rebalancer.testing.snapshots import node, snapshot_of, workload

ROOT = Path(__file__).parents[2]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"


def tutorial_source() -> str:
    section = CONTRIBUTING.read_text(encoding="utf-8").partition("## Write a strategy")[2]
    match = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert match is not None
    return match[1]


@pytest.fixture
def tutorial(monkeypatch):
    module = ModuleType("my_package")
    monkeypatch.setitem(sys.modules, "my_package", module)
    exec(compile(tutorial_source(), "CONTRIBUTING.md", "exec"), vars(module))  # noqa: S102
    return module


def test_it_keeps_the_contract(tutorial):
    check_strategy(tutorial.PerRack())


def test_it_asks_the_crowded_rack_for_a_pod(tutorial):
    nodes = [node(f"n{i}", labels={"example.com/rack": f"r{i}"}) for i in range(2)]
    view = view_of(snapshot_of([*nodes, *workload("web", ["n0", "n0", "n1"])]))
    (term,) = tutorial.PerRack().terms(view, tutorial.PerRackParams(cap=1))
    assert term.potential() == 1
    assert term.candidates().node.tolist() == [0]


def test_it_takes_one_import_of_ours(tutorial):
    lines = re.findall(r"^(?:from|import) (rebalancer\S*)", tutorial_source(), re.MULTILINE)
    assert lines == ["rebalancer.api"]
    assert set(vars(tutorial)) & set(api.__all__)


def test_the_surface_is_what_strategies_name():
    files = [*(ROOT / "strategies").rglob("*.py"), *(ROOT / "tests" / "plugin").rglob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    imported = re.findall(
        r"^from rebalancer\.api import (\(.*?\)|.*?$)", text, re.MULTILINE | re.DOTALL
    )
    named = set(re.findall(r"\w+", " ".join(imported)))
    assert set(api.__all__) == named
    assert len(named) <= 32, "fold a helper into a method of what it is about"
