"""The contract of a strategy, as one function that plug-in authors call in their tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from rebalancer.cost.strategy import Strategy
from rebalancer.cost.streaks import Streaks
from rebalancer.cost.term import Candidates, Described, Gauge, Term, complete
from rebalancer.cost.view import View
from rebalancer.plan.plan import Cause
from rebalancer.policy.protect import Protect
from rebalancer.policy.values import Params
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope, protect
from rebalancer.snapshot.state import ClusterState
from rebalancer.testing.snapshots import apart, node, snapshot_of, spread, with_usage, workload

_PlugIn = TypeVar("_PlugIn")
_TOLERANCE = 1e-6


class ContractError(AssertionError):
    """A strategy violates its contract; the message names the part, and the snapshot and term."""


def view_of(snapshot: Snapshot) -> View:
    """Return the view of ``snapshot`` that a strategy gets, with default protections and scheduler."""
    return View(
        snapshot,
        ClusterState(snapshot),
        SchedulerModel(snapshot, SchedulerProfile.for_version(snapshot.version)),
        protect(snapshot, Protect(), Scope()) == 0,
    )


def sample_snapshots() -> list[Snapshot]:
    """Return the snapshots on which the contract is checked by default."""
    nodes = [node(f"n{i}", f"zone-{'abc'[i % 3]}") for i in range(6)]
    drifted = [
        *nodes,
        *workload("even", ["n0", "n1", "n2"], spec=spread("even")),
        *workload("skewed", ["n0", "n0", "n3", "n1"], spec=spread("skewed", hard=True)),
        *workload("near", ["n1", "n1", "n4"], spec=apart("near", weight=70)),
        *workload("big", ["n0", "n0"], cpu="1"),
        *workload("set", ["n2", "n2"], kind="StatefulSet"),
    ]
    small = [snapshot_of([]), snapshot_of(nodes[:1]), snapshot_of(nodes), snapshot_of(drifted)]
    return [*small, with_usage(small[-1], {"even": (3000, 2**33)}, unknown=["n4"])]


def check_strategy(
    strategy: Strategy, params: Params | None = None, snapshots: Sequence[Snapshot] = ()
) -> None:
    """Check ``strategy`` on ``snapshots`` (by default samples), in a first run and after many runs.

    Raises:
        ContractError: the strategy violates the contract.
    """
    _require(bool((type(strategy).__doc__ or "").strip()), "its class has no docstring")
    chosen = strategy.Params() if params is None else params
    strategy = _complete(strategy, Strategy)
    _require(isinstance(strategy.needs_usage(chosen), bool), "needs_usage returns no bool")
    for number, snapshot in enumerate(snapshots or sample_snapshots()):
        for first, second in zip(_views(snapshot), _views(snapshot), strict=True):
            terms, again = strategy.terms(first, chosen), strategy.terms(second, chosen)
            _require(len(terms) == len(again), f"snapshot {number}: not deterministic")
            for one, other in zip(terms, again, strict=True):
                term, twin = _complete(one, Term), _complete(other, Term)
                where = f"snapshot {number}, term of {term.entry.name}"
                _check_term(first, term, twin, where)
                _check_extras(first, term, twin, where)


def _complete(plug_in: _PlugIn, base: type[Any]) -> _PlugIn:
    try:
        return complete(plug_in, base)
    except TypeError as error:
        raise ContractError(str(error)) from error


def _views(snapshot: Snapshot) -> Iterator[View]:
    """Yield two views: without memory, as in a first run; and with streaks of a thousand runs on all nodes."""
    runs = dict.fromkeys(snapshot.nodes.names, 1000)
    for streaks in (None, Streaks(), Streaks(1.0, runs)):
        yield replace(view_of(snapshot), streaks=streaks)


def _check_term(view: View, term: Term, twin: Term, where: str) -> None:
    _require(term.potential() >= 0, f"{where}: negative potential")
    _require(term.potential() == twin.potential(), f"{where}: not deterministic")
    rows = term.candidates()
    _check_rows(rows, twin.candidates(), where)
    if term.potential() == 0:
        _require(len(rows.cls) == 0, f"{where}: candidates although the potential is 0")
    gains: dict[tuple[int, int], float] = {}
    for pair, gain in zip(
        zip(rows.cls.tolist(), rows.node.tolist(), strict=True), rows.gain.tolist(), strict=True
    ):
        gains[pair] = gains.get(pair, 0.0) + gain
    for pair, gain in gains.items():
        _check_candidate(view, term, (*pair, gain), where)


def _check_rows(rows: Candidates, same: Candidates, where: str) -> None:
    for column, other in ((rows.cls, same.cls), (rows.node, same.node), (rows.gain, same.gain)):
        _require(np.array_equal(column, other), f"{where}: candidates are not deterministic")
    _require(bool((rows.gain > 0).all()), f"{where}: a candidate that gains nothing")
    _require(
        len(rows.cls) == len(rows.node) == len(rows.gain), f"{where}: columns differ in length"
    )


def _check_extras(view: View, term: Term, twin: Term, where: str) -> None:
    _check_concerns(view, term, where)
    _check_streaks(view, term, twin, where)
    lines = all(note.strip() and "\n" not in note for note in term.notes())
    _require(lines, f"{where}: a note is not one line")
    _check_groups(view, term, where)
    _check_gauges(view, term, twin, where)


def _check_concerns(view: View, term: Term, where: str) -> None:
    everywhere = np.arange(len(view.snapshot.nodes), dtype=np.int32)
    for cls, of in enumerate(view.snapshot.classes):
        if term.concerns(cls, of.replacement):
            continue
        for source in view.state.home_nodes(cls).tolist():
            change = term.delta(cls, source, of.replacement, everywhere)
            _require(not change.any(), f"{where}: delta is not 0 although concerns says no")


def _check_groups(view: View, term: Term, where: str) -> None:
    before = _weight(term)
    for cls in range(len(view.snapshot.classes)):
        for group in term.groups_of(np.array([cls], np.int32)):
            _require(
                cls in group.members,
                f"{where}: groups_of returns a group without the class as a member",
            )
            texts = [group.label]
            texts += [group.requirement(), group.standing()] if isinstance(group, Described) else []
            lines = all(text.strip() and "\n" not in text for text in texts)
            _require(lines, f"{where}: a text of a group is not one line")
    _require(before == _weight(term), f"{where}: groups_of changes the term")


def _weight(term: Term) -> tuple[float, int]:
    return term.potential(), len(term.candidates().cls)


def _check_gauges(view: View, term: Term, twin: Term, where: str) -> None:
    for node_index in range(len(view.snapshot.nodes)):
        gauge = term.gauge(node_index)
        _require(gauge == twin.gauge(node_index), f"{where}: gauges are not deterministic")
        if gauge is None:
            continue
        over = any(level.share > level.over for level in gauge.levels)
        under = all(level.share <= level.under for level in gauge.levels)
        _require(
            over or gauge.standing is not Gauge.Standing.OVER,
            f"{where}: over-used, but over no threshold",
        )
        _require(
            under or gauge.standing is not Gauge.Standing.UNDER,
            f"{where}: under-used, but not under all thresholds",
        )
        gives = gauge.gives and gauge.standing is not Gauge.Standing.OVER
        _require(not gives, f"{where}: a node gives pods that is not over-used")
        line = gauge.note.strip() and "\n" not in gauge.note
        _require(bool(line), f"{where}: the note of a gauge is not one line")


def _check_streaks(view: View, term: Term, twin: Term, where: str) -> None:
    seen = term.streaks()
    _require(seen == twin.streaks(), f"{where}: streaks are not deterministic")
    if seen is not None:
        known = set(seen.runs) <= set(view.snapshot.nodes.names)
        _require(known, f"{where}: a signal of an unknown node")
        counted = all(runs >= 1 for runs in seen.runs.values())
        _require(counted, f"{where}: a signal with 0 runs")
    rows = term.waiting()
    _check_rows(rows, twin.waiting(), where)
    overlap = _pairs(rows) & _pairs(term.candidates())
    _require(not overlap, f"{where}: a pair is both a candidate and waiting")
    described = all(term.describe(*pair) for pair in _pairs(rows))
    _require(described, f"{where}: no description of a waiting pair")


def _pairs(rows: Candidates) -> set[tuple[int, int]]:
    return set(zip(rows.cls.tolist(), rows.node.tolist(), strict=True))


def _check_candidate(view: View, term: Term, row: tuple[int, int, float], where: str) -> None:
    cls, source, gain = row
    state, replacement = view.state, view.snapshot.classes[cls].replacement
    pods = state.pods_on(cls, source)
    if term.cause is not Cause.PLACE:
        pods = np.array([pod for pod in term.judged().tolist() if pod in pods], np.int32)
    _require(len(pods) > 0, f"{where}: a candidate without a pod")
    everywhere = np.arange(len(view.snapshot.nodes), dtype=np.int32)
    change = term.delta(cls, source, replacement, everywhere)
    _require(change.shape == everywhere.shape, f"{where}: delta has the wrong shape")
    _require(
        float(change.min()) >= -gain - _TOLERANCE,
        f"{where}: delta is lower than -gain of the candidate",
    )
    _require(bool(term.describe(cls, source)), f"{where}: no description of a candidate")
    before = term.potential()
    for target in {int(change.argmin()), int(change.argmax())}:
        pod = int(pods[0])
        state.evict(pod)
        state.reap()
        state.place(pod, replacement, target)
        difference = term.potential() - before
        _undo(view, pod)
        _require(
            abs(difference - float(change[target])) < _TOLERANCE,
            f"{where}: delta says {change[target]:g}, the potential changes by {difference:g}",
        )


def _undo(view: View, pod: int) -> None:
    view.state.evict(pod)
    view.state.reap()
    view.state.restore(pod)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ContractError(message)
