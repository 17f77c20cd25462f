"""After the first silent run: does anything ever start again? With memory, without it, and unbudgeted.

A plan that a cool-down hides comes out as soon as the memory is lost, so silence is only believed where it
outlasts the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.decisions.contenders import Contender, Ours
from benchmarks.decisions.convergence import converge, observe, settle
from benchmarks.decisions.reading import read
from benchmarks.decisions.tables import table
from rebalancer.run.memory.document import Document, decode, encode
from tests.controlplane import ControlPlane

MEMORY = "default/rebalancer-memory"
_MOST_RUNS = 25
_DAY = 86_400


@dataclass(frozen=True)
class Phase:
    """Runs under one condition, after silence."""

    name: str
    evictions: tuple[int, ...]
    """Of each run."""


@dataclass(frozen=True)
class Silence:
    """One cluster, brought to rest and then run again and again."""

    name: str
    until: tuple[int, ...]
    """Evictions of each run until the first silent one, which is the last."""
    remembered: int
    """Owners in the memory at that moment."""
    phases: tuple[Phase, ...]

    @property
    def started_again(self) -> int:
        """Evictions after the first silent run."""
        return sum(sum(phase.evictions) for phase in self.phases)


def outlast(plane: ControlPlane, name: str, folder: Path, runs: int, **how: Any) -> Silence:
    """Run with a memory until a run is silent, then ``runs`` times under each condition.

    ``folder`` takes the policy. The cluster is used as it is. ``how``: see :class:`Ours`.

    Raises:
        RuntimeError: no run was silent.
    """
    objects = observe(plane)
    pods, instance = len(objects.pods), read(objects)
    write_memory(plane, Document())

    def played(contender: Contender, most: int, *, to_the_end: bool = True) -> tuple[int, ...]:
        settle(plane, pods)
        done, _ = converge(
            plane, contender, instance, pods=pods, most=most, after=0, to_the_end=to_the_end
        )
        return tuple(run.evictions for run in done.runs)

    remembering = Ours(folder, memory=MEMORY, **how)
    until = played(remembering, _MOST_RUNS, to_the_end=False)
    if until[-1]:
        raise RuntimeError(f"{name}: not silent after {len(until)} runs: {until}")
    remembered = len(read_memory(plane).owners)
    phases = [Phase("memory kept", played(remembering, runs))]
    write_memory(plane, aged(read_memory(plane), _DAY))
    phases.append(Phase("cool-downs expired", played(remembering, runs)))
    write_memory(plane, Document())
    phases.append(Phase("memory emptied", played(remembering, runs)))
    phases.append(
        Phase("no memory, budgets lifted", played(Ours(folder, lifted=True, **how), runs))
    )
    return Silence(name, until, remembered, tuple(phases))


def aged(document: Document, seconds: int) -> Document:
    """Return the document as it would be so many seconds later, were the clock left alone."""
    owners = {
        ref: msgspec.structs.replace(
            owner,
            seen=owner.seen - seconds,
            terms={
                name: msgspec.structs.replace(
                    term, until=max(0, term.until - seconds), last=term.last - seconds
                )
                for name, term in owner.terms.items()
            },
        )
        for ref, owner in document.owners.items()
    }
    evictions = tuple((minute - seconds // 60, count) for minute, count in document.evictions)
    return msgspec.structs.replace(document, owners=owners, evictions=evictions)


def _path() -> str:
    namespace, _, name = MEMORY.partition("/")
    return f"/api/v1/namespaces/{namespace}/configmaps/{name}"


def read_memory(plane: ControlPlane) -> Document:
    """Return the memory of the runs so far."""
    document, warning = decode(plane.api.get(_path())["data"])
    if warning is not None:
        raise RuntimeError(warning)
    return document


def write_memory(plane: ControlPlane, document: Document) -> None:
    """Let the next run remember exactly this."""
    namespace, _, name = MEMORY.partition("/")
    plane.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": namespace},
                "data": encode(document),
            }
        ]
    )


def markdown(silences: Sequence[Silence]) -> str:
    """Return the figures as a table."""
    conditions = [phase.name for phase in silences[0].phases] if silences else []
    head = ("cluster", "evictions until silent", "owners remembered", *conditions)
    return table(head, (_row(one) for one in silences))


def _row(one: Silence) -> tuple[str, ...]:
    each = " ".join(map(str, one.until))
    cells = [
        f"{sum(phase.evictions)} in {len(phase.evictions)} runs"
        + (f" ({' '.join(map(str, phase.evictions))})" if any(phase.evictions) else "")
        for phase in one.phases
    ]
    return (one.name, f"{sum(one.until)} ({each})", str(one.remembered), *cells)
