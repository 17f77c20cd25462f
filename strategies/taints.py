"""Taints: pods on nodes whose taints they do not tolerate."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
from pydantic import Field, field_validator

from rebalancer.api import (
    DomainTerm,
    Entry,
    Floats,
    Params,
    PodClass,
    PriceGroup,
    Term,
    View,
    least_with_room,
    tolerates,
)

# Set by the node controller, the kubelet and cloud providers while a condition lasts, and by kubectl
# cordon (pkg/apis/core: well_known_labels.go, staging/src/k8s.io/cloud-provider/api). What must go for
# their sake goes by NoExecute, by the kubelet's own eviction or by a drain.
_OF_CONDITIONS = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.cloudprovider.kubernetes.io/shutdown",
)


_ALL = 2**31


class TaintsParams(Params):
    """Options of taints. A taint is named by ``key``, or by ``key=value``."""

    prefer_no_schedule: bool = Field(
        default=False, description="Mend PreferNoSchedule, too (soft, one per taint)."
    )
    include: tuple[str, ...] = Field(
        default=(), description="Only these taints, as key or key=value; none means all."
    )
    exclude: tuple[str, ...] = Field(
        default=_OF_CONDITIONS,
        description="Not these taints, as key or key=value. Default: those of cordons and conditions.",
    )

    @field_validator("include", "exclude")
    @classmethod
    def _named(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for text in given:
            if not text.partition("=")[0].strip():
                raise ValueError(f"{text!r} names no taint; write key or key=value")
        return given

    def counts(self, key: str, value: str) -> bool:
        """Tell whether a taint of this key and value is to be mended."""
        names = {key, f"{key}={value}"}
        included = not self.include or not names.isdisjoint(self.include)
        return included and names.isdisjoint(self.exclude)


class Taints:
    """Moves pods off nodes with NoSchedule taints (by choice PreferNoSchedule) they do not tolerate.

    A node was tainted under its pods. Those of NoExecute taints go without us. Nodes marked for deletion
    are left to whoever marked them. Semantics: ``pkg/scheduler/framework/plugins/tainttoleration``.
    """

    Params = TaintsParams

    def terms(self, view: View, params: TaintsParams) -> Sequence[Term]:
        """Return a hard term (NoSchedule) and a soft one (PreferNoSchedule)."""
        hard = list(_no_schedule(view, params))
        soft = list(_prefer_no_schedule(view, params)) if params.prefer_no_schedule else []
        return [DomainTerm(view, Entry.HARD, hard), DomainTerm(view, Entry.SOFT, soft)]


def _classes(view: View) -> Iterator[tuple[str, list[int]]]:
    """Yield (owner, classes) for each owner and set of tolerations."""
    found: dict[tuple[int, Hashable], list[int]] = {}
    for cls, of_class in enumerate(view.snapshot.classes):
        if of_class.owner >= 0 and of_class.controller_kind not in ("DaemonSet", "Node"):
            found.setdefault((of_class.owner, _tolerations(of_class)), []).append(cls)
    for (owner, _), classes in found.items():
        yield view.snapshot.owners[owner].ref, classes


def _tolerations(of_class: PodClass) -> Hashable:
    return of_class.spec.tolerations or ()


def _untolerated(
    view: View, params: TaintsParams, effect: str, most: int
) -> Callable[[int], Floats]:
    """Return a function of a class to the untolerated taints (N,), counted up to ``most``.

    Classes with the same tolerations share one array.
    """
    nodes = view.snapshot.nodes
    sets = [
        [t for t in taints if t.effect == effect and params.counts(t.key, t.value)]
        for taints in nodes.taint_sets
    ]
    counted: dict[Hashable, Floats] = {}

    def of(cls: int) -> Floats:
        tolerations = view.snapshot.classes[cls].spec.tolerations or ()
        found = counted.get(tolerations)
        if found is None:
            of_set = [
                min(most, sum(not tolerates(tolerations, t) for t in taints)) for taints in sets
            ]
            found = np.array(of_set or [0], float)[nodes.taint_set] * ~nodes.leaving
            counted[tolerations] = found
        return found

    return of


def _no_schedule(view: View, params: TaintsParams) -> Iterator[PriceGroup]:
    untolerated = _untolerated(view, params, "NoSchedule", 1)
    for owner, classes in _classes(view):
        price = untolerated(classes[0])
        if not price.any():
            continue
        # No move can break this rule, since the scheduler filters by it: only what is broken matters.
        if not any(price[view.state.home_nodes(cls)].any() for cls in classes):
            continue
        replacement = view.snapshot.classes[classes[0]].replacement
        yield PriceGroup(
            view,
            label=owner,
            classes=np.array(classes, np.int32),
            price=price,
            least=0.0 if view.scheduler.static_mask(replacement).any() else np.inf,
            describe=_words(view, params, classes[0], "NoSchedule"),
        )


def _prefer_no_schedule(view: View, params: TaintsParams) -> Iterator[PriceGroup]:
    untolerated = _untolerated(view, params, "PreferNoSchedule", _ALL)
    for owner, classes in _classes(view):
        price = untolerated(classes[0])
        if not price.any():
            continue
        yield PriceGroup(
            view,
            label=owner,
            classes=np.array(classes, np.int32),
            price=price,
            least=least_with_room(view, classes, price),
            describe=_words(view, params, classes[0], "PreferNoSchedule"),
        )


def _words(view: View, params: TaintsParams, cls: int, effect: str) -> Callable[[int], str]:
    nodes = view.snapshot.nodes
    tolerations = view.snapshot.classes[cls].spec.tolerations or ()

    def of(node: int) -> str:
        names = [
            f"{t.key}={t.value}" if t.value else t.key
            for t in nodes.taint_sets[int(nodes.taint_set[node])]
            if t.effect == effect
            and params.counts(t.key, t.value)
            and not tolerates(tolerations, t)
        ]
        return (
            f"does not tolerate {', '.join(names) or 'nothing'} ({effect}) of {nodes.names[node]}"
        )

    return of
