"""Placement: node labels that pods should prefer or avoid although their spec does not say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from rebalancer.api import (
    DomainTerm,
    Duration,
    Entry,
    Group,
    LabelsField,
    Params,
    PodClass,
    PriceGroup,
    Snapshot,
    Strategy,
    Term,
    View,
)


class PlacementParams(Params):
    """Options of placement. ``select`` says to which pods they apply."""

    avoid: LabelsField | None = Field(
        default=None, description="Labels of nodes that pods should not be on."
    )
    prefer: LabelsField | None = Field(
        default=None, description="Labels of nodes that pods should be on."
    )
    order: tuple[LabelsField, ...] = Field(
        default=(),
        max_length=8,
        description="Labels of nodes in the place of avoid and prefer, the best ones first; other nodes come last.",
    )
    settle_after: Duration = Field(
        default=timedelta(minutes=30),
        description="With order: younger nodes are no better than the best older one with room, since what comes and goes is not worth moves.",
    )
    hard: bool = Field(
        default=False,
        description="Weighs more than all soft rules and balance, and no move may break it.",
    )

    @model_validator(mode="after")
    def _asks_for_something(self) -> PlacementParams:
        if not (self.avoid or self.prefer or self.order):
            raise ValueError("placement needs avoid, prefer or order, with labels of nodes")
        if self.order and (self.avoid or self.prefer):
            raise ValueError("order takes the place of avoid and prefer: leave these out")
        return self


class Placement(Strategy):
    """Moves pods to preferred nodes and off nodes to avoid, by node labels that the pods do not name themselves.

    The scheduler does not know this rule: a pod is moved only if its replacement will land on a better node anyway.
    If the pod's own nodeSelector or node affinity names one of these labels, the pod's rule has precedence. Pods of a
    scheduler without a profile are not judged.
    """

    Params = PlacementParams

    def terms(self, view: View, params: PlacementParams) -> Sequence[Term]:
        """Return one term, hard or soft."""
        rule = _Rule(view, params)
        entry = Entry.HARD if params.hard else Entry.SOFT
        return [DomainTerm(view, entry, list(rule.find_broken()), rule.of_class)]

    def contradiction(
        self, snapshot: Snapshot, one: PlacementParams, other: PlacementParams
    ) -> str | None:
        """Return the labels that one configuration prefers and the other avoids; None if there are none."""
        for prefers, avoids in ((one, other), (other, one)):
            if prefers.prefer and avoids.avoid:
                both = snapshot.nodes_matching(prefers.prefer)
                both &= snapshot.nodes_matching(avoids.avoid)
                if count := int(np.count_nonzero(both)):
                    return f"one prefers what the other avoids ({count} nodes)"
        return None


class _Rule:
    """The price of a node for a pod: 1 if it is to be avoided, plus 1 if it is not preferred; or its place in the order."""

    def __init__(self, view: View, params: PlacementParams) -> None:
        self._view = view
        size = len(view.snapshot.nodes)
        self._avoided = _matching(view, params.avoid, np.zeros(size, bool))
        self._preferred = _matching(view, params.prefer, np.ones(size, bool))
        self._order = len(params.order)
        self._price: NDArray[np.float64] = (
            _places(view, params)
            if params.order
            else self._avoided.astype(float) + ~self._preferred
        )
        self._settled = _find_settled(view, params) if params.order else np.ones(size, bool)
        selects = (params.avoid, params.prefer, *params.order)
        self._keys = {key for each in selects if each for key in each.list_keys()}
        self._parts: dict[int, Mapping[int, list[int]]] = {}

    def find_broken(self) -> Iterator[Group]:
        """Yield the groups of owners with a pod on an unsuitable node; other groups are created on demand."""
        made: set[int] = set()
        for cls, _ in self._view.replaceable():
            nodes = self._view.state.home_nodes(cls)
            if cls in made or not self._price[nodes].any():
                continue
            if (group := self.of_class(cls)) is not None:
                made.update(group.members.tolist())
                yield group

    def of_class(self, cls: int) -> Group | None:
        """Return the group of a class, with others of its owner; None if the rule does not apply to its pods."""
        view = self._view
        owner = view.snapshot.classes[cls].owner
        of_class = view.snapshot.classes[cls]
        if owner < 0 or of_class.per_node or not view.scheduler.has_profile(of_class):
            return None
        if (classes := self._parts_of(owner).get(cls)) is None:
            return None
        price = self._price_for(view.snapshot.classes[classes[0]].replacement)
        return PriceGroup(
            view,
            label=view.snapshot.owners[owner].ref,
            classes=np.array(classes, np.int32),
            price=price,
            least=view.least_with_room(classes, price),
            describe=self._describe,
        )

    def _parts_of(self, owner: int) -> Mapping[int, list[int]]:
        """Return class -> the classes of its group, for the classes of an owner to which the rule applies."""
        if owner not in self._parts:
            view = self._view
            ruled = [
                cls
                for cls in view.classes_of_owner(owner).tolist()
                if self._keys.isdisjoint(_keys_of_pod(view.snapshot.classes[cls]))
            ]
            parts = view.split_by_landing(ruled)
            self._parts[owner] = {cls: part for part in parts for cls in part}
        return self._parts[owner]

    def _price_for(self, replacement: int) -> NDArray[np.float64]:
        """Return the price of each node (N,) for an owner whose pods are replaced by this class.

        A node that is not settled is no better than the best settled one with room for such a pod, or than the last place
        where none has room: pods neither move to it for its sake, nor off it.
        """
        if self._settled.all():
            return self._price
        view = self._view
        nodes = view.snapshot.nodes
        room = view.with_room(replacement)
        room = room & self._settled & nodes.ready & ~nodes.unschedulable & ~nodes.leaving
        floor = self._price[room].min() if room.any() else float(self._order)
        return np.where(self._settled, self._price, np.maximum(self._price, floor))

    def _describe(self, node: int) -> str:
        name = self._view.snapshot.nodes.names[node]
        if self._order:
            place = int(self._price[node]) + 1
            return f"{name} is place {place} of {self._order + 1} in the order"
        avoided, preferred = bool(self._avoided[node]), bool(self._preferred[node])
        if avoided:
            return f"{name} is to be avoided" + ("" if preferred else ", and not a preferred node")
        return f"{name} is {'as it should be' if preferred else 'not a preferred node'}"


def _places(view: View, params: PlacementParams) -> NDArray[np.float64]:
    """Return the place of each node (N,) in the order, from 0 on."""
    snapshot = view.snapshot
    places = np.full(len(snapshot.nodes), len(params.order), float)
    for place, labels in reversed(list(enumerate(params.order))):
        places[snapshot.nodes_matching(labels)] = place
    return places


def _find_settled(view: View, params: PlacementParams) -> NDArray[np.bool_]:
    """Return the nodes (N,) that have been there long enough; all of them where none has."""
    snapshot = view.snapshot
    age = snapshot.captured_at - snapshot.nodes.created
    settled: NDArray[np.bool_] = age >= params.settle_after.total_seconds()
    return settled if settled.any() else ~settled


def _matching(
    view: View, labels: LabelsField | None, otherwise: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    return view.snapshot.nodes_matching(labels) if labels else otherwise


def _keys_of_pod(of_class: PodClass) -> Iterator[str]:
    """Yield the node labels that the pod's own nodeSelector and node affinity name."""
    yield from of_class.spec.node_selector or ()
    affinity = of_class.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return
    required, preferred = affinity.node_affinity.required, affinity.node_affinity.preferred
    terms = [*(required.node_selector_terms if required is not None else ())]
    terms += [weighted.preference for weighted in preferred or ()]
    for term in terms:
        yield from (expression.key for expression in term.match_expressions or ())
