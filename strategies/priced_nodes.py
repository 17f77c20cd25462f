"""What several strategies do with nodes that have a price: a group for the classes of each owner that pay it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rebalancer.api import DomainTerm, Entry, PodClass, PriceGroup, View


def tolerations(of_class: PodClass) -> Hashable:
    """Return what classes of one owner have to share to be in one group: they may go to the same nodes."""
    return of_class.spec.tolerations or ()


class EmptyingGroups:
    """Makes the group of an owner's classes: at once where a pod is to leave, else when a move concerns it."""

    def __init__(
        self,
        view: View,
        price: NDArray[np.float64],
        describe: Callable[[int], str],
        more: Callable[[int], float] | None = None,
    ) -> None:
        """``price`` (N,) is 0 on nodes that no pod has to leave; ``describe`` says of a node why pods have to leave it.

        ``more`` returns, for a class of replacements, what is added to the price of each node that has one.
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
        """Return the group of a class that has no pod on such a node yet."""
        owned = self._of_class.get(cls)
        return None if owned is None else self._group(*owned)

    def _group(self, owner: str, classes: list[int]) -> PriceGroup:
        view, price, free = self._view, self._price, self._price == 0
        replacement = view.snapshot.classes[classes[0]].replacement
        if self._more is not None:
            price = np.where(free, 0.0, price + self._more(replacement))
        possible = view.scheduler.static_mask(replacement) & free
        return PriceGroup(
            view,
            label=owner,
            classes=np.array(classes, np.int32),
            price=price,
            least=0.0 if possible.any() else np.inf,
            describe=self._describe,
        )


class EmptiedNodesTerm(DomainTerm):
    """The groups of one price: 1 for a pod on one of these nodes, 0 elsewhere. Hard: such a pod still has to move."""

    def __init__(self, view: View, nodes: Sequence[int], describe: Callable[[int], str]) -> None:
        """``describe`` says of a node why pods have to leave it."""
        price = np.zeros(len(view.snapshot.nodes))
        price[list(nodes)] = 1.0
        groups = EmptyingGroups(view, price, describe)
        super().__init__(view, Entry.HARD, list(groups.present()), groups.later)
