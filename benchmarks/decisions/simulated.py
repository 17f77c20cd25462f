"""``rebalancer simulate`` beside the live runs: does the offline game end where the cluster ended?

Both begin with the same cluster: the snapshot file that was taken of it just before the first run. Where a
replacement lands among equally good nodes is a matter of chance, in the simulation as on the cluster, so one
live run is one draw. It is compared with the most probable course and with many drawn ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from itertools import combinations, product
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.decisions.contenders import default_policy
from benchmarks.decisions.instance import Instance, counted
from benchmarks.decisions.reading import Objects, placement, read
from benchmarks.decisions.rules import HARD, Ints
from benchmarks.decisions.tables import left, table
from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ExitCode
from rebalancer.commands.simulate import SimulateOptions, simulate
from rebalancer.whatif.cycles import Conditions
from rebalancer.whatif.edits import read_objects
from rebalancer.whatif.world import Span

CYCLES = 25
"""As many as the live runs may make."""
_WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet")


PACES = (
    Conditions(ready_after=Span(0.4, 1.0), gone_after=Span(1.0, 1.2), apart=Span(0.05, 0.2)),
    Conditions(ready_after=Span(0.4, 0.4), gone_after=Span(1.0, 1.0), apart=Span(0.08, 0.08)),
)
"""How fast pods start, end and are evicted. Of the control plane of the tests, beside other work as measured on it, and on a quiet machine: pods are started
after 0.3 s, and gone after the grace period or 1 s. A live run has one or the other, or something between."""


@dataclass(frozen=True)
class End:
    """Where a convergence ended, by the ruler of this benchmark."""

    evictions: int
    silent: bool
    violations: dict[str, float]
    deviations: tuple[float, float]
    """Standard deviation over nodes of requested cpu and memory, as shares."""


@dataclass(frozen=True)
class Compared:
    """One live convergence beside its simulations."""

    scenario: str
    seed: int
    contender: str
    commit: str
    live: End
    probable: End
    """Every replacement on its most probable node."""
    drawn: tuple[End, ...]
    """Every replacement drawn from its distribution; one per seed."""
    repeated: tuple[End, ...] = ()
    """Where other live convergences from the same start ended."""

    @property
    def equal(self) -> bool:
        """Whether the most probable course leaves exactly as much of every rule."""
        return self.live.violations == self.probable.violations

    @property
    def drawn_so(self) -> bool:
        """Whether some drawn course leaves exactly as much of every rule."""
        return any(self.live.violations == end.violations for end in (self.probable, *self.drawn))

    @property
    def all_lives(self) -> tuple[End, ...]:
        """All live ends, of the same start."""
        return (self.live, *self.repeated)

    @property
    def ends(self) -> tuple[End, ...]:
        """All ends, the live one first."""
        return (self.live, self.probable, *self.drawn)

    @property
    def within(self) -> bool:
        """Whether every rule is left as much as the drawn courses leave it, least to most."""
        ends = self.ends[1:]
        return all(
            min(end.violations[kind] for end in ends)
            <= number
            <= max(end.violations[kind] for end in ends)
            for kind, number in self.live.violations.items()
        )


class Start:
    """The cluster of a scenario before the first run, read from its snapshot file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        decoded = read_objects(path.read_bytes())
        objects = Objects(
            nodes=decoded.of_kind("Node"),
            pods=decoded.of_kind("Pod"),
            workloads=decoded.of_kind(*_WORKLOADS),
            budgets=decoded.of_kind("PodDisruptionBudget"),
            namespaces=decoded.of_kind("Namespace"),
        )
        self.instance: Instance = read(objects)
        self._counts = counted(self.instance, placement(objects))

    @property
    def violations(self) -> dict[str, float]:
        """Return what is left to do at the start."""
        return self.instance.violations(self._counts)

    def simulate(self, policy: Path, pace: Conditions, *, lifted: bool, seed: int | None) -> End:
        """Play ``rebalancer simulate`` on the file; return where it ends.

        In this process: of hundreds of courses most of the time would go into starting Python.
        """
        out, err = StringIO(), StringIO()
        options = SimulateOptions.of(
            snapshot_path=str(self._path),
            policy_path=str(policy),
            cycles=CYCLES,
            no_memory=True,
            lift_budgets=lifted,
            seed=seed,
            output="json",
        )
        code = simulate(options, Environment(SystemClock(), {}, out, err), BytesIO(), pace)
        if code is not ExitCode.DONE:
            raise RuntimeError(f"simulate: exit code {code}: {err.getvalue()[-2000:]}")
        return self.end(json.loads(out.getvalue()))

    def end(self, course: Mapping[str, Any]) -> End:
        """Return where a simulation (its JSON) ends, by our own ruler."""
        counts, homeless = self._after(course)
        violations = self.instance.violations(counts)
        violations["placement"] += homeless
        return End(
            evictions=course["evictions"],
            silent=course["silent"] is not None,
            violations=violations,
            deviations=self.instance.deviations(counts),
        )

    def _after(self, course: Mapping[str, Any]) -> tuple[Ints, int]:
        rows = {workload.ref: row for row, workload in enumerate(self.instance.workloads)}
        columns = {name: column for column, name in enumerate(self.instance.nodes)}
        counts, homeless = self._counts.copy(), 0
        for cycle in course["cycles"]:
            for move in cycle["moves"]:
                if move["outcome"] != "evicted":
                    continue
                counts[rows[move["owner"]], columns[move["from"]]] -= 1
                if move["landed"] is None:
                    homeless += 1
                else:
                    counts[rows[move["owner"]], columns[move["landed"]]] += 1
        pending = course["cycles"][-1]["pending"]
        if pending != homeless:
            raise RuntimeError(
                f"{self._path}: {pending} pods wait at the end, {homeless} by the moves"
            )
        return counts, homeless


