"""Low utilisation: pods leave nodes above a threshold while others stand nearly empty, or far below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from rebalancer.api import (
    MEASURED,
    Bools,
    Bound,
    Candidates,
    Entry,
    Floats,
    Int32s,
    Params,
    Percent,
    Signals,
    Term,
    View,
)

# A node above its threshold is what moves are made for; unevenness as such only breaks ties, so that a
# pod that carries the overload to another node gains nothing worth an eviction.
_OVER_WEIGHT = 10.0
_EVEN_WEIGHT = 0.001
# Shares are quotients of integers: 70 % is as far above 40 % as 50 % above 20 %.
_ROUNDING = 1e-9
# So many nodes that are not measured are named.
_SHOWN = 3


class LowUtilisationParams(Params):
    """Options of low-utilisation. Percentages are of a node's allocatable."""

    under: dict[str, Percent] = Field(
        default={"cpu": 0.2, "memory": 0.2, "pods": 0.2},
        description="A node below all of these is under-used.",
    )
    over: dict[str, Percent] = Field(
        default={"cpu": 0.5, "memory": 0.5, "pods": 0.5},
        description="A node above any of these is over-used, and gives pods while one is under-used.",
    )
    gap: Percent | None = Field(
        default=None,
        description="An over-used node also gives pods while another is so far below it. "
        "Default: the distance from under to over; 100%: only under-used nodes count.",
    )
    deviation: bool = Field(
        default=False, description="Thresholds are distances from the mean over all nodes."
    )
    signal: Literal["requests", "usage", "larger"] = Field(
        default="requests",
        description="What fills a node with cpu and memory: requests, usage (as metrics.k8s.io measures it), or "
        "the larger of both. Other resources and pods count as requested in any case.",
    )
    runs: int = Field(
        default=3,
        ge=1,
        le=100,
        description="By usage a node gives pods once it was over-used in so many runs in a row, this one "
        "included. More than 1 needs the memory (--memory).",
    )

    @property
    def measured(self) -> bool:
        """Whether measured use decides anything."""
        return self.signal != "requests" and not set(MEASURED).isdisjoint(self.over)

    @model_validator(mode="after")
    def _same_resources(self) -> LowUtilisationParams:
        if set(self.under) != set(self.over):
            raise ValueError("under and over must name the same resources")
        for name, low in self.under.items():
            if not self.deviation and low > self.over[name]:
                raise ValueError(f"under.{name} is above over.{name}")
        return self


class LowUtilisation:
    """Moves pods off over-used nodes while other nodes are under-used or far below, if they land better.

    Every move is predicted: a pod that would only carry the overload to another node stays. Nodes that
    joined are filled until none is further below an over-used one than ``gap``, not only until they pass
    the threshold ``under``: what started the moves must not be what ends them.
    """

    Params = LowUtilisationParams

    def terms(self, view: View, params: LowUtilisationParams) -> Sequence[Term]:
        """Return one term of imbalance."""
        return [MeasuredTerm(view, params) if params.measured else UtilisationTerm(view, params)]

    def needs_usage(self, params: LowUtilisationParams) -> bool:
        """See Measuring."""
        return params.measured


class _Nodes(NamedTuple):
    """What candidates are chosen by (N,)."""

    inviting: Floats
    """How full each counts as for those that may give."""
    full: Floats
    """How full one that takes from it may be."""
    giving: Bools
    any_gives: bool
    most_even: float
    """The most that any node's unevenness can fall when a pod lands there."""


