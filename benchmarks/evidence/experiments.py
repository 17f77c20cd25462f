"""What is measured: commands in parts of minutes, and what is read of their outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.evidence.intervals import of_median, of_share


@dataclass(frozen=True)
class Row:
    """One number of the page."""

    what: str
    number: str


@dataclass(frozen=True)
class Experiment:
    """One question, and how it is answered."""

    name: str
    section: str
    question: str
    parts: tuple[str, ...]
    """Commands after ``python -m``; each prints what ``read`` takes. None: there is no program for it yet."""
    read: Callable[[Sequence[str]], list[Row]] | None
    loses: str
    """Where we lose."""


def _percent(of: tuple[float, float, float]) -> str:
    return "{:.1%} ({:.1%} to {:.1%})".format(*of)


def _ratio(values: Sequence[float]) -> str:
    return "{:.3f} ({:.3f} to {:.3f})".format(*of_median(values)) + f", worst {max(values):.3f}"


_ROOM = re.compile(
    r"clusters (\d+),.*?let in as the optimum: (\d+) .*?pods (\d+) of (\d+)\n"
    r"evictions where as many: (\d+) of (\d+)",
    re.DOTALL,
)


def _room(outputs: Sequence[str]) -> list[Row]:
    found = [tuple(map(int, match.groups())) for text in outputs for match in _ROOM.finditer(text)]
    clusters, same, pods, possible, evictions, fewest = map(sum, zip(*found, strict=True))
    return [
        Row("clusters", str(clusters)),
        Row("as many let in as the proven optimum", _percent(of_share(same, clusters))),
        Row("pods let in, of those that can be", f"{pods} of {possible}"),
        Row(
            "evictions beside the fewest, where as many are let in",
            f"{evictions} of {fewest} ({evictions / max(1, fewest):.3f})",
        ),
    ]


_NODES = re.compile(r"^\| \d+ \|(.*)\|$", re.MULTILINE)


def _consolidation(outputs: Sequence[str]) -> list[Row]:
    rows = [
        [cell.strip() for cell in match[1].split("|")]
        for text in outputs
        for match in _NODES.finditer(text)
    ]
    # Of nodes that had pods at first: those without a pod at the end, and those that could be.
    empty, emptied, possible, evictions = (
        [int(row[column]) for row in rows] for column in (2, 3, 4, 6)
    )
    shares = [most / max(1, done) for done, most in zip(emptied, possible, strict=True)]
    freed = sum(emptied) - sum(empty)
    return [
        Row("clusters", str(len(rows))),
        Row("nodes that could be empty, by each that is: median", _ratio(shares)),
        Row("nodes without pods, of those that can be", f"{sum(emptied)} of {sum(possible)}"),
        Row("evictions for each node freed", f"{sum(evictions) / max(1, freed):.2f}"),
        Row("falls silent", f"{sum(row[9] == 'yes' for row in rows)} of {len(rows)}"),
    ]


_BESIDE = re.compile(
    r"^beside (.+), clusters (\d+): the same (\d+), better (\d+); pods (\d+) of (\d+);"
    r" evictions where the same (\d+) of (\d+)$",
    re.MULTILINE,
)


def _packing(outputs: Sequence[str]) -> list[Row]:
    sums: dict[str, list[int]] = {}
    for text in outputs:
        for beside, *numbers in _BESIDE.findall(text):
            kept = sums.setdefault(beside, [0] * len(numbers))
            sums[beside] = [a + int(b) for a, b in zip(kept, numbers, strict=True)]
    return [
        Row(
            f"beside {beside}",
            f"of {clusters} clusters as many let in: {_percent(of_share(same, clusters))}, more: {better};"
            f" pods {pods} of {theirs}; evictions where as many {evictions} of {fewest}",
        )
        for beside, (clusters, same, better, pods, theirs, evictions, fewest) in sums.items()
    ]


_BOUGHT = re.compile(r"^\d+\t\d+\t\d+\t([\d.]+)\t", re.MULTILINE)


def _capacity(outputs: Sequence[str]) -> list[Row]:
    ratios = [float(match[1]) for text in outputs for match in _BOUGHT.finditer(text)]
    optimal = sum(ratio < 1.0005 for ratio in ratios)
    return [
        Row("clusters", str(len(ratios))),
        Row("processors bought, of the optimum: median", _ratio(ratios)),
        Row("optimal", _percent(of_share(optimal, len(ratios)))),
    ]


def _table(outputs: Sequence[str]) -> list[Row]:
    lines = [line for text in outputs for line in text.splitlines() if line.startswith("|")]
    return [Row("table", "\n".join(lines))]


_DRIFTS = ".cache/evidence/decisions"
EXPERIMENTS = (
    Experiment(
        "decisions",
        "Decisions",
        "100 drifts on a real control plane: descheduler, kube-rebalancer, proven optimum",
        (
            *(
                f"benchmarks.decisions run --nodes 18 --seeds {seed} --out {_DRIFTS}"
                for seed in range(10)
            ),
            f"benchmarks.decisions table --no-times --out {_DRIFTS}",
        ),
        _table,
        "heavy drifts: on 20 nodes it left 17 soft violations to the descheduler's 8, with 154 evictions to 528; cpu and memory end"
        " less even than the descheduler's in half of the clusters ([limits](limits.md#beside-the-descheduler))",
    ),
    Experiment(
        "recorded",
        "Decisions",
        "the same on nodes and workloads of recorded clusters",
        (),
        None,
        "not known",
    ),
    Experiment(
        "room",
        "Room for pods that wait",
        "random clusters, beside an integer programme that may choose every landing",
        tuple(f"benchmarks.room --clusters 10 --seed {93000 + 10 * n}" for n in range(10)),
        _room,
        "plans of seven and more evictions, and pods that would have to change places",
    ),
    Experiment(
        "cp-sat",
        "Room for pods that wait",
        "beside OR-Tools CP-SAT with 1 and 10 s, on clusters of the shape of arXiv 2511.08373 (its own generator was not at hand)",
        tuple(f"benchmarks.room.packing --clusters 10 --seed {5000 + 100 * n}" for n in range(4)),
        _packing,
        "CP-SAT binds pods itself, moves the only pod of a workload, and packs a full cluster anew: it lets more in",
    ),
    Experiment(
        "consolidation",
        "Consolidation",
        "random clusters, beside the proven optimum",
        tuple(f"benchmarks.consolidation --clusters 5 --first {5 * n}" for n in range(8)),
        _consolidation,
        "clusters of few machines: of 9 nodes that could be empty it emptied 7 (seed 36), of 22 it emptied 19 (seed 20)",
    ),
    Experiment(
        "openb",
        "Consolidation",
        "openb traces, beside Karpenter's core and the descheduler: nodes, evictions, money",
        (),
        None,
        "not known",
    ),
    Experiment(
        "capacity",
        "Machines that are bought",
        "processors of new machines, beside an integer programme",
        ("benchmarks.capacity --clusters 100",),
        _capacity,
        "groups that differ in size: 1.429 at worst, for the expander compares whole groups",
    ),
    Experiment(
        "zones",
        "Zones",
        "a zone is lost, closed and comes back: time to 1/1/1, serving endpoints",
        (),
        None,
        "not known",
    ),
    Experiment(
        "cost",
        "Cost",
        "plan and run beside the descheduler at 1,000 nodes and 30,000 pods: time, memory, requests",
        ("benchmarks.scale 3:30 1000:30000 --rounds 3",),
        _table,
        "the first start: an interpreter and its packages are read, which a compiled program does not do",
    ),
)
