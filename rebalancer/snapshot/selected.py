"""The pods that a ``select`` of the policy matches: a mask over classes and one over nodes, never over pairs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rebalancer.policy.cluster import Landings
from rebalancer.policy.model import Methods
from rebalancer.policy.select import NameFilter, NamespaceSelect, Select
from rebalancer.snapshot.columns import Bools, Int32s, freeze
from rebalancer.snapshot.labels import matches
from rebalancer.snapshot.model import PodClass, Snapshot


@dataclass(frozen=True, slots=True)
class Selected:
    """The pods of the classes (C,) that run on the nodes (N,)."""

    classes: Bools
    nodes: Bools

    @staticmethod
    def all_of(snapshot: Snapshot) -> Selected:
        """Return all pods of a snapshot."""
        return Selected(np.ones(len(snapshot.classes), bool), np.ones(len(snapshot.nodes), bool))

    def has(self, cls: int, node: int) -> bool:
        """Return whether pods of ``cls`` on ``node`` are selected."""
        return bool(self.classes[cls]) and bool(self.nodes[node])

    def pairs(self, cls: Int32s, node: Int32s) -> Bools:
        """Return which of these (class, node) pairs (K,) are selected."""
        both: Bools = self.classes[cls] & self.nodes[node]
        return both

    def pods(self, snapshot: Snapshot) -> Bools:
        """Return which pods (P,) are selected; pods without a node are not."""
        pods = snapshot.pods
        if not len(self.classes):
            return np.zeros(len(pods), bool)
        on = self.nodes[pods.node] if len(self.nodes) else np.zeros(len(pods), bool)
        return self.classes[pods.cls] & on & (pods.node >= 0)

    def with_waiting(self, snapshot: Snapshot) -> Bools:
        """Return which pods (P,) are selected; of pods without a node, those of the classes are."""
        pods = snapshot.pods
        if not len(self.classes):
            return np.zeros(len(pods), bool)
        return self.pods(snapshot) | self.classes[pods.cls] & (pods.node < 0)


def select_pods(snapshot: Snapshot, select: Select, *, unknown: bool = False) -> Selected | None:
    """Return the pods that ``select`` matches; None for all.

    ``unknown`` is the answer if the snapshot does not say: a PriorityClass that no pod and no file has, a claim that could not
    be read, a namespace without a known object. Selections that permit moves pass False, protections pass True.
    """
    if not select:
        return None
    rules = list(_rules(snapshot, select, unknown=unknown))
    of_class = [
        all(rule(index, cls) for rule in rules) for index, cls in enumerate(snapshot.classes)
    ]
    nodes = np.ones(len(snapshot.nodes), bool)
    if select.nodes is not None:
        nodes = snapshot.nodes_matching(select.nodes)
    return Selected(np.array(of_class, bool), nodes)


_Rule = Callable[[int, PodClass], bool]


def _rules(snapshot: Snapshot, select: Select, *, unknown: bool) -> Iterator[_Rule]:
    """Yield the conditions on a class, the cheapest first."""
    if select.namespaces:
        yield _namespaces(snapshot, select.namespaces, unknown=unknown)
    if select.min_replicas is not None:
        yield _replicas(snapshot, select.min_replicas)
    if select.owner_kinds:
        yield _kinds(snapshot, select.owner_kinds)
    if select.priority is not None:
        yield _priority(snapshot, select.priority.below, unknown=unknown)
    if select.labels is not None:
        labels = select.labels.wire()
        yield lambda _, cls: matches(labels, cls.labels)
    if select.pod_disruption_budget is not None:
        yield _budget(snapshot, wanted=select.pod_disruption_budget)
    if select.storage_classes:
        yield _storage(snapshot, select.storage_classes, unknown=unknown)


def _replicas(snapshot: Snapshot, least: int) -> _Rule:
    return lambda _, cls: cls.owner >= 0 and snapshot.owners[cls.owner].replicas >= least


def _kinds(snapshot: Snapshot, kinds: NameFilter) -> _Rule:
    def rule(_: int, cls: PodClass) -> bool:
        top = snapshot.owners[cls.owner].kind if cls.owner >= 0 else ""
        return kinds.admits(top, cls.controller_kind)

    return rule


# pkg/apis/scheduling/v1/helpers.go: SystemPriorityClasses.
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def priority_of_class(snapshot: Snapshot, name: str) -> int | None:
    """Return the value of a PriorityClass: its own if it is in a file, else the one that admission wrote into pods; None if neither exists.

    If a class was recreated with another value, several may be known; the lowest is returned, as it selects fewer.
    """
    if (known := _SYSTEM_CLASSES.get(name)) is not None:
        return known
    values = {c.priority for c in snapshot.classes if c.spec.priority_class_name == name}
    if name in snapshot.priority_classes:
        values.add(snapshot.priority_classes[name])
    return min(values, default=None)


def _priority(snapshot: Snapshot, below: int | str, *, unknown: bool) -> _Rule:
    limit = below if isinstance(below, int) else priority_of_class(snapshot, below)
    if limit is None:
        return lambda *_: unknown
    return lambda _, cls: cls.priority < limit


def _namespaces(snapshot: Snapshot, wanted: NamespaceSelect, *, unknown: bool) -> _Rule:
    labels = wanted.labels.wire() if wanted.labels is not None else None

    @cache
    def admits(namespace: str) -> bool:
        if not wanted.admits_name(namespace):
            return False
        if labels is None:
            return True
        # The API server labels each namespace with its name: one without labels was not read.
        of_namespace = snapshot.namespaces.get(namespace)
        return matches(labels, of_namespace) if of_namespace else unknown

    return lambda _, cls: admits(cls.namespace)


def _budget(snapshot: Snapshot, *, wanted: bool) -> _Rule:
    within: set[int] = set()
    for budget in snapshot.budgets:
        within.update(budget.classes.tolist())
    return lambda index, _: (index in within) is wanted


def _storage(snapshot: Snapshot, classes: NameFilter, *, unknown: bool) -> _Rule:
    def rule(_: int, cls: PodClass) -> bool:
        return all(
            unknown if name is None else classes.admits(name)
            for name in _storage_classes(snapshot, cls)
        )

    return rule


def _storage_classes(snapshot: Snapshot, cls: PodClass) -> Iterator[str | None]:
    """Yield the StorageClass of each claim of a class; None if it is unknown."""
    for volume in cls.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            key = cls.namespace, volume.persistent_volume_claim.claim_name
            claim = snapshot.volumes.claims.get(key)
            yield (claim.spec.storage_class_name or None) if claim is not None else None
        elif volume.ephemeral is not None:
            spec = (volume.ephemeral.get("volumeClaimTemplate") or {}).get("spec") or {}
            yield spec.get("storageClassName") or None


def union(parts: Sequence[Selected | None], snapshot: Snapshot) -> Bools:
    """Return the pods (P,) that at least one select matches; None among ``parts`` matches all."""
    mask: NDArray[np.bool_] = np.zeros(len(snapshot.pods), bool)
    for part in parts:
        if part is None:
            return np.ones(len(snapshot.pods), bool)
        mask |= part.pods(snapshot)
    return mask


def list_unresolved(snapshot: Snapshot, selects: Iterable[Select]) -> Iterator[str]:
    """Yield the PriorityClasses in ``selects`` whose value cannot be found in the snapshot."""
    for select in selects:
        below = select.priority.below if select.priority is not None else 0
        if isinstance(below, str) and priority_of_class(snapshot, below) is None:
            yield below


def with_avoided(snapshot: Snapshot, landings: Landings) -> Snapshot:
    """Return the snapshot with the nodes noted that ``landings`` excludes."""
    if landings.same_architecture:
        snapshot = replace(snapshot, same_architecture=True)
    nodes = snapshot.nodes
    avoided = np.zeros(len(nodes), bool)
    if landings.min_node_age is not None:
        # A node that comes back is as new as one that was made: what runs on every node has yet to start.
        since = np.maximum(nodes.created, nodes.ready_since)
        avoided |= snapshot.captured_at - since < landings.min_node_age.total_seconds()
    if landings.exclude is not None:
        avoided |= snapshot.nodes_matching(landings.exclude)
    if not avoided.any():
        return snapshot
    return replace(snapshot, nodes=replace(nodes, avoided=freeze(avoided)))


def grace_periods(snapshot: Snapshot, method: Methods, uids: Collection[str]) -> dict[str, int]:
    """Return uid -> grace period in seconds; an omitted pod keeps its own.

    The smallest matching ``select`` entry applies, and ``gracePeriod`` if none matches.
    """
    general = method.grace_period
    seconds = {} if general is None else dict.fromkeys(uids, int(general.total_seconds()))
    if not method.grace_periods:
        return seconds
    column = snapshot.pods.uid
    rows = column.rows_of(set(uids)).tolist()
    of_select: dict[str, int] = {}
    for rule in method.grace_periods:
        picked = select_pods(snapshot, rule.select)
        matching = None if picked is None else picked.pods(snapshot)
        for row in rows:
            if matching is None or matching[row]:
                asked = int(rule.grace_period.total_seconds())
                uid = column[row]
                of_select[uid] = min(asked, of_select.get(uid, asked))
    return seconds | of_select
