"""Groups for strategies that give nodes a price: one group for the classes of an owner."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rebalancer.api import DomainTerm, Entry, PodClass, PriceGroup, View


def tolerations(of_class: PodClass) -> Hashable:
    """Return a key; classes of one owner with equal keys pay the same price on each node."""
    return of_class.spec.tolerations or ()


def restrict_to_profiles(
    view: View, rule: Callable[[PodClass], Hashable]
) -> Callable[[PodClass], Hashable]:
    """Return ``rule`` without the pods of schedulers that have no profile: only these know which nodes suit them."""
    return lambda of_class: rule(of_class) if view.scheduler.has_profile(of_class) else None


class EmptyingGroups:
    """Creates the group of an owner's classes: at once if a pod has to leave, else when a move concerns it."""

    def __init__(
        self,
        view: View,
        price: NDArray[np.float64],
        describe: Callable[[int], str],
        more: Callable[[int], float] | None = None,
    ) -> None:
        """``price`` (N,) is 0 on nodes that no pod has to leave.

        ``describe`` returns why pods have to leave a node. ``more`` returns, for a class of replacements, an amount
        that is added to every price above 0.
        """
        self._view, self._price, self._describe, self._more = view, price, describe, more
        self._owned = list(view.replaceable_by(tolerations)) if price.any() else []
        self._of_class = {cls: owned for owned in self._owned for cls in owned[1]}

    def present(self) -> Iterator[PriceGroup]:
        """Yield the groups with a pod on a node that it has to leave."""
        for owner, classes in self._owned:
            homes = [self._view.state.home_nodes(cls) for cls in classes]
            if any(self._price[home].any() for home in homes):
                yield self._group(owner, classes)

    def later(self, cls: int) -> PriceGroup | None:
        """Return the group of a class without a pod on such a node."""
        owned = self._of_class.get(cls)
        return None if owned is None else self._group(*owned)

    def _group(self, owner: str, classes: list[int]) -> PriceGroup:
        view, price, free = self._view, self._price, self._price == 0
        replacement = view.snapshot.classes[classes[0]].replacement
        if self._more is not None:
            price = np.where(free, 0.0, price + self._more(replacement))
        possible = view.usable(replacement) & free
        return PriceGroup(
            view,
            label=owner,
            classes=np.array(classes, np.int32),
            price=price,
            least=0.0 if possible.any() else np.inf,
            describe=self._describe,
        )


class EmptiedNodesTerm(DomainTerm):
    """A hard term with the price 1 for each pod on one of ``nodes`` and 0 elsewhere: these pods have to move."""

    def __init__(self, view: View, nodes: Sequence[int], describe: Callable[[int], str]) -> None:
        """``describe`` returns why pods have to leave a node."""
        price = np.zeros(len(view.snapshot.nodes))
        price[list(nodes)] = 1.0
        groups = EmptyingGroups(view, price, describe)
        super().__init__(view, Entry.HARD, list(groups.present()), groups.later)
