"""Small random clusters against the proven optimum: where ours takes more moves, or leaves more."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.decisions.contenders import default_policy
from benchmarks.decisions.instance import counted, hard, soft
from benchmarks.decisions.loop import Loop, Played, as_objects
from benchmarks.decisions.optimum import Optimum, optimum
from benchmarks.decisions.reading import placement, read
from benchmarks.decisions.world import World, draw, smaller
from rebalancer.policy.load import LoadedPolicy, load_policy
from rebalancer.registry import Registry

_SECONDS = 10.0
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Compared:
    """Ours beside the optimum on one small cluster."""

    what: str
    """``as good``, ``more moves``, ``leaves more``, ``never silent``, ``bound too high``."""
    moves: int
    best: Optimum
    left: tuple[float, float]
    """Hard, soft."""
    played: Played

    def line(self) -> str:
        """Return one line for people."""
        reasons = sorted({f"{s.code.value}: {s.message}" for s in self.played.skips})
        return (
            f"{self.what}: {self.moves} moves, bound {self.played.bound}, left hard {self.left[0]:g} "
            f"soft {self.left[1]:g}; optimum {self.best.moves:g} moves, hard {self.best.hard:g} "
            f"soft {self.best.soft:g}; skips {reasons[:3]}"
        )


class Comparison:
    """Compares worlds under the default policy with budgets lifted.

    Without low-utilisation: what it wants of a state is no rule that the optimum could be held to.
    """

    def __init__(self) -> None:
        registry = Registry.installed()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "policy.yaml"
            path.write_text(default_policy(without=["low-utilisation"]))
            self._loaded: LoadedPolicy = load_policy(path, registry)
        self._registry = registry

    def compare(self, world: World, seed: int = 0) -> Compared:
        """Play ``world`` with landings drawn by ``seed``; compare with the optimum."""
        objects = world.objects()
        instance = read(as_objects(objects))
        start = counted(instance, placement(as_objects(objects)))
        best = optimum(instance, start, seconds=_SECONDS)
        if best.status != "proven":
            raise RuntimeError(f"no proof within {_SECONDS:g} s: {best.status}")
        played = Loop(self._loaded, self._registry, seed).play(objects)
        end = instance.violations(counted(instance, placement(as_objects(played.end))))
        left = hard(end), soft(end)
        moves = len(played.moves)
        return Compared(_verdict(played, left, best, moves), moves, best, left, played)


def _verdict(played: Played, left: tuple[float, float], best: Optimum, moves: int) -> str:
    if not played.silent:
        return "never silent"
    if played.bound > moves:
        return "bound too high"
    if left[0] > best.hard + _TOLERANCE:
        return "leaves more"
    if left[0] > best.hard - _TOLERANCE and left[1] > best.soft + _TOLERANCE:
        return "leaves more"
    return "more moves" if moves > best.moves + _TOLERANCE else "as good"


def search(examples: int, seed: int, out: Path, say: Callable[[str], None]) -> int:
    """Compare so many random worlds; write what is not as good, made smaller, to ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    comparison, rng = Comparison(), random.Random(seed)
    counts: Counter[str] = Counter()
    moves = Counter[str]()
    for number in range(examples):
        world = draw(rng)
        if not world.apps:
            continue
        compared = comparison.compare(world)
        counts[compared.what] += 1
        moves.update(ours=compared.moves, optimum=round(compared.best.moves))
        if compared.what == "as good":
            continue
        least = shrink(comparison, world, compared.what)
        compared = comparison.compare(least)
        say(f"{number}: {compared.line()}\n    {least}")
        text = json.dumps(_record(least, compared), indent=1)
        (out / f"{compared.what.replace(' ', '-')}-{seed}-{number}.json").write_text(text + "\n")
    say(f"{sum(counts.values())} worlds: {dict(counts)}; moves {dict(moves)}")
    return 0


def shrink(comparison: Comparison, world: World, what: str) -> World:
    """Return a world in which nothing can be left out without the finding going away."""
    while True:
        for candidate in smaller(world):
            if candidate.apps and comparison.compare(candidate).what == what:
                world = candidate
                break
        else:
            return world


def _record(world: World, compared: Compared) -> dict[str, Any]:
    """Return a List that ``rebalancer run --snapshot`` reads, with what was found as an annotation."""
    return {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"annotations": {"finding": compared.line(), "world": repr(world)}},
        "items": world.objects(),
    }
