"""Utilisation of nodes by requests, and the cost of over-used nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from rebalancer.api import (
    Candidates,
    Direction,
    Entry,
    Gauge,
    LoadBalance,
    Params,
    Percent,
    Streaks,
    Term,
    View,
)

_MAX_RUNS = 100


def _runs(value: Any) -> int | str:
    """Return ``3``, or ``3 of 5``."""
    needed, among, last = str(value).partition(" of ") if isinstance(value, str) else (value, "", 0)
    try:
        number, window = int(needed), int(last)
    except (TypeError, ValueError):
        number, window = 0, 0
    if isinstance(value, bool | float) or not 1 <= number <= (window if among else _MAX_RUNS):
        raise ValueError("write how many runs in a row, as 3, or among the last ones, as 3 of 5")
    if window > Streaks.MAX_WINDOW:
        raise ValueError(f"{value}: at most the last {Streaks.MAX_WINDOW} runs are remembered")
    return f"{number} of {window}" if among else number


_Runs = Annotated[
    int | str,
    BeforeValidator(_runs),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": _MAX_RUNS},
                {"type": "string", "pattern": r"^[1-9][0-9]? of [1-9][0-9]?$"},
            ],
            "examples": [3, "3 of 5"],
        }
    ),
]


class LowUtilisationParams(Params):
    """Options of low-utilisation. Percentages are shares of a node's allocatable."""

    direction: ClassVar[Direction | None] = Direction.SPREAD

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
        description="An over-used node also gives pods while another node is below it by this much. "
        "Default: the distance from under to over; 100%: only under-used nodes count.",
    )
    deviation: bool = Field(
        default=False, description="Thresholds are distances from the mean over all nodes."
    )
    signal: Literal["requests", "usage", "larger"] = Field(
        default="requests",
        description="What cpu and memory utilisation is computed from: requests, usage (of metrics.k8s.io), or "
        "the larger of both. Other resources and pods count as requested in any case.",
    )
    runs: _Runs = Field(
        default=3,
        description="By usage, a node gives pods after it was over-used in this number of runs in a row, this one "
        "included; `3 of 5`: in three of the last five. More than 1 needs the memory (--memory).",
    )

    @property
    def measured(self) -> bool:
        """Whether measured usage has an effect."""
        return self.signal != "requests" and not set(LoadBalance.MEASURED).isdisjoint(self.over)

    @property
    def needed(self) -> int:
        """In how many runs a node has to be over-used."""
        return self.runs if isinstance(self.runs, int) else int(self.runs.split()[0])

    @property
    def window(self) -> int:
        """Among how many of the last runs; 0: in a row."""
        return 0 if isinstance(self.runs, int) else int(self.runs.split()[-1])

    @model_validator(mode="after")
    def _same_resources(self) -> LowUtilisationParams:
        if set(self.under) != set(self.over):
            raise ValueError("under and over must name the same resources")
        for name, low in self.under.items():
            if not self.deviation and low > self.over[name]:
                raise ValueError(f"under.{name} is above over.{name}")
        return self


_ALL = slice(None)
Some = NDArray[np.int32] | slice
"""Selected nodes: their rows, or a slice."""


