"""What is measured: commands in parts of minutes, and what is read of their outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from benchmarks.decisions.scenarios import OF_ANY_SHAPE, SCENARIOS
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
    command: str
    """After ``python -m``, with the names of ``values`` in braces; prints what ``read`` takes."""
    values: Mapping[str, Sequence[object]]
    """Name -> its values: each choice of them is a part; the last name changes fastest."""
    read: Callable[[Sequence[str]], list[Row]]
    loses: str
    """Where we lose."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the commands of all parts."""
        chosen = product(*self.values.values())
        return tuple(
            self.command.format(**dict(zip(self.values, one, strict=True))) for one in chosen
        )


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


_WRONG_END = re.compile(r"^\d+\t\(.*\t[^\t\n]+$", re.MULTILINE)
"""The line of a cluster with something in its last column."""


def _packing(outputs: Sequence[str]) -> list[Row]:
    sums: dict[str, list[int]] = {}
    wrong = sum(len(_WRONG_END.findall(text)) for text in outputs)
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
    ] + [
        Row(
            "plans of ours whose end has no place for each pod, by the ruler of the benchmark",
            str(wrong),
        )
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
    """Return the tables of a Markdown text, each under its heading."""
    lines = list[str]()
    for line in (line for text in outputs for line in text.splitlines()):
        if line.startswith("|"):
            lines.append(line)
        elif line.startswith("#"):
            lines += ["", f"**{line.lstrip('# ')}**", ""]
        elif lines and lines[-1].startswith("|"):
            lines.append("")
    return [Row("table", "\n".join(lines).strip())]


_Line = Mapping[str, Any]
"""One line of JSON."""


def _lines(outputs: Sequence[str]) -> list[_Line]:
    lines = (line for text in outputs for line in text.splitlines())
    return [json.loads(line) for line in lines if line.startswith("{")]


def _by_contender(outputs: Sequence[str]) -> dict[str, list[_Line]]:
    of: dict[str, list[_Line]] = {}
    for line in _lines(outputs):
        name: str = line["contender"]
        of.setdefault(_NAMES.get(name, name), []).append(line)
    return of


_NAMES = {
    "ours": "kube-rebalancer",
    "peer": "descheduler",
    "peer-soft": "descheduler with soft spread constraints",
    "peer, 20 %": "descheduler, HighNodeUtilization below 20 %",
    "peer, 50 %": "descheduler, HighNodeUtilization below 50 %",
}


def _median(values: Sequence[float], form: str = "g") -> str:
    return "{0:{3}} ({1:{3}} to {2:{3}})".format(*of_median(values), form)


def _openb(outputs: Sequence[str]) -> list[Row]:
    rows = list[Row]()
    for name, lines in _by_contender(outputs).items():
        if not rows:
            machines, price = (sum(one[key] for one in lines) for key in ("nodes", "price"))
            rows.append(
                Row(
                    "clusters",
                    f"{len(lines)} with {machines} machines of {price:.2f} for an hour;"
                    f" possible without new machines: {sum(one['possible'] for one in lines):.2f} less",
                )
            )
        shares = [one["saved"] / one["price"] for one in lines]
        sums = {key: sum(one[key] for one in lines) for key in ("freed", "evictions", "twice")}
        silent = sum(one["silent"] for one in lines)
        rows.append(
            Row(
                name,
                f"price saved, median: {_percent(of_median(shares))}; {sums['freed']} machines fewer,"
                f" {sums['evictions']} evictions, {sums['twice']} of pods that had come for others;"
                f" silent: {silent} of {len(lines)}",
            )
        )
    return rows


def _zones(outputs: Sequence[str]) -> list[Row]:
    rows = []
    for name, days in _by_contender(outputs).items():
        back = [seconds for day in days for seconds in day["back"]]
        sums = {key: sum(day[key] for day in days) for key in _OF_A_DAY}
        even = f"median {_median(back, '.0f')} s, worst {max(back):.0f} s" if back else "never"
        rows.append(
            Row(
                f"{name}: {len(days)} day{'s' * (len(days) > 1)}",
                f"a zone that is back until all is even: {even} ({len(back)} returns); {sums['evictions']} evictions,"
                f" {sums['closed']} of them in open zones while another one was closed; serving endpoints below minAvailable:"
                f" {sums['below']}; events after which the last run still evicted: {sums['loud']}; workloads left uneven: {sums['uneven']}",
            )
        )
    return rows


_OF_A_DAY = ("evictions", "closed", "below", "loud", "uneven")


def _decisions(outputs: Sequence[str]) -> list[Row]:
    """Read what `benchmarks.decisions.tables.as_line` writes, a line for each cluster."""
    clusters = _lines(outputs)
    proven = [one for one in clusters if one["proven"]]
    return [
        Row("clusters", f"{len(clusters)}, the optimum is proven on {len(proven)}"),
        Row(
            "optimum: rules left", "hard {hard:g}, soft {soft:g}".format(**_sum(clusters, _optimum))
        ),
        *(
            row
            for key in clusters[0]["contenders"]
            for row in _of_contender(clusters, key, _NAMES[key])
        ),
    ]


def _of_contender(clusters: Sequence[_Line], key: str, name: str) -> Iterator[Row]:
    ends = [one["contenders"][key] for one in clusters]
    total = _sum(clusters, lambda one: one["contenders"][key])
    count, evictions = len(ends), total["evictions"] + total["after_silence"]
    twice = of_share(int(total["twice"]), max(1, int(evictions)))
    # A cluster of which nothing need move has no ratio.
    ratios = [
        (end["evictions"] + end["after_silence"]) / one["optimum"]["moves"]
        for one, end in zip(clusters, ends, strict=True)
        if one["optimum"]["moves"]
    ]
    yield Row(f"{name}: evictions by the optimum's, median", _ratio(ratios))
    yield Row(
        f"{name}: evictions, and rules left",
        f"{evictions:g}, hard {total['hard']:g}, soft {total['soft']:g}",
    )
    yield Row(f"{name}: of its evictions, pods moved twice", _percent(twice))
    silent = sum(end["silent"] and not end["after_silence"] for end in ends)
    yield Row(f"{name}: falls silent, and stays so", _percent(of_share(silent, count)))
    yield Row(f"{name}: budgets broken", f"{total['breaches']:g}")


def _optimum(one: _Line) -> Mapping[str, float]:
    of: Mapping[str, float] = one["optimum"]
    return of


def _sum(clusters: Sequence[_Line], of: Callable[[_Line], Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in clusters:
        for key, value in of(one).items():
            total[key] = total.get(key, 0) + value
    return total


def _steps(first: int, step: int, number: int) -> Sequence[int]:
    return range(first, first + step * number, step)


_DRIFTS = "benchmarks.decisions run --nodes 18 --contenders {contenders} --scenarios {scenario} --seeds {seed} --out .cache/evidence"
EXPERIMENTS = (
    Experiment(
        "decisions",
        "Decisions",
        "100 drifts on a real control plane: ten runs of the descheduler by its chart's default policy, which looks at hard spread"
        " constraints only; kube-rebalancer; the proven optimum",
        f"{_DRIFTS}/decisions",
        {"contenders": ("peer,ours",), "seed": range(10), "scenario": tuple(SCENARIOS)},
        _decisions,
        "full clusters: 1.36 of the optimum's evictions in the median where nodes are nearly full, 1.90 at worst. In two drifts it leaves more"
        " than the descheduler (scale-down 2, drained-return 6). cpu and memory end less even than the descheduler's in half of the clusters"
        " ([limits](limits.md#beside-the-descheduler)). Ours has the memory that the chart gives it, with ten minutes between two runs; later"
        " cool-downs may hide a move when it is silent",
    ),
    Experiment(
        "soft-spread",
        "Decisions",
        "30 of these drifts, played anew in the order below, with a descheduler that looks at soft spread constraints, too (one option of its policy)",
        f"{_DRIFTS}/soft-spread",
        {"contenders": ("peer,peer-soft,ours",), "seed": range(3), "scenario": tuple(SCENARIOS)},
        _decisions,
        "as above. The option makes the descheduler leave fewer soft rules unmet, and never fall silent",
    ),
    Experiment(
        "recorded",
        "Decisions",
        "the same on nodes and workloads of recorded clusters, which TRACES holds (`benchmarks/decisions/RECORDED.md` names its files)",
        f"{_DRIFTS}/recorded --recorded $TRACES",
        {"contenders": ("peer,ours",), "seed": range(4), "scenario": OF_ANY_SHAPE},
        _decisions,
        "pods of 8 processors are too large a part of a node for an even balance ([RECORDED.md](../benchmarks/decisions/RECORDED.md)). A run"
        " without a move counts as silent, also where the hour's budget is spent: in five drifts it went on ten minutes later",
    ),
    Experiment(
        "room",
        "Room for pods that wait",
        "random clusters, beside an integer programme that may choose every landing",
        "benchmarks.room --clusters 10 --seed {seed}",
        {"seed": _steps(93000, 10, 10)},
        _room,
        "plans of seven and more evictions, and pods that would have to change places",
    ),
    Experiment(
        "cp-sat",
        "Room for pods that wait",
        "beside OR-Tools CP-SAT with 1 and 10 s, on clusters of the shape of arXiv 2511.08373 (its own generator was not at hand)",
        "benchmarks.room.packing --clusters 10 --seed {seed}",
        {"seed": _steps(5000, 100, 4)},
        _packing,
        "CP-SAT binds pods itself, moves the only pod of a workload, and packs a full cluster anew: it lets more in. Also with what is kept"
        " it lets pods change places; seen by hand on seeds 5004, 5005 and 5009 only",
    ),
    Experiment(
        "consolidation",
        "Consolidation",
        "random clusters, beside the proven optimum",
        "benchmarks.consolidation --clusters 5 --first {first}",
        {"first": _steps(0, 5, 8)},
        _consolidation,
        "clusters of few machines: of 9 nodes that could be empty it emptied 7 (seed 36), of 22 it emptied 19 (seed 20)",
    ),
    Experiment(
        "openb",
        "Consolidation",
        "openb traces (in TRACES): Karpenter itself orders machines of its sizes for its pods; those leave that ended early."
        " From that state: Karpenter 1.15, kube-rebalancer, the descheduler's HighNodeUtilization, real control plane",
        "benchmarks.consolidation.openb --traces $TRACES --seeds {seed}",
        {"seed": range(6)},
        _openb,
        "Karpenter also replaces a machine by a cheaper one, and saves more, for more evictions; kube-rebalancer's `careful` leaves machines"
        " whose price is not worth their pods' moves",
    ),
    Experiment(
        "capacity",
        "Machines that are bought",
        "processors of new machines, beside an integer programme",
        "benchmarks.capacity --clusters 100",
        {},
        _capacity,
        "groups that differ in size: 1.429 at worst, for the expander compares whole groups",
    ),
    Experiment(
        "zones",
        "Zones",
        "days on a real control plane on which zones close, are lost and return at any moment; a watch of pods and EndpointSlices counts"
        " what serves",
        "benchmarks.zones --days 1 --seed {seed}",
        {"seed": range(1, 11)},
        _zones,
        "a descheduler that looks at soft constraints (they are all that these workloads have) is even sooner, with 187 evictions to 68 on the"
        " same five days; by its default policy it leaves them alone. In one event ours still evicted in the last run. Default budgets spread"
        " the moves over more runs. A CronJob's runs are two minutes apart; here the next run begins at once",
    ),
    Experiment(
        "cost",
        "Cost",
        "a dry run at 1,000 nodes and 30,000 pods: time, memory, requests. `peer`: the descheduler, which runs with an account that may not"
        " evict, so that each eviction that it tries is refused; `peer-fit`: with its `nodeFit`; `drain`: a process that only reads the lists."
        " Ratios are medians of those of each round. A pod that two plug-ins try counts for both in brackets, and once before them",
        "benchmarks.scale 3:30 1000:30000 --rounds 3",
        {},
        _table,
        "the first start: an interpreter and its packages are read, which a compiled program does not do",
    ),
)
