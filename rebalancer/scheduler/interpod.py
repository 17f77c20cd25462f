"""InterPodAffinity: affinity and anti-affinity terms of a class, and those of other pods towards it.

Source: ``plugins/interpodaffinity`` (``filtering.go``, ``scoring.go``). Terminating pods count until they are gone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rebalancer.scheduler.interpod_terms import Relation, TermIndex
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.scheduler.topology import Topologies
from rebalancer.snapshot.columns import Bools, Int32s, Ints, unite
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState


@dataclass(frozen=True, slots=True)
class Refusals:
    """The nodes that the plug-in refuses, by reason, in the order of its checks: each (N,) or None."""

    affinity: Bools | None
    own_anti_affinity: Bools | None
    others_anti_affinity: Bools | None

    def any(self) -> Bools | None:
        """Return the nodes (N,) that are refused for any reason; None if no rule applies."""
        refused: Bools | None = None
        for mask in (self.affinity, self.own_anti_affinity, self.others_anti_affinity):
            if mask is not None:
                refused = mask if refused is None else refused | mask
        return refused


class InterPod:
    """Filter and raw score of inter-pod affinity."""

    def __init__(self, snapshot: Snapshot, profile: SchedulerProfile) -> None:
        self._snapshot = snapshot
        self._topologies = Topologies(snapshot.nodes.labels)
        self._terms = TermIndex(snapshot, profile)

    def counted(self, cls: int) -> Int32s:
        """Return the classes whose pods affect where a class may go, or prefers to go."""
        relation = self._terms.relation(cls)
        parts = [classes for _, classes in (*relation.anti, *relation.refused_by)]
        parts += [classes for _, _, classes in relation.weighted]
        return unite([relation.affinity, *parts])

    def refusals(self, state: ClusterState, cls: int) -> Refusals:
        """Return which nodes are refused to a class, by reason."""
        relation = self._terms.relation(cls)
        return Refusals(
            affinity=self._unmet_affinity(state, relation),
            own_anti_affinity=self._hit(state, relation.anti),
            others_anti_affinity=self._hit(state, relation.refused_by),
        )

    def relation(self, cls: int) -> Relation:
        """Return the terms between a class and other classes."""
        return self._terms.relation(cls)

    def raw(self, state: ClusterState, cls: int) -> Ints | None:
        """Return the raw score (N,); None if there are no pods or terms to score, and the plug-in skips."""
        total: Ints | None = None
        for key, weight, classes in self._terms.relation(cls).weighted:
            topology = self._topologies[key]
            sums = topology.of_pods(state, classes, terminating=True)
            if not sums.any():
                continue
            score = weight * topology.spread_out(sums)
            total = score if total is None else total + score
        return total

    def _hit(self, state: ClusterState, rules: tuple[tuple[str, Int32s], ...]) -> Bools | None:
        refused: Bools | None = None
        for key, classes in rules:
            topology = self._topologies[key]
            occupied = topology.of_pods(state, classes, terminating=True) > 0
            if occupied.any():
                hit = occupied[topology.domain]
                refused = hit if refused is None else refused | hit
        return refused

    def _unmet_affinity(self, state: ClusterState, relation: Relation) -> Bools | None:
        """Return the nodes (N,) whose domains lack a match for some required term.

        All terms need a match in the node's domains. The first pod of a series needs none.
        """
        if not relation.affinity_keys:
            return None
        unmet = np.zeros(len(self._snapshot.nodes), bool)
        lacking = np.zeros_like(unmet)
        no_match = True
        for key in relation.affinity_keys:
            topology = self._topologies[key]
            occupied = topology.of_pods(state, relation.affinity, terminating=True) > 0
            met = occupied[topology.domain]
            no_match = no_match and not met.any()
            unmet |= ~met
            lacking |= ~topology.present
        return lacking if no_match and relation.matches_itself else unmet
