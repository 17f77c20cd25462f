"""Filters and scores that depend on the node alone: node affinity, taints, cordons.

Sources: ``plugins/nodeaffinity``, ``plugins/tainttoleration``, ``plugins/nodeunschedulable``.

Source: ``plugins/nodedeclaredfeatures`` and ``InferForScheduling`` of each feature in
``component-helpers/nodedeclaredfeatures/features``. The features that are missing here have no scheduling
requirement, or are off (VolumeBindMountOptions of 1.37 is alpha: the API server drops the field).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from rebalancer.scheduler.topology import ArrayCache
from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.labels import unparsable
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.snapshot.nodes import STATE_TAINTS, UNSCHEDULABLE
from rebalancer.wire import objects as o
from rebalancer.wire.marks import ANY_MARK, TAINT
from rebalancer.wire.objects import SchedulingSpec

_HARD = ("NoSchedule", "NoExecute")
_PREFER = ("PreferNoSchedule",)


def tolerates(tolerations: Iterable[o.Toleration], taint: o.Taint) -> bool:
    """Return whether any toleration tolerates a taint (``Toleration.ToleratesTaint``).

    The operators Lt and Gt (KEP-5471) are alpha and off in 1.34 to 1.38: they tolerate nothing.
    """
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: o.Toleration, taint: o.Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


class Supposed:
    """Assumed changes of nodes compared with the snapshot."""

    def __init__(self, nodes: int) -> None:
        self.marked, self.removed = np.zeros((2, nodes), bool)
        """(N,) the nodes that are taken to carry a mark beside their own taints; and those that count as cordoned and tainted, as scale-in does it."""
        self.none = np.zeros(nodes, bool)
        """(N,) no node."""
        self.version = 0
        """Another number whenever something else is assumed."""
        self._newest = 0

    def renew(self) -> None:
        """Give the assumptions a number that was never used before."""
        self.version = self._newest = self._newest + 1

    @contextmanager
    def only(self, nodes: Int32s, supposed: Bools) -> Iterator[None]:
        """Let only ``nodes`` be set in ``supposed`` (N,), one of the two arrays, inside the ``with`` block."""
        before, version = supposed.copy(), self.version
        try:
            supposed[:] = False
            supposed[nodes] = True
            self.renew()
            yield
        finally:
            supposed[:] = before
            self.version = version


class NodePlacement:
    """Masks and raw scores (N,) per class, shared by classes with equal specs."""

    def __init__(
        self, snapshot: Snapshot, supposed: Supposed, added: o.NodeAffinity | None = None
    ) -> None:
        """``added``: node affinity that the scheduler's configuration adds to every pod."""
        self._snapshot, self._added = snapshot, added or o.NodeAffinity()
        self._cache = ArrayCache(len(snapshot.nodes))
        self._signatures: dict[int, tuple[Hashable, Hashable]] = {}
        self._unparsable: dict[int, str | None] = {}
        self._supposed = supposed

    def signature(self, cls: int) -> tuple[Hashable, Hashable]:
        """Return cache keys for the class's node affinity and for its tolerations."""
        signature = self._signatures.get(cls)
        if signature is None:
            spec = self._class(cls).spec
            selector = tuple(sorted((spec.node_selector or {}).items()))
            signature = ((selector, spec.required_nodes), spec.tolerations or ())
            self._signatures[cls] = signature
        return signature

    def affinity_mask(self, cls: int) -> Bools:
        """Return the nodes (N,) that nodeSelector and required node affinity allow."""
        return self._cache.get(
            ("affinity", self.signature(cls)[0]), lambda: self._affinity(self._class(cls).spec)
        )

    def enforced_mask(self) -> Bools | None:
        """Return the nodes (N,) that the scheduler's own affinity allows to every pod; None if it has none."""
        required = self._added.required
        if required is None:
            return None
        return self._cache.get("enforced", lambda: self._snapshot.nodes.labels.selector(required))

    def listed_names(self, cls: int) -> frozenset[str] | None:
        """Return the nodes that required node affinity lists by name; None if it does not.

        The scheduler then evaluates only these nodes (``nodeaffinity.PreFilter``).
        """
        required = self._class(cls).spec.required_nodes
        nodes: set[str] = set()
        for term in required.node_selector_terms if required is not None else ():
            named = [set(f.values or ()) for f in term.match_fields or () if f.operator == "In"]
            if not named:
                return None
            nodes |= set.intersection(*named)
        return frozenset(nodes) or None

    def taint_mask(self, cls: int) -> Bools:
        """Return the nodes (N,) without an untolerated NoSchedule or NoExecute taint."""
        return self._cache.get(
            ("taints", self.signature(cls)[1]), lambda: self._count_untolerated(cls, _HARD) == 0
        )

    def lasting_taint_mask(self, cls: int) -> Bools:
        """Return :meth:`taint_mask` without the taints that show a node's passing state; nodes about to be removed keep theirs."""

        def count() -> Bools:
            counts = self._count_untolerated(cls, _HARD, but=STATE_TAINTS)
            passes: Bools = (counts == 0) & ~self._snapshot.nodes.leaving
            return passes | self.taint_mask(cls)

        return self._cache.get(("lasting taints", self.signature(cls)[1]), count)

    def cordon_mask(self, cls: int) -> Bools:
        """Return the nodes (N,) that are schedulable, or whose cordon the class tolerates."""
        if tolerates(self._class(cls).spec.tolerations or (), UNSCHEDULABLE):
            return np.ones(len(self._snapshot.nodes), bool)
        return ~self._snapshot.nodes.unschedulable

    def find_removed(self, cls: int) -> Bools:
        """Return the nodes (N,) assumed to be cordoned and tainted by scale-in, which the class does not tolerate."""
        tolerations = self._class(cls).spec.tolerations or ()
        stays = all(tolerates(tolerations, taint) for taint in (UNSCHEDULABLE, TAINT))
        return self._supposed.none if stays else self._supposed.removed

    def find_marked(self, cls: int) -> Bools:
        """Return the nodes (N,) assumed to be marked, as far as the class does not tolerate that."""
        return self._supposed.none if self.tolerates_marks(cls) else self._supposed.marked

    def preferred_taints(self, cls: int) -> Ints:
        """Return per node (N,) the number of PreferNoSchedule taints, without marks, that the class does not tolerate."""
        return self._cache.get(
            ("prefer", self.signature(cls)[1]), lambda: self._count_untolerated(cls, _PREFER)
        )

    def tolerates_marks(self, cls: int) -> bool:
        """Return whether the class tolerates marks, so that marks have no effect on it."""
        return tolerates(self._class(cls).spec.tolerations or (), ANY_MARK)

    def preferred_affinity(self, cls: int) -> Ints | None:
        """Return per node (N,) the summed weights of matching preferred terms; None if there are none.

        The scheduler's own preferred terms are included.
        """
        preferred = (
            *self._class(cls).spec.preferred_nodes,
            *(self._added.preferred or ()),
        )
        if not preferred:
            return None
        return self._cache.get(("preferred", preferred), lambda: self._weights(preferred))

    def unparsable_preference(self, cls: int) -> str | None:
        """Return why the preferred node affinity of a class cannot be parsed; None if it can. Cached."""
        if cls not in self._unparsable:
            self._unparsable[cls] = _unparsable(self._class(cls).spec.preferred_nodes)
        return self._unparsable[cls]

    def _class(self, cls: int) -> PodClass:
        return self._snapshot.classes[cls]

    def _affinity(self, spec: o.SchedulingSpec) -> Bools:
        labels = self._snapshot.nodes.labels
        mask = labels.equal(spec.node_selector or {})
        required = spec.required_nodes
        return mask if required is None else mask & labels.selector(required)

    def _count_untolerated(
        self, cls: int, effects: tuple[str, ...], but: tuple[str, ...] = ()
    ) -> Ints:
        """Return per node (N,) the number of taints that a class does not tolerate, ``but`` those whose key begins so."""
        nodes = self._snapshot.nodes
        tolerations = self._class(cls).spec.tolerations or ()
        of_set = [
            sum(
                taint.effect in effects
                and not (taint.key.startswith(but) or tolerates(tolerations, taint))
                for taint in taints
            )
            for taints in nodes.taint_sets
        ]
        return np.array(of_set or [0], np.int64)[nodes.taint_set]

    def _weights(self, preferred: tuple[o.PreferredSchedulingTerm, ...]) -> Ints:
        total = np.zeros(len(self._snapshot.nodes), np.int64)
        for term in preferred:
            if term.weight:
                total += term.weight * self._snapshot.nodes.labels.term(term.preference)
        return total


def _unparsable(preferred: Iterable[o.PreferredSchedulingTerm]) -> str | None:
    for term in preferred:
        for requirement in term.preference.match_expressions or () if term.weight else ():
            if (why := unparsable(requirement)) is not None:
                return f"preferred node affinity: {why}"
    return None


def needed_features(spec: SchedulingSpec) -> Iterator[str]:
    """Yield the features that a kubelet must have to run the pod."""
    containers = (*spec.containers, *(spec.init_containers or ()))
    rules = (rule for container in containers for rule in container.restart_policy_rules or ())
    if any(rule.action == "RestartAllContainers" for rule in rules):
        yield "RestartAllContainersOnContainerExits"
    if spec.host_network and spec.host_users is False:
        yield "UserNamespacesHostNetworkSupport"


def declaring(snapshot: Snapshot, cls: int) -> Bools | None:
    """Return the nodes (N,) that declare all features a class needs; None if it needs none."""
    mask: Bools | None = None
    for feature in needed_features(snapshot.classes[cls].spec):
        none = np.zeros(len(snapshot.nodes), bool)
        has = snapshot.nodes.declared_features.get(feature, none)
        mask = has if mask is None else mask & has
    return mask
