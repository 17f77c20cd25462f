"""The same contender again and again from the same start: how much does a live run differ from itself?

Among equally good nodes the scheduler chooses by chance. However good a model of it, no game it plays ends as the
cluster did more often than another live run from the same start does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.decisions.checkpoint import Checkpoint
from benchmarks.decisions.contenders import Ours
from benchmarks.decisions.convergence import converge, observe, settle
from benchmarks.decisions.duel import MOST_RUNS, commit
from benchmarks.decisions.instance import counted
from benchmarks.decisions.reading import placement, read
from benchmarks.decisions.tables import left
from tests.controlplane import ControlPlane

Result = Mapping[str, Any]


def repeat(
    plane: ControlPlane,
    result: Result,
    kept: Path,
    contenders: Sequence[str],
    times: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Return ``result`` with ``times`` more convergences (``repeats``) of each of ``contenders``.

    ``kept`` holds the state of the cluster, as `benchmarks.decisions.duel.play` left it.

    Raises:
        RuntimeError: the state kept is not of the cluster that was played.
    """
    checkpoint = Checkpoint(plane, kept / "etcd")
    repeats: dict[str, list[dict[str, Any]]] = {
        name: list(ends) for name, ends in result.get("repeats", {}).items()
    }
    with tempfile.TemporaryDirectory(prefix="decisions-") as scratch:
        for name in contenders:
            for _ in range(times):
                checkpoint.restore()
                settle(plane, result["pods"])
                objects = observe(plane)
                instance = read(objects)
                start = instance.violations(counted(instance, placement(objects)))
                if start != result["start"]["violations"]:
                    raise RuntimeError(f"{kept}: the state is not of the cluster that was played")
                ours = Ours(Path(scratch), lifted=name == "lifted")
                done, _ = converge(
                    plane, ours, instance, pods=result["pods"], most=MOST_RUNS, after=0
                )
                last = done.runs[-1]
                end = {
                    "evictions": done.until_silence,
                    "first_silent": done.first_silent,
                    "runs": [
                        {
                            "violations": last.violations,
                            "cpu_deviation": last.cpu_deviation,
                            "memory_deviation": last.memory_deviation,
                        }
                    ],
                    "commit": commit(),
                }
                repeats.setdefault(name, []).append(end)
                say(
                    f"{kept.name} {name}: {end['evictions']} evictions, left {left(last.violations)}"
                )
    return {**result, "repeats": repeats}
