"""The contract that every strategy keeps, as one function that plug-in authors call in their tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rebalancer.api import Params, Strategy, Term, View
from rebalancer.policy.protect import Protect
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope, protect
from rebalancer.snapshot.state import ClusterState
from rebalancer.testing.snapshots import snapshot_of
from rebalancer.testing.workloads import apart, node, spread, workload

_TOLERANCE = 1e-6


class ContractError(AssertionError):
    """A strategy does not keep its contract; the message says which part, and on what."""


def view_of(snapshot: Snapshot) -> View:
    """Return a view of ``snapshot`` with default protections and scheduler, as a strategy gets it."""
    return View(
        snapshot,
        ClusterState(snapshot),
        SchedulerModel(snapshot, SchedulerProfile.for_version(snapshot.version)),
        protect(snapshot, Protect(), Scope()) == 0,
    )


def sample_snapshots() -> list[Snapshot]:
    """Return the clusters that the contract is checked on when none are given."""
    nodes = [node(f"n{i}", f"zone-{'abc'[i % 3]}") for i in range(6)]
    drifted = [
        *nodes,
        *workload("even", ["n0", "n1", "n2"], spec=spread("even")),
        *workload("skewed", ["n0", "n0", "n3", "n1"], spec=spread("skewed", hard=True)),
        *workload("near", ["n1", "n1", "n4"], spec=apart("near", weight=70)),
        *workload("big", ["n0", "n0"], cpu="1"),
        *workload("set", ["n2", "n2"], kind="StatefulSet"),
    ]
    return [snapshot_of([]), snapshot_of(nodes[:1]), snapshot_of(nodes), snapshot_of(drifted)]


def check_strategy(
    strategy: Strategy, params: Params | None = None, snapshots: Sequence[Snapshot] = ()
) -> None:
    """Check ``strategy`` on ``snapshots`` (samples if none are given).

    Raises:
        ContractError: it does not keep the contract.
    """
    _require(bool((type(strategy).__doc__ or "").strip()), "its class has no docstring")
    chosen = strategy.Params() if params is None else params
    for number, snapshot in enumerate(snapshots or sample_snapshots()):
        first, second = view_of(snapshot), view_of(snapshot)
        terms, again = strategy.terms(first, chosen), strategy.terms(second, chosen)
        _require(len(terms) == len(again), f"snapshot {number}: not deterministic")
        for term, twin in zip(terms, again, strict=True):
            where = f"snapshot {number}, term of {term.entry.name}"
            _check_term(first, term, twin, where)


def _check_term(view: View, term: Term, twin: Term, where: str) -> None:
    _require(isinstance(term, Term), f"{where}: lacks a method of rebalancer.api.Term")
    _require(term.potential() >= 0, f"{where}: negative potential")
    _require(term.potential() == twin.potential(), f"{where}: not deterministic")
    rows, same = term.candidates(), twin.candidates()
    for mine, other in ((rows.cls, same.cls), (rows.node, same.node), (rows.gain, same.gain)):
        _require(np.array_equal(mine, other), f"{where}: candidates are not deterministic")
    _require(bool((rows.gain > 0).all()), f"{where}: a candidate that gains nothing")
    _require(
        len(rows.cls) == len(rows.node) == len(rows.gain), f"{where}: columns differ in length"
    )
    if term.potential() == 0:
        _require(len(rows.cls) == 0, f"{where}: candidates although nothing is to be gained")
    for cls, node_index, gain in zip(
        rows.cls.tolist(), rows.node.tolist(), rows.gain.tolist(), strict=True
    ):
        _check_candidate(view, term, (cls, node_index, gain), where)


def _check_candidate(view: View, term: Term, row: tuple[int, int, float], where: str) -> None:
    cls, source, gain = row
    state, replacement = view.state, view.snapshot.classes[cls].replacement
    pods = state.pods_on(cls, source)
    _require(len(pods) > 0, f"{where}: candidate without a pod")
    everywhere = np.arange(len(view.snapshot.nodes), dtype=np.int32)
    change = term.delta(cls, source, replacement, everywhere)
    _require(change.shape == everywhere.shape, f"{where}: delta has the wrong shape")
    _require(float(change.min()) >= -gain - _TOLERANCE, f"{where}: gains more than it said")
    _require(bool(term.describe(cls, source)), f"{where}: does not describe a candidate")
    before = term.potential()
    for target in {int(change.argmin()), int(change.argmax())}:
        pod = int(pods[0])
        state.evict(pod)
        state.reap()
        state.place(pod, replacement, target)
        seen = term.potential() - before
        _undo(view, pod, cls, source)
        _require(
            abs(seen - float(change[target])) < _TOLERANCE,
            f"{where}: delta says {change[target]:g}, the potential changes by {seen:g}",
        )


def _undo(view: View, pod: int, cls: int, source: int) -> None:
    view.state.evict(pod)
    view.state.reap()
    view.state.place(pod, cls, source)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ContractError(message)