class UtilisationTerm(Term):
    """``sum of 10 * max(0, x - over)^2 + 0.001 * (x - mean)^2`` over nodes and resources, x = requested share."""

    entry = Entry.IMBALANCE

    def __init__(self, view: View, params: LowUtilisationParams) -> None:
        self._view = view
        nodes = view.snapshot.nodes
        self._names = sorted(params.over)
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
        others = _find_nodes_of_others(view)
        self._counts: NDArray[np.bool_] = (self._capacity > 0) & nodes.ready & ~others
        self._mean = self._mean_share()
        self._over = self._threshold(params.over, params.deviation, +1)
        self._under = self._threshold(params.under, params.deviation, -1)
        widest = float((self._over - self._under).max())
        self._gap = params.gap if params.gap is not None else widest

    @cached_property
    def _balance(self) -> LoadBalance:
        """What nodes are now, and what moves change."""
        return LoadBalance(self._view, self._demands(), self._limits(), self._measurement())

    def _limits(self) -> LoadBalance.Limits:
        nodes = self._view.snapshot.nodes
        return LoadBalance.Limits(
            resources=self._names,
            capacity=self._capacity,
            counts=self._counts,
            over=np.ravel(self._over),
            under=np.ravel(self._under),
            mean=np.ravel(self._mean),
            gap=self._gap,
            usable=self._counts.any(axis=0) & ~nodes.unschedulable & ~nodes.leaving,
        )

    def _measurement(self) -> LoadBalance.Measured | None:
        """Return how measured use counts; None: requests alone do."""
        return None

    def _mean_share(self) -> NDArray[np.float64]:
        """Return the mean share of each resource over all nodes (resources, 1)."""
        return self._mean_of(self._amounts_used(), self._counts)

    def _mean_of(self, used: NDArray[np.float64], counts: NDArray[np.bool_]) -> NDArray[np.float64]:
        part = used.sum(axis=1, where=counts)
        total = self._capacity.sum(axis=1, where=counts)
        mean: NDArray[np.float64] = np.divide(
            part, total, out=np.zeros_like(part), where=total > 0
        )[:, None]
        return mean

    def _threshold(
        self, given: Mapping[str, float], deviation: bool, sign: int
    ) -> NDArray[np.float64]:
        values = np.array([given[name] for name in self._names])[:, None]
        return np.clip(self._mean + sign * values, 0, 1) if deviation else values

    def _amounts_used(self, nodes: Some = _ALL) -> NDArray[np.float64]:
        """Return the requested amounts on the given nodes (resources, K)."""
        state = self._view.state
        used = np.zeros((len(self._names), len(self._capacity[0, nodes])))
        for index, (name, row) in enumerate(zip(self._names, self._rows, strict=True)):
            if name == "pods":
                used[index] = state.lasting_count[nodes]
            elif row >= 0:
                used[index] = state.lasting[row, nodes]
        return used

    def _share(self, used: NDArray[np.float64], nodes: Some = _ALL) -> NDArray[np.float64]:
        capacity, counts = self._capacity[:, nodes], self._counts[:, nodes]
        share: NDArray[np.float64] = np.divide(
            used, capacity, out=np.zeros_like(used), where=counts
        )
        return share

    def _demands(self) -> NDArray[np.float64]:
        """Return the amounts (resources, C) that a pod of each class requests."""
        requests = self._view.snapshot.requests
        demands = np.zeros((len(self._names), requests.shape[1]))
        for index, (name, row) in enumerate(zip(self._names, self._rows, strict=True)):
            if name == "pods":
                demands[index] = 1.0
            elif row >= 0:
                demands[index] = requests[row]
        return demands

    def _over_nodes(self, share: NDArray[np.float64], nodes: Some = _ALL) -> NDArray[np.bool_]:
        over = (share > self._over) & self._counts[:, nodes]
        return np.asarray(over.any(axis=0))

    def potential(self) -> float:
        """Return the value of the formula for the current state."""
        return float(self._balance.cost().sum())

    def violated(self) -> int:
        """Return the number of over-used nodes with a candidate."""
        return len(np.unique(self.candidates().node))

    def candidates(self, classes: NDArray[np.int32] | None = None) -> Candidates:
        """Return the pairs on over-used nodes whose replacements some node may receive."""
        giving = self._balance.giving()
        return self._balance.leaving(giving, classes) if giving.any() else Candidates.none()

    def delta(
        self, cls: int, node: int, replacement: int, destinations: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """Return the change of the formula (K,) if a pod moves from ``node`` to each destination."""
        return self._balance.delta(cls, node, replacement, destinations)

    def rules_of_move(self, cls: int, replacement: int) -> Sequence[tuple[LoadBalance.Rule, float]]:  # noqa: ARG002  # every move
        """Return the rule of balance."""
        return [(self._balance.rule, 1.0)]

    def describe(self, cls: int, node: int) -> str:  # noqa: ARG002  # it is about the node
        """Return the node's fill level and threshold, in a phrase."""
        one = np.array([node], np.int32)
        share = self._share(self._amounts_used(one), one)[:, 0]
        over = np.broadcast_to(self._over[:, 0], share.shape)
        parts = [
            f"{name} {share[row]:.0%}{self._what(row, node)} (over {over[row]:.0%})"
            for row, name in enumerate(self._names)
            if share[row] > over[row]
        ]
        name = self._view.snapshot.nodes.names[node]
        return f"node {name}: {', '.join(parts) or 'not over-used'}"

    def gauge(self, node: int) -> Gauge | None:
        """Return the gauge of a node; None if it is not Ready, or has none of the resources."""
        counts = np.flatnonzero(self._counts[:, node]).tolist()
        if not counts:
            return None
        one = np.array([node], np.int32)
        share = self._share(self._amounts_used(one), one)[:, 0]
        under, over = (
            np.broadcast_to(limit[:, 0], share.shape) for limit in (self._under, self._over)
        )
        standing, gives = self._standing(node), bool(self._balance.giving()[node])
        return Gauge(
            standing=standing,
            gives=gives,
            note=self._consequence(node, standing),
            levels=tuple(
                Gauge.Level(
                    self._names[row],
                    float(share[row]),
                    float(under[row]),
                    float(over[row]),
                    self._what(row, node).strip(),
                )
                for row in counts
            ),
        )

    def _standing(self, node: int) -> Gauge.Standing:
        share = self._share(self._amounts_used())
        if self._over_nodes(share)[node]:
            return Gauge.Standing.OVER
        under = (share[:, node] <= self._under[:, 0]) | ~self._counts[:, node]
        return Gauge.Standing.UNDER if under.all() else Gauge.Standing.BETWEEN

    def _consequence(self, node: int, standing: Gauge.Standing) -> str:
        """Return a phrase on whether a node gives pods and whether it receives some."""
        inviting, full = self._balance.inviting(), self._balance.full()
        takes = int(np.count_nonzero(inviting <= full[node]))
        if standing is Gauge.Standing.OVER and self._balance.giving()[node]:
            return f"gives pods: {takes} node{'' if takes == 1 else 's'} may take them"
        if standing is Gauge.Standing.OVER:
            return f"gives none: no node is under-used, or {self._gap:.0%} below it"
        if np.isposinf(inviting[node]):
            return "gives none and invites none: it is cordoned or about to go"
        if standing is Gauge.Standing.UNDER:
            return "invites pods of over-used nodes"
        return f"gives none, and invites pods of over-used nodes that are {self._gap:.0%} above it"

    def _what(self, row: int, node: int) -> str:  # noqa: ARG002  # requests are known of every node
        """Return a word for the kind of share: `` requested``, `` used``, or empty for pods."""
        return "" if self._names[row] == "pods" else " requested"


def _find_nodes_of_others(view: View) -> NDArray[np.bool_]:
    """Return the nodes (N,) all of whose pods, but for those bound to them, are of schedulers without a profile.

    Such is a node of Fargate, which is made for one pod.
    """
    snapshot = view.snapshot
    pods, size = snapshot.pods, len(snapshot.nodes)
    known = np.array([view.scheduler.has_profile(of) for of in snapshot.classes] or [True], bool)
    here = pods.living & ~snapshot.per_node
    of_others, of_ours = (
        np.bincount(pods.node[here & of], minlength=size) > 0
        for of in (~known[pods.cls], known[pods.cls])
    )
    nodes: NDArray[np.bool_] = of_others & ~of_ours
    return nodes
