"""Small clusters for tests of the cost: the view of one without strategies, and its classes by name."""

from __future__ import annotations

import numpy as np

from rebalancer.cost.groups import Domains
from rebalancer.cost.separable_groups import CapGroup
from rebalancer.cost.view import View
from tests.unit.planner.conftest import draft_of


def view_on(objects) -> View:
    return draft_of(objects, strategies=[]).view


def class_of(view: View, pod: str) -> int:
    """The class of the pod of this name."""
    return int(view.snapshot.pods.cls[list(view.snapshot.pods.name).index(pod)])


def classes(*indices: int) -> np.ndarray:
    return np.array(indices, np.int32)


def cap(view: View, pod: str, most: int, weight: float = 1.0) -> CapGroup:
    """At most so many pods of the class of ``pod`` on a node."""
    return CapGroup(
        view,
        label=pod,
        domains=Domains.nodes(view),
        counted=classes(class_of(view, pod)),
        cap=most,
        weight=weight,
    )


def move(view: View, pod: str, to: str) -> None:
    """Move a pod in the state."""
    index = list(view.snapshot.pods.name).index(pod)
    view.state.evict(index)
    view.state.place(index, class_of(view, pod), view.snapshot.nodes.index[to])
