"""Node affinity: pods on nodes that their affinity no longer allows, or prefers less than another."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rebalancer.api import (
    DomainTerm,
    Entry,
    Params,
    PodClass,
    PriceGroup,
    Strategy,
    Term,
    View,
)
from strategies.priced_nodes import restrict_to_profiles

_Bools = NDArray[np.bool_]


class NodeAffinityParams(Params):
    """Options of node-affinity."""

    required: bool = Field(
        default=True, description="Fix nodeSelector and required node affinity (hard)."
    )
    preferred: bool = Field(
        default=True, description="Fix preferred node affinity (soft, by its weight)."
    )


class NodeAffinityStrategy(Strategy):
    """Moves pods off nodes that their node affinity forbids, or prefers less than one with room for them.

    Causes are a node's labels that changed, or preferred nodes that were full when the pod started. A preferred term
    of weight 100 counts as one pod; a pod is moved only if a node with room scores higher. Pods of a scheduler without a
    profile are not judged. Semantics: ``pkg/scheduler/framework/plugins/nodeaffinity``.
    """

    Params = NodeAffinityParams

    def terms(self, view: View, params: NodeAffinityParams) -> Sequence[Term]:
        """Return a hard term (nodeSelector and required terms) and a soft one (preferred terms)."""
        hard = list(_groups_of_required(view)) if params.required else []
        soft = list(_groups_of_preferred(view)) if params.preferred else []
        return [DomainTerm(view, Entry.HARD, hard), DomainTerm(view, Entry.SOFT, soft)]


def _rule_of_required(of_class: PodClass) -> Hashable:
    affinity, selector = of_class.spec.affinity, of_class.spec.node_selector
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    if not selector and required is None:
        return None
    return tuple(sorted((selector or {}).items())), required


class _Shared:
    """Prices per node (N,), one array for all classes with the same affinity."""

    def __init__(self) -> None:
        self._known: dict[
            tuple[int, int], tuple[_Bools | NDArray[np.int64], NDArray[np.float64]]
        ] = {}

    def below(
        self, best: int, values: _Bools | NDArray[np.int64], scale: float
    ) -> NDArray[np.float64]:
        """Return by how much each node is below ``best``, divided by ``scale`` (N,)."""
        # By identity: the scheduler model has one array for equal affinities; it is kept here.
        key = (id(values), best)
        if key not in self._known:
            price = np.maximum(0, best - values.astype(np.int64)) / scale
            self._known[key] = (values, price)
        return self._known[key][1]


def _groups_of_required(view: View) -> Iterator[PriceGroup]:
    shared = _Shared()
    names = view.snapshot.nodes.names
    rules = [
        (owner, classes, view.scheduler.node_affinity_mask(classes[0]))
        for owner, classes in view.replaceable_by(restrict_to_profiles(view, _rule_of_required))
    ]
    broken = _find_broken(view, rules)
    for owner, classes, allowed in rules:
        if broken.isdisjoint(classes):
            continue
        replacement = view.snapshot.classes[classes[0]].replacement
        yield PriceGroup(
            view,
            label=owner,
            classes=np.array(classes, np.int32),
            price=shared.below(1, allowed, 1.0),
            least=0.0 if view.usable(replacement).any() else np.inf,
            describe=lambda node: f"its nodeSelector or required affinity excludes {names[node]}",
        )


def _find_broken(view: View, rules: Sequence[tuple[str, list[int], _Bools]]) -> set[int]:
    """Return the classes with pods on nodes that their rules exclude.

    No move can violate such a rule, because the scheduler filters by it; so only these pods count.
    """
    # By identity, as above: nearly all of thousands of owners allow the same nodes.
    of_mask: dict[int, tuple[_Bools, list[int]]] = {}
    for _, classes, allowed in rules:
        of_mask.setdefault(id(allowed), (allowed, []))[1].extend(classes)
    broken: set[int] = set()
    for allowed, classes in of_mask.values():
        if not allowed.all():
            broken.update(view.pairs_on(~allowed, np.array(classes, np.int32))[0].tolist())
    return broken


def _rule_of_preferred(of_class: PodClass) -> Hashable:
    affinity = of_class.spec.affinity
    return affinity.node_affinity.preferred if affinity and affinity.node_affinity else None


def _groups_of_preferred(view: View) -> Iterator[PriceGroup]:
    shared = _Shared()
    for owner, classes in view.replaceable_by(restrict_to_profiles(view, _rule_of_preferred)):
        weights = view.scheduler.node_preference(classes[0])
        replacement = view.snapshot.classes[classes[0]].replacement
        possible = view.usable(replacement)
        if weights is None or not possible.any():
            continue
        best = int(weights[possible].max())
        price = shared.below(best, weights, 100.0)
        yield PriceGroup(
            view,
            label=owner,
            classes=np.array(classes, np.int32),
            price=price,
            least=view.least_with_room(classes, price),
            describe=_preference(view, weights, best),
        )


def _preference(view: View, weights: NDArray[np.int64], best: int) -> Callable[[int], str]:
    names = view.snapshot.nodes.names
    return lambda node: (
        f"preferred node affinity gives {names[node]} weight {weights[node]}, others {best}"
    )
