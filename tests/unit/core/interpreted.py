"""The core as Python runs its source, beside the compiled one."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np

import rebalancer
from rebalancer.scheduler import lowering
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.scheduler.scores import Scorer
from rebalancer.snapshot.state import ClusterState

_FOLDER = Path(rebalancer.__file__).parent / "core"
_LOWERING = "rebalancer.scheduler.lowering"


class Narrow(SchedulerProfile):
    """Samples three nodes, so that small clusters are sampled, too."""

    def nodes_to_find(self, nodes: int) -> int:
        return min(3, nodes)


class _Sources:
    """Finds the modules of the core by their source, where Python would take the extensions."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return the spec of a module of the core; None for others."""
        package, _dot, module = name.rpartition(".")
        if package != "rebalancer.core":
            return None
        return importlib.util.spec_from_file_location(name, _FOLDER / f"{module}.py")


def on_source(*names: str) -> list[ModuleType]:
    """Return copies of modules, which ask the interpreted core."""
    # What they import is there before, so that nothing else gets the interpreted core.
    for name in (*(f"rebalancer.core.{path.stem}" for path in _FOLDER.glob("*.pxd")), *names):
        importlib.import_module(name)
    with _without_core(names):
        return [importlib.import_module(name) for name in names]


@contextmanager
def _without_core(names: tuple[str, ...]) -> Iterator[None]:
    """Let modules of the core be imported again, from their source, and ``names`` with them, for a while."""
    finder = _Sources()
    kept = {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if name.startswith("rebalancer.core.") or name in names
    }
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name, module in kept.items():
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            setattr(sys.modules[parent], child, module)


SOURCE, SOURCE_PENDING = on_source(_LOWERING, "rebalancer.scheduler.pending")


def _lowered(model: SchedulerModel, by: type[lowering.Lowering]) -> lowering.Lowering:
    parts = model.placement, model.resources, model.spread, model.interpod, model.filters
    scorer = Scorer(model.snapshot, model.profile, model.filters.volumes)
    return by(model.snapshot, model.profile, *parts, scorer)


def assert_same(model: SchedulerModel, state: ClusterState, classes: set[int]) -> None:
    """Fail where both cores do not predict the same of a class, to the last bit."""
    compiled, source = _lowered(model, lowering.Lowering), _lowered(model, SOURCE.Lowering)
    for cls in sorted(classes):
        one, other = compiled.predict(state, cls), source.predict(state, cls)
        assert one.nodes.tolist() == other.nodes.tolist()
        assert one.probability.tolist() == other.probability.tolist()
        found = compiled.find_feasible(state, cls), source.find_feasible(state, cls)
        assert found[0].tolist() == found[1].tolist()
        nodes = np.arange(len(model.snapshot.nodes), dtype=np.int32)
        scores = (each.score_each(state, cls, nodes).items() for each in (compiled, source))
        first, second = ([(name, score.tolist()) for name, score in of] for of in scores)
        assert first == second
        asked = (each.find_checks(state, cls) for each in (compiled, source))
        one_by_one = ([(*of[:2], of.passes.tolist()) for of in each] for each in asked)
        assert next(one_by_one) == next(one_by_one)
