"""Taints: pods on nodes whose taints they do not tolerate."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from rebalancer.api import (
    DomainTerm,
    Entry,
    Params,
    PriceGroup,
    Strategy,
    Term,
    View,
)
from strategies.priced_nodes import restrict_to_profiles, tolerations

# Set by the node controller, the kubelet and cloud providers while a condition is true, and by kubectl
# cordon (pkg/apis/core: well_known_labels.go, staging/src/k8s.io/cloud-provider/api). Pods that must leave
# such a node are evicted by NoExecute taints, by the kubelet or by a drain. Agents whose pods a node needs do the same, under
# names of their own: Cilium's operator taints each node while its agent restarts (set-cilium-node-taints), so that a
# rollout of it would move all pods; readiness.k8s.io is that of node-readiness-controller, nidhogg that of Nidhogg.
_OF_CONDITIONS = (
    "*not-ready",
    "readiness.k8s.io/*",
    "nidhogg.uswitch.com/*",
    "startup-taint.cluster-autoscaler.kubernetes.io/*",
    "ignore-taint.cluster-autoscaler.kubernetes.io/*",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.cloudprovider.kubernetes.io/shutdown",
)
_MARKS = ("rebalancer/mark", "rebalancer/empty")


_ALL = 2**31


class TaintsParams(Params):
    """Options of taints. A taint is given as ``key``, or as ``key=value``; ``*`` stands for any text."""

    prefer_no_schedule: bool = Field(
        default=False, description="Also fix PreferNoSchedule (soft, one per taint)."
    )
    include: tuple[str, ...] = Field(
        default=(), description="Only these taints, as for exclude; empty: all."
    )
    exclude: tuple[str, ...] = Field(
        default=_OF_CONDITIONS,
        description="Not these taints, as key or key=value, with * for any text. Default: those of cordons, of conditions, and of agents"
        " that are not ready.",
    )

    @field_validator("include", "exclude")
    @classmethod
    def _check_names(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for text in given:
            if not text.partition("=")[0].strip():
                raise ValueError(f"{text!r} names no taint; write key or key=value")
        return given

    def counts(self, key: str, value: str) -> bool:
        """Return whether pods on nodes with this taint should move."""
        if key in _MARKS:
            return False  # one that a killed run has left is to be removed, not the pods
        included = not self.include or names_taint(self.include, key, value)
        return included and not names_taint(self.exclude, key, value)


def names_taint(names: Iterable[str], key: str, value: str) -> bool:
    """Return whether one of ``names``, each ``key`` or ``key=value`` with ``*`` for any text, is that of the taint."""
    return any(fnmatchcase(key, one) or fnmatchcase(f"{key}={value}", one) for one in names)


class Taints(Strategy):
    """Moves pods off nodes with NoSchedule taints (optionally PreferNoSchedule) that they do not tolerate.

    Such a taint was added while the pods ran. Pods on nodes with NoExecute taints are evicted by Kubernetes. Nodes
    marked for deletion are ignored: whatever marked them also drains them. Pods of a scheduler without a profile, such as
    that of Fargate, are not judged. Semantics: ``pkg/scheduler/framework/plugins/tainttoleration``.
    """

    Params = TaintsParams

    def terms(self, view: View, params: TaintsParams) -> Sequence[Term]:
        """Return a hard term (NoSchedule) and a soft one (PreferNoSchedule)."""
        hard = list(_groups(view, params, "NoSchedule"))
        preferred = _groups(view, params, "PreferNoSchedule")
        soft = list(preferred) if params.prefer_no_schedule else []
        return [DomainTerm(view, Entry.HARD, hard), DomainTerm(view, Entry.SOFT, soft)]


def _count_untolerated(
    view: View, params: TaintsParams, effect: str, most: int
) -> Callable[[int], NDArray[np.float64]] | None:
    """Return a function from a class to its number of untolerated taints per node (N,), ``most`` at most.

    Classes with the same tolerations share one array. None is returned if no taint of any node counts.
    """
    nodes = view.snapshot.nodes
    sets = [
        [t for t in taints if t.effect == effect and params.counts(t.key, t.value)]
        for taints in nodes.taint_sets
    ]
    if not any(sets):
        return None
    cache: dict[Hashable, NDArray[np.float64]] = {}

    def of(cls: int) -> NDArray[np.float64]:
        tolerations = view.snapshot.classes[cls].spec.tolerations or ()
        numbers = cache.get(tolerations)
        if numbers is None:
            of_set = [
                min(most, sum(not view.scheduler.tolerates(cls, t) for t in taints))
                for taints in sets
            ]
            numbers = np.array(of_set or [0], float)[nodes.taint_set] * ~nodes.leaving
            cache[tolerations] = numbers
        return numbers

    return of


def _groups(view: View, params: TaintsParams, effect: str) -> Iterator[PriceGroup]:
    filtered = effect == "NoSchedule"
    untolerated = _count_untolerated(view, params, effect, 1 if filtered else _ALL)
    if untolerated is None:
        return
    for owner, classes in view.replaceable_by(restrict_to_profiles(view, tolerations)):
        price = untolerated(classes[0])
        if not price.any():
            continue
        if filtered:
            # No move can break this rule, since the scheduler filters by it: only pods that break it now count.
            if not any(price[view.state.home_nodes(cls)].any() for cls in classes):
                continue
            replacement = view.snapshot.classes[classes[0]].replacement
            least = 0.0 if view.usable(replacement).any() else np.inf
        else:
            least = view.least_with_room(classes, price)
        yield PriceGroup(
            view,
            label=owner,
            classes=np.array(classes, np.int32),
            price=price,
            least=least,
            describe=_words(view, params, classes[0], effect),
        )


def _words(view: View, params: TaintsParams, cls: int, effect: str) -> Callable[[int], str]:
    nodes = view.snapshot.nodes

    def of(node: int) -> str:
        names = [
            f"{t.key}={t.value}" if t.value else t.key
            for t in nodes.taint_sets[int(nodes.taint_set[node])]
            if t.effect == effect
            and params.counts(t.key, t.value)
            and not view.scheduler.tolerates(cls, t)
        ]
        return (
            f"does not tolerate {', '.join(names) or 'nothing'} ({effect}) of {nodes.names[node]}"
        )

    return of