def compare(out: Path, draws: int, policy: Path, say: Callable[[str], None]) -> Iterator[Compared]:
    """Yield a comparison for every live convergence of ours that is kept in ``out``.

    ``policy`` is where the policy of the live runs is written to. Whether they are of the working tree is
    for the reader to see: each comparison names the commit of its live runs.
    """
    policy.write_text(default_policy())
    for path in sorted(out.glob("*.json")):
        result = json.loads(path.read_text())
        start = Start(out / path.stem / "start.zip")
        if start.violations != result["start"]["violations"]:
            raise RuntimeError(
                f"{path.stem}: the snapshot file is not of the cluster that was played"
            )
        for name, done in result["contenders"].items():
            if "peer" in name:
                continue
            ends = [
                start.simulate(policy, pace, lifted=name == "lifted", seed=seed)
                for pace, seed in [(PACES[0], None), *product(PACES, range(draws))]
            ]
            compared = Compared(
                scenario=result["plan"]["scenario"],
                seed=result["plan"]["seed"],
                contender=name,
                commit=str(done.get("commit", "unknown")),
                live=live_end(done),
                probable=ends[0],
                drawn=tuple(ends[1:]),
                repeated=tuple(map(live_end, result.get("repeats", {}).get(name, ()))),
            )
            say(f"{path.stem} {name}: equal {compared.equal}, within {compared.within}")
            yield compared


def live_end(done: Mapping[str, Any]) -> End:
    """Return where a live convergence ended."""
    last = done["runs"][-1]
    return End(
        evictions=done["evictions"],
        silent=done["first_silent"] is not None,
        violations=last["violations"],
        deviations=(last["cpu_deviation"], last["memory_deviation"]),
    )


def markdown(all_of: Sequence[Compared]) -> str:
    """Return the comparisons as a table, and their sums."""
    head = (
        "scenario, seed",
        "contender",
        "evictions: live",
        "probable, drawn",
        "left: live",
        "probable",
        "drawn",
        "sd cpu: live",
        "probable, drawn",
        "same",
    )
    commits = ", ".join(sorted({one.commit for one in all_of}))
    most = max((len(one.drawn) for one in all_of), default=0)
    return "\n\n".join(
        [
            f"{len(all_of)} live convergences at commit {commits}; {most} drawn courses each.",
            table(head, (_row(one) for one in all_of)),
            "\n".join([*_sums(all_of), *_likeness(all_of)]),
        ]
    )


def _row(one: Compared) -> tuple[str, ...]:
    drawn = one.drawn or (one.probable,)
    least_cpu, most_cpu = _span([end.deviations[0] for end in drawn])
    least, most = _span([end.evictions for end in drawn])
    low = {kind: min(end.violations[kind] for end in drawn) for kind in one.live.violations}
    high = {kind: max(end.violations[kind] for end in drawn) for kind in one.live.violations}
    return (
        f"{one.scenario}, {one.seed}",
        one.contender,
        str(one.live.evictions),
        f"{one.probable.evictions}, {least} to {most}",
        left(one.live.violations),
        left(one.probable.violations),
        f"{left(low)} to {left(high)}",
        f"{one.live.deviations[0]:.3f}",
        f"{one.probable.deviations[0]:.3f}, {least_cpu:.3f} to {most_cpu:.3f}",
        "equal" if one.equal else "drawn so" if one.drawn_so else "within" if one.within else "no",
    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _sums(all_of: Sequence[Compared]) -> Iterator[str]:
    tests: tuple[tuple[str, Callable[[Compared], bool]], ...] = (
        ("every rule left exactly as much as on the most probable course", lambda c: c.equal),
        ("every hard rule left exactly as much as on the most probable course", _hard_equal),
        ("every rule left exactly as much as on some course", lambda c: c.drawn_so),
        ("every rule left as much as the courses leave, least to most", lambda c: c.within),
        ("live and all courses fall silent", lambda c: all(end.silent for end in c.ends)),
    )
    for text, holds in tests:
        good = sum(holds(one) for one in all_of)
        yield f"- {text}: {good} of {len(all_of)} ({good / max(1, len(all_of)):.0%})"


def _likeness(all_of: Sequence[Compared]) -> Iterator[str]:
    """How often two ends leave exactly as much of every rule: live ones, drawn ones, and one of each.

    If the model were perfect, the three would differ by chance only.
    """
    known = [one for one in all_of if one.repeated]
    if not known:
        return
    shares = (
        ("two live ends", [_share(combinations(one.all_lives, 2)) for one in known]),
        ("a live and a drawn end", [_share(product(one.all_lives, one.drawn)) for one in known]),
        ("two drawn ends", [_share(combinations(one.drawn, 2)) for one in known]),
    )
    for text, share in shares:
        yield (
            f"- {text} of the same start leave exactly as much of every rule: {mean(share):.0%} of the pairs, "
            f"on the mean of {len(share)} convergences with {len(known[0].repeated) + 1} live ends each"
        )


def _share(pairs: Iterable[tuple[End, End]]) -> float:
    alike = [one.violations == other.violations for one, other in pairs]
    return sum(alike) / max(1, len(alike))


def _hard_equal(one: Compared) -> bool:
    of = one.live.violations, one.probable.violations
    return all(of[0][kind] == of[1][kind] for kind in HARD)
