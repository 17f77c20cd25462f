"""PodTopologySpread: the constraints of a class, resolved once.

Source: ``plugins/podtopologyspread`` (``common.go``, ``filtering.go``, ``scoring.go``). Terminating pods do not
count. A constraint whose selector is empty (not absent) counts no pod but matches the pod itself, as in
``countPodsMatchSelector``.

Source: ``plugins/helper/spread.go: DefaultSelector``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rebalancer.scheduler.placement import NodePlacement
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.scheduler.topology import HOSTNAME, ZONE, ArrayCache, Topologies, Topology
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.labels import matches_labels
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.snapshot.owners import HASH
from rebalancer.wire.objects import (
    Labels,
    LabelSelector,
    LabelSelectorRequirement,
    TopologySpreadConstraint,
)

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ODD = (6.666666666666735130e-01, 2.857142874366239149e-01, 1.818357216161805012e-01)
_LAST_ODD = 1.479819860511658591e-01
_EVEN = (3.999999999940941908e-01, 2.222219843214978396e-01, 1.531383769920937332e-01)


@lru_cache(maxsize=4096)
def go_log(x: float) -> float:
    """Return the natural logarithm of a positive ``x``, equal to Go's ``math.Log``.

    Go uses FreeBSD's ``e_log.c``, which differs from the C library in the last bit for about one in a hundred small
    integers.
    """
    fraction, exponent = math.frexp(x)
    if fraction < math.sqrt(2) / 2:
        fraction, exponent = fraction * 2, exponent - 1
    f, k = fraction - 1, float(exponent)
    s = f / (2 + f)
    s2 = s * s
    s4 = s2 * s2
    odd = s2 * (_ODD[0] + s4 * (_ODD[1] + s4 * (_ODD[2] + s4 * _LAST_ODD)))
    even = s4 * (_EVEN[0] + s4 * (_EVEN[1] + s4 * _EVEN[2]))
    half = 0.5 * f * f
    return k * _LN2_HIGH - ((half - (s * (half + (odd + even)) + k * _LN2_LOW)) - f)


_KINDS = ("ReplicaSet", "StatefulSet", "ReplicationController")


class DefaultMatches:
    """The classes that default spread constraints count for a pod without constraints of its own."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._services: dict[tuple[str, str, str], list[Labels]] = {}
        for namespace, selector in snapshot.services:
            key, value = min(selector.items())
            self._services.setdefault((namespace, key, value), []).append(selector)
        self._siblings: dict[str, list[int]] | None = None

    def of(self, cls: int) -> Int32s | None:
        """Return the classes; None if neither a Service nor an owner gives a selector.

        If the owning ReplicaSet was not read (a file may lack it), its own pods are used instead of its selector;
        the result is the same unless two controllers compete for pods.
        """
        of_class = self._snapshot.classes[cls]
        required = self._of_services(of_class)
        owner = self._snapshot.selectors.get(of_class.controller_uid)
        unread = owner is None and of_class.controller_kind in _KINDS
        if owner is not None:
            # Pods that a restart creates are of another ReplicaSet than is known: it selects by their own hash.
            own = {HASH: of_class.labels[HASH]} if HASH in of_class.labels else {}
            names = (
                {**(owner.match_labels or {}), **own} if of_class.restarts else owner.match_labels
            )
            required += [_is(key, value) for key, value in (names or {}).items()]
            required += owner.match_expressions or ()
        if not required and not unread:
            return None
        selector = LabelSelector(match_expressions=tuple(required))
        selected = self._snapshot.class_index.match([of_class.namespace], selector)
        return np.intersect1d(selected, self._of_controller(of_class)) if unread else selected

    def _of_services(self, of_class: PodClass) -> list[LabelSelectorRequirement]:
        labels: Labels = {}
        for key, value in of_class.labels.items():
            for selector in self._services.get((of_class.namespace, key, value), ()):
                if matches_labels(selector, of_class.labels):
                    labels.update(selector)
        return [_is(key, value) for key, value in sorted(labels.items())]

    def _of_controller(self, of_class: PodClass) -> Int32s:
        if self._siblings is None:
            self._siblings = {}
            for index, other in enumerate(self._snapshot.classes):
                self._siblings.setdefault(other.controller_uid, []).append(index)
        return np.array(self._siblings[of_class.controller_uid], np.int32)


def _is(key: str, value: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator="In", values=(value,))


