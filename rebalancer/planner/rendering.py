"""Convert moves and landings from rows and probabilities to names, for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rebalancer.base.plain_text import and_more
from rebalancer.plan.plan import Cause, Cost, Landing, Method, Move
from rebalancer.planner.problem import Problem
from rebalancer.scheduler.prediction import Prediction, takers_text
from rebalancer.scheduler.topology import HOSTNAME
from rebalancer.snapshot.labels import ZONE_KEYS
from rebalancer.snapshot.model import PodClass

# A landing distribution above 100 nodes has hundreds of places; so many are kept for people.
SHOWN_LANDINGS = 20
_NAMED = 2
"""So many responders are named in a reason."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A move made by the search, in rows of the snapshot."""

    pod: int
    cls: int
    node: int
    gain: tuple[float, float, float]
    """The expected gain per entry of the cost."""
    landings: Prediction
    """The most probable ones, or all."""
    strategy: str
    reason: str
    wave: int
    observed: bool
    makes_way_for: int = -1
    """The pod that can only be moved or placed once this one has left; -1 for a move that gains by itself."""
    marks: tuple[int, ...] = ()
    """Nodes that are marked while it lands."""
    cause: Cause = Cause.PLACE
    unit: str = ""
    """The unit of moves to which it belongs, see ``Move.unit``."""
    room: tuple[int, ...] | None = None
    """For a move that makes room for a waiting pod: the nodes that are marked until that pod has its room; None for other moves."""
    gang: str = ""
    """The gang with which it is moved, see ``Move.gang``."""


def cost_of_entries(entries: Sequence[float]) -> Cost:
    """Return a Cost with rounded entries, for people and for equal bytes; never -0.0."""
    return Cost(*(round(entry, 9) + 0.0 for entry in entries))


class Rendering:
    """Creates the moves of a plan. Landings on one node share their domains, because thousands may be shown."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._domains: dict[tuple[int, tuple[str, ...]], Mapping[str, str]] = {}

    def move(self, chosen: Chosen) -> Move:
        """Return a chosen move in the form of the report."""
        problem, snapshot = self._problem, self._problem.snapshot
        of_class = snapshot.classes[chosen.cls]
        other = chosen.makes_way_for
        method = snapshot.method_of(chosen.cls, together=bool(chosen.gang))
        return Move(
            namespace=of_class.namespace,
            pod=snapshot.pods.name[chosen.pod],
            uid=snapshot.pods.uid[chosen.pod],
            owner=snapshot.owners[of_class.owner].ref,
            node=snapshot.nodes.names[chosen.node],
            landings=self.landings(chosen.cls, chosen.landings),
            strategy=chosen.strategy,
            reason="; ".join(
                filter(
                    None,
                    (
                        chosen.reason,
                        _describe_method(of_class, method),
                        takers_text(snapshot, chosen.landings),
                    ),
                )
            ),
            gain=cost_of_entries(chosen.gain),
            cost=round(float(problem.costs[chosen.pod]), 6),
            wave=chosen.wave,
            budgets=problem.disruptions.refs(chosen.pod),
            observed=chosen.observed,
            makes_way_for=snapshot.pods.uid[other] if other >= 0 else "",
            marks=self.names(chosen.marks),
            method=method,
            cause=chosen.cause,
            unit=chosen.unit,
            room=None if chosen.room is None else self.names(chosen.room),
            gang=chosen.gang,
        )

    def names(self, nodes: Sequence[int]) -> tuple[str, ...]:
        """Return the names of nodes."""
        return tuple(self._problem.snapshot.nodes.names[node] for node in nodes)

    def landings(self, cls: int, prediction: Prediction) -> tuple[Landing, ...]:
        """Return the possible landings of the replacement of a pod of ``cls``, the most probable nodes only."""
        snapshot = self._problem.snapshot
        named = snapshot.classes[cls].spec.topology_keys()
        keys = tuple(sorted({*named, *ZONE_KEYS} - {HOSTNAME}))
        nodes = prediction.nodes[:SHOWN_LANDINGS].tolist()
        probabilities = prediction.probability[:SHOWN_LANDINGS].tolist()
        return tuple(
            Landing(snapshot.nodes.names[node], round(share, 6), self._domains_of(node, keys))
            for node, share in zip(nodes, probabilities, strict=True)
        )

    def _domains_of(self, node: int, keys: tuple[str, ...]) -> Mapping[str, str]:
        domains = self._domains.get((node, keys))
        if domains is None:
            labels = self._problem.snapshot.nodes.labels
            values = {key: int(labels.column(key)[node]) for key in keys}
            domains = {
                key: labels.values(key)[value] for key, value in values.items() if value >= 0
            }
            self._domains[node, keys] = domains
        return domains


def _describe_method(of_class: PodClass, method: Method) -> str:
    """Return how a pod moves, for the reason of its move; empty if it is evicted as usual."""
    if of_class.too_late:
        return f"evicted, for a restart would come too late: {of_class.too_late}"
    if method is Method.REQUEST:
        names = (one.name for one in of_class.spec.eviction_responders or ())
        return f"by a request to {and_more(list(names), _NAMED)}"
    return "by a restart of the rollout" if method is Method.RESTART else ""