class UtilisationTerm:
    """``sum of 10 * max(0, x - over)^2 + 0.001 * (x - mean)^2`` over nodes and resources, x = requested share."""

    entry = Entry.IMBALANCE

    def __init__(self, view: View, params: LowUtilisationParams) -> None:
        self._view = view
        nodes = view.snapshot.nodes
        self._names = sorted(params.over)
        self._demands: dict[int, Floats] = {}
        self._rows = [
            view.snapshot.resources.index(name) if name in view.snapshot.resources else -1
            for name in self._names
        ]
        capacity = [
            nodes.max_pods.astype(float)
            if name == "pods"
            else nodes.allocatable[row].astype(float)
            if row >= 0
            else np.zeros(len(nodes))
            for name, row in zip(self._names, self._rows, strict=True)
        ]
        self._capacity = np.array(capacity).reshape(len(self._names), len(nodes))
        self._counts: Bools = (self._capacity > 0) & nodes.ready
        self._mean = self._mean_share()
        self._over = self._threshold(params.over, params.deviation, +1)
        self._under = self._threshold(params.under, params.deviation, -1)
        widest = float((self._over - self._under).max())
        self._gap = params.gap if params.gap is not None else widest
        self._kept: tuple[int, _Nodes] | None = None

    def _mean_share(self) -> Floats:
        """Return what is used of each resource (resources, 1) on all nodes together."""
        return self._mean_of(self._used(), self._counts)

    def _mean_of(self, used: Floats, counts: Bools) -> Floats:
        part = used.sum(axis=1, where=counts)
        total = self._capacity.sum(axis=1, where=counts)
        mean: Floats = np.divide(part, total, out=np.zeros_like(part), where=total > 0)[:, None]
        return mean

    def _threshold(self, given: Mapping[str, float], deviation: bool, sign: int) -> Floats:
        values = np.array([given[name] for name in self._names])[:, None]
        return np.clip(self._mean + sign * values, 0, 1) if deviation else values

    def _used(self, nodes: Int32s | slice = slice(None)) -> Floats:
        """Return what is requested of each resource on the given nodes (resources, K)."""
        state = self._view.state
        found = np.zeros((len(self._names), len(self._capacity[0, nodes])))
        for index, (name, row) in enumerate(zip(self._names, self._rows, strict=True)):
            if name == "pods":
                found[index] = state.lasting_count[nodes]
            elif row >= 0:
                found[index] = state.lasting[row, nodes]
        return found

    def _share(self, used: Floats, nodes: Int32s | slice = slice(None)) -> Floats:
        capacity, counts = self._capacity[:, nodes], self._counts[:, nodes]
        share: Floats = np.divide(used, capacity, out=np.zeros_like(used), where=counts)
        return share

    def _phi(self, used: Floats, nodes: Int32s | slice = slice(None)) -> Floats:
        """Return the cost per node (K,) of using ``used`` (resources, K)."""
        share = self._share(used, nodes)
        over = np.maximum(0.0, share - self._over)
        value = _OVER_WEIGHT * over**2 + _EVEN_WEIGHT * (share - self._mean) ** 2
        cost: Floats = (value * self._counts[:, nodes]).sum(axis=0)
        return cost

    def _demand(self, cls: int) -> Floats:
        found = self._demands.get(cls)
        if found is None:
            requests = self._view.snapshot.requests
            found = self._demands[cls] = np.array(
                [
                    1.0 if name == "pods" else float(requests[row, cls]) if row >= 0 else 0.0
                    for name, row in zip(self._names, self._rows, strict=True)
                ]
            )
        return found

    def _over_nodes(self, share: Floats) -> Bools:
        over = (share > self._over) & self._counts
        return np.asarray(over.any(axis=0))

    def _inviting(self, share: Floats, fullness: Floats) -> Floats:
        """Return how full (N,) each node counts as for those that may give: under-used as bottomless."""
        nodes = self._view.snapshot.nodes
        usable = self._counts.any(axis=0) & ~nodes.unschedulable & ~nodes.leaving
        under = ((share <= self._under) | ~self._counts).all(axis=0) & usable
        return np.where(under, -np.inf, np.where(usable, fullness, np.inf))

    def potential(self) -> float:
        """See Term."""
        return float(self._phi(self._used()).sum())

    def violated(self) -> int:
        """Return the over-used nodes with a pod that an under-used one might take."""
        return len(np.unique(self.candidates().node))

    def unsatisfiable(self) -> Sequence[str]:
        """See Term."""
        return ()

    def candidates(self, classes: Int32s | None = None) -> Candidates:
        """See Term: pods on over-used nodes, while a node that might take them invites them."""
        return self._leaving(self._nodes(), classes)

    def _leaving(self, nodes: _Nodes, classes: Int32s | None) -> Candidates:
        """Return who might leave the nodes that give."""
        if not nodes.any_gives:
            return Candidates.none()
        cls, node = self._view.pairs_on(nodes.giving, classes)
        if not len(cls):
            return Candidates.none()
        distinct, row = np.unique(cls, return_inverse=True)
        emptiest = np.array([self._emptiest(k, nodes.inviting) for k in distinct.tolist()])
        useful = emptiest[row] <= nodes.full[node]
        cls, node = cls[useful], node[useful]
        if not len(cls):
            return Candidates.none()
        used = self._used(node)
        demand = np.stack([self._demand(k) for k in cls.tolist()], axis=1)
        gain = self._phi(used, node) - self._phi(used - demand, node) + nodes.most_even
        useful = gain > 0
        return Candidates(cls[useful], node[useful], gain[useful])

    def _nodes(self) -> _Nodes:
        """Return what holds for all classes, kept until something moves: they are asked about one by one."""
        version = self._view.state.version
        if self._kept is None or self._kept[0] != version:
            share = self._share(self._used())
            self._kept = version, self._where(share, self._may_give(share))
        return self._kept[1]

    def _where(self, share: Floats, over: Bools) -> _Nodes:
        """Return what candidates are chosen by, if the ``over``-used nodes (N,) are to give."""
        # Of the resource of which each node has used most.
        fullness: Floats = share.max(axis=0, initial=0.0)
        inviting, full = self._inviting(share, fullness), fullness - self._gap + _ROUNDING
        giving = over & (inviting.min(initial=np.inf) <= full)
        return _Nodes(inviting, full, giving, bool(giving.any()), self._most_even(share))

    def _may_give(self, share: Floats) -> Bools:
        """Return the nodes (N,) that are over-used, and for long enough."""
        return self._over_nodes(share)

    def _emptiest(self, cls: int, inviting: Floats) -> float:
        """Return how full the most inviting node is that may take the replacement of a pod of ``cls``."""
        replacement = self._view.snapshot.classes[cls].replacement
        mask = self._view.scheduler.static_mask(replacement)
        return float(inviting[mask].min(initial=np.inf))

    def _most_even(self, share: Floats) -> float:
        """Return the most that any node's unevenness can fall when a pod lands there."""
        below = np.maximum(0.0, self._mean - share) * self._counts
        return float(_EVEN_WEIGHT * (below**2).max(axis=1).sum()) if below.size else 0.0

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """See Term."""
        # Before and after, and the node that the pod leaves last: one calculation for all.
        nodes = np.append(destinations, np.int32(node))
        demand = self._demand(cls)[:, None]
        before = self._used(nodes)
        after = before.copy()
        after[:, -1:] -= demand
        before[:, np.flatnonzero(destinations == node)] -= demand
        after[:, :-1] = before[:, :-1] + self._demand(replacement)[:, None]
        phi = self._phi(np.concatenate([before, after], axis=1), np.concatenate([nodes, nodes]))
        now, then = phi[: len(nodes)], phi[len(nodes) :]
        left = float(then[-1] - now[-1])
        return left + then[:-1] - now[:-1]

    def related(self, cls: int) -> Int32s:
        """See Term: nothing but the class itself; nodes are looked at anew each time."""
        return np.array([cls], np.int32)

    def bounds(self) -> Iterable[Bound]:
        """None: imbalance is not counted in pods."""
        return ()

    def describe(self, cls: int, node: int) -> str:  # noqa: ARG002  # it is about the node
        """See Term."""
        one = np.array([node], np.int32)
        share = self._share(self._used(one), one)[:, 0]
        over = np.broadcast_to(self._over[:, 0], share.shape)
        parts = [
            f"{name} {share[row]:.0%}{self._what(row, node)} (over {over[row]:.0%})"
            for row, name in enumerate(self._names)
            if share[row] > over[row]
        ]
        name = self._view.snapshot.nodes.names[node]
        return f"node {name}: {', '.join(parts) or 'not over-used'}"

    def _what(self, row: int, node: int) -> str:  # noqa: ARG002  # requests are known of every node
        """Return how a share is come by, in a word."""
        return "" if self._names[row] == "pods" else " requested"