_HARD, _SOFT = "DoNotSchedule", "ScheduleAnyway"
SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=_SOFT),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=_SOFT),
)
"""The system's default constraints, ``podtopologyspread/plugin.go: systemDefaultConstraints``."""
_NONE = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint of a class."""

    topology: Topology
    max_skew: int
    min_domains: int
    classes: Int32s
    """The classes whose pods count."""
    matches_itself: bool
    eligible: Bools
    """(N,) nodes whose pods count."""
    domains: NDArray[np.intp]
    """The domains that have an eligible node."""


class Spread:
    """The topology spread constraints of each class."""

    def __init__(
        self, snapshot: Snapshot, profile: SchedulerProfile, placement: NodePlacement
    ) -> None:
        self._snapshot = snapshot
        self._placement = placement
        self._topologies = Topologies(snapshot.nodes.labels)
        self._matches = DefaultMatches(snapshot)
        self._counts_all = profile.counts_by_empty_selectors
        self._system = profile.default_constraints is None
        self._defaults = (
            SYSTEM_DEFAULTS if profile.default_constraints is None else profile.default_constraints
        )
        self._eligible = ArrayCache(len(snapshot.nodes))
        self._known: dict[tuple[int, str], tuple[Constraint, ...]] = {}
        self._absent: Bools | None = None

    def without(self, absent: Bools) -> None:
        """Treat nodes (N,) as absent from now on. A domain that has only such nodes does not exist."""
        self._absent = absent
        self._eligible = ArrayCache(len(self._snapshot.nodes))
        self._known.clear()

    def hard(self, cls: int) -> tuple[Constraint, ...]:
        """Return the DoNotSchedule constraints of a class."""
        return self._find(cls, _HARD)

    def soft(self, cls: int) -> tuple[Constraint, ...]:
        """Return the ScheduleAnyway constraints of a class."""
        return self._find(cls, _SOFT)

    def _find(self, cls: int, action: str) -> tuple[Constraint, ...]:
        constraints = self._known.get((cls, action))
        if constraints is None:
            constraints = self._known[cls, action] = self._resolve(cls, action)
        return constraints

    def ignored_nodes(self, cls: int) -> Bools:
        """Return the nodes (N,) that lack a key of the soft constraints of a class, and score 0."""
        return self._lacking(self.soft(cls) if self._all_keys(cls) else ())

    def _lacking(self, constraints: tuple[Constraint, ...]) -> Bools:
        """Return the nodes (N,) that lack a topology key of the constraints; shared for equal keys."""
        keys = tuple(sorted({constraint.topology.key for constraint in constraints}))

        def make() -> Bools:
            lacking = np.zeros(len(self._snapshot.nodes), bool)
            for key in keys:
                lacking |= ~self._topologies[key].present
            return lacking

        return self._eligible.get(("lacking", keys), make)

    def _all_keys(self, cls: int) -> bool:
        """Return whether nodes must carry all topology keys; False if the system's default constraints apply."""
        explicit = self._snapshot.classes[cls].spec.topology_spread_constraints
        return bool(explicit) or not self._system

    def _resolve(self, cls: int, action: str) -> tuple[Constraint, ...]:
        declared = self._snapshot.classes[cls].spec.topology_spread_constraints
        if declared:
            wanted = [c for c in declared if c.when_unsatisfiable == action]
            matching = [(c, self._classes(cls, c)) for c in wanted]
        else:
            wanted = [c for c in self._defaults if c.when_unsatisfiable == action]
            classes = self._matches.of(cls) if wanted else None
            if classes is None:
                return ()
            matching = [(c, (classes, True)) for c in wanted]
        keys = tuple(sorted({c.topology_key for c in wanted}))
        keys = keys if self._all_keys(cls) else ()
        return tuple(self._constraint(cls, c, keys, *counted) for c, counted in matching)

    def _constraint(
        self,
        cls: int,
        declared: TopologySpreadConstraint,
        keys: tuple[str, ...],
        classes: Int32s,
        itself: bool,
    ) -> Constraint:
        topology = self._topologies[declared.topology_key]
        eligible, domains = self._eligible_nodes(cls, declared, keys)
        return Constraint(
            topology=topology,
            max_skew=declared.max_skew,
            min_domains=1 if declared.min_domains is None else declared.min_domains,
            classes=classes,
            matches_itself=itself,
            eligible=eligible,
            domains=domains,
        )

    def _classes(self, cls: int, constraint: TopologySpreadConstraint) -> tuple[Int32s, bool]:
        classes = self._snapshot.spread_classes(cls, constraint)
        itself = bool((classes == cls).any())
        labels = self._snapshot.classes[cls].labels
        merged = any(key in labels for key in constraint.match_label_keys or ())
        if not self._counts_all and _is_empty(constraint.label_selector) and not merged:
            classes = _NONE
        return classes, itself

    def _eligible_nodes(
        self, cls: int, constraint: TopologySpreadConstraint, keys: tuple[str, ...]
    ) -> tuple[Bools, NDArray[np.intp]]:
        affinity, taints = self._placement.signature(cls)
        honour_affinity = constraint.node_affinity_policy != "Ignore"
        honour_taints = constraint.node_taints_policy == "Honor"
        topology = self._topologies[constraint.topology_key]
        signature = (
            topology.key,
            keys,
            affinity if honour_affinity else None,
            taints if honour_taints else None,
        )

        def make() -> tuple[Bools, NDArray[np.intp]]:
            mask = np.ones(len(self._snapshot.nodes), bool)
            for key in keys:
                mask &= self._topologies[key].present
            if honour_affinity:
                mask &= self._placement.affinity_mask(cls)
            if honour_taints:
                mask &= self._placement.taint_mask(cls)
            if self._absent is not None:
                mask &= ~self._absent
            return mask, np.unique(topology.domain[mask & topology.present])

        return self._eligible.get(signature, make)


def _is_empty(selector: LabelSelector | None) -> bool:
    return selector is not None and not selector.match_labels and not selector.match_expressions