class MeasuredTerm(UtilisationTerm):
    """The same where measured use decides: x = used share, or the larger one of both.

    A node of which nothing is measured counts by what is requested there: by ``usage`` it neither gives pods
    nor invites them, but one that lands there is not thought to have vanished.
    """

    def __init__(self, view: View, params: LowUtilisationParams) -> None:
        usage, count = view.snapshot.usage, len(view.snapshot.nodes)
        self._signal, self._needed = params.signal, params.runs
        self._known: Bools = usage.known if usage is not None else np.zeros(count, bool)
        self._at = usage.at if usage is not None else 0.0
        self._measured = [
            (row, MEASURED.index(name))
            for row, name in enumerate(sorted(params.over))
            if name in MEASURED
        ]
        self._texts: tuple[int, dict[int, str]] = (-1, {})
        """What is said of nodes in one version of the state."""
        super().__init__(view, params)
        self._signals = self._counted()
        self._lasts = self._lasting()

    # -- what is used ------------------------------------------------------------------------------

    def _used(self, nodes: Int32s | slice = slice(None)) -> Floats:
        """Return what is requested and, below, what is used (2 * resources, K), the latter as far as measured."""
        requested = super()._used(nodes)
        used = requested.copy()
        for row, measured in self._measured:
            used[row] = self._view.state.lasting_usage[measured, nodes]
        return np.concatenate([requested, used])

    def _demand(self, cls: int) -> Floats:
        found = self._demands.get(cls)
        if found is None:
            requested = super()._demand(cls)
            used = requested.copy()
            if (usage := self._view.snapshot.usage) is not None:
                for row, measured in self._measured:
                    used[row] = usage.classes[measured, cls]
            found = self._demands[cls] = np.concatenate([requested, used])
        return found

    def _decisive(self, both: Floats, nodes: Int32s | slice = slice(None)) -> Floats:
        """Return of what :meth:`_used` gives what the signal goes by (resources, K)."""
        requested, used = np.split(both, 2)
        if self._signal == "larger":
            used = np.maximum(requested, used)
        found: Floats = np.where(self._known[nodes], used, requested)
        return found

    def _share(self, used: Floats, nodes: Int32s | slice = slice(None)) -> Floats:
        return super()._share(self._decisive(used, nodes), nodes)

    def _mean_share(self) -> Floats:
        counts = self._counts
        if self._signal == "usage":
            counts = counts.copy()
            counts[[row for row, _ in self._measured]] &= self._known
        return self._mean_of(self._decisive(self._used()), counts)

    # -- who gives ---------------------------------------------------------------------------------

    def _may_give(self, share: Floats) -> Bools:
        over = self._over_nodes(share)
        return over if self._lasts[over].all() else over & self._give_now()

    def waiting(self) -> Candidates:
        """See Signalling."""
        share = self._share(self._used())
        over = self._over_nodes(share) & ~self._lasts
        return self._leaving(self._where(share, over & ~self._give_now()), None)

    def violated(self) -> int:
        """See Term: nodes that wait to be over-used for long enough among them."""
        return len(np.union1d(self.candidates().node, self.waiting().node))

    def _over_nodes(self, share: Floats) -> Bools:
        over = super()._over_nodes(share)
        if self._signal == "usage":
            return over & self._known
        return over & self._known.any()

    def _give_now(self, nodes: Int32s | slice = slice(None)) -> Bools:
        """Return which nodes (K,) are over-used by what is requested, or by what was used for long enough."""
        requested = super()._share(np.split(self._used(nodes), 2)[0], nodes)
        counts = np.full(len(requested), self._signal == "larger")
        if self._signal == "usage":
            counts[:] = True
            counts[[row for row, _ in self._measured]] = False
        by_request = (requested > self._over) & self._counts[:, nodes] & counts[:, None]
        found: Bools = self._lasts[nodes] | by_request.any(axis=0)
        return found

    def _inviting(self, share: Floats, fullness: Floats) -> Floats:
        inviting = super()._inviting(share, fullness)
        return np.where(self._known, inviting, np.inf) if self._signal == "usage" else inviting

    # -- for how many runs -------------------------------------------------------------------------

    def signals(self) -> Signals | None:
        """See Signalling: over-used nodes, by what was measured."""
        return self._signals if self._known.any() else None

    def _counted(self) -> Signals:
        used = super()._share(np.split(self._used(), 2)[1])
        over = (used > self._over) & self._counts & self._known
        names = self._view.snapshot.nodes.names
        rows = [row for row, _ in self._measured]
        seen = [names[node] for node in np.flatnonzero(over[rows].any(axis=0)).tolist()]
        return (self._view.signals or Signals()).after(seen, self._at, self._needed)

    def _lasting(self) -> Bools:
        """Return the nodes (N,) that may give by what is used."""
        count = len(self._known)
        if self._outdated:
            return np.zeros(count, bool)
        if self._needed == 1:
            return np.ones(count, bool)
        runs = self._signals.runs
        names = self._view.snapshot.nodes.names
        enough = [runs.get(name, 0) >= self._needed for name in names] if runs else [False] * count
        return np.array(enough, bool)

    @property
    def _outdated(self) -> bool:
        """Whether moves were made since it was measured."""
        return self._at < self._signals.at

    # -- what is said ------------------------------------------------------------------------------

    def notes(self) -> Sequence[str]:
        """See Noting."""
        return [text for text in (self._kept_from_work(), self._not_measured()) if text is not None]

    def _not_measured(self) -> str | None:
        nodes = self._view.snapshot.nodes
        counts = self._counts.any(axis=0)
        unknown = np.flatnonzero(counts & ~self._known).tolist()
        if not unknown or not self._known.any():
            return None
        names = ", ".join(nodes.names[node] for node in unknown[:_SHOWN])
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        what = (
            "they neither give pods nor invite them"
            if self._signal == "usage"
            else "they count by requests"
        )
        all_of = int(np.count_nonzero(counts))
        return f"{len(unknown)} of {all_of} nodes are not measured ({names}{more}): {what}"

    def _kept_from_work(self) -> str | None:
        if not self._known.any():
            return (
                f"with signal: {self._signal} nothing is moved, for of no node is it known what is used: "
                "metrics.k8s.io has to serve it (metrics-server does), or the snapshot file to hold it"
            )
        if self._outdated:
            return (
                "nothing is moved by usage until it is measured anew: "
                "the last measurement is from before the last moves"
            )
        if self._needed > 1 and self._view.signals is None:
            return (
                f"nothing is moved by usage before it was seen in {self._needed} runs in a row, and no earlier "
                "run is remembered: give --memory NAMESPACE/NAME to runs that enforce, or set runs: 1"
            )
        return None

    def describe(self, cls: int, node: int) -> str:
        """See Term."""
        # All pods of a node that waits are asked about.
        version = self._view.state.version
        if self._texts[0] != version:
            self._texts = version, {}
        texts = self._texts[1]
        if node not in texts:
            texts[node] = super().describe(cls, node) + self._so_far(node)
        return texts[node]

    def _so_far(self, node: int) -> str:
        if self._give_now(np.array([node], np.int32))[0]:
            return ""
        runs = self._signals.runs.get(self._view.snapshot.nodes.names[node], 0)
        return f", so far in {runs} of {self._needed} runs in a row"

    def _what(self, row: int, node: int) -> str:
        requested, used = np.split(self._used(np.array([node], np.int32))[:, 0], 2)
        decides = self._signal == "usage" or used[row] > requested[row]
        measured = self._known[node] and row in {row for row, _ in self._measured}
        return " used" if measured and decides else super()._what(row, node)
