"""The nodes on whose operating system or architecture the pods of a class run.

kube-scheduler compares neither: the kubelet of another operating system refuses the pod (``PodOSNotSupported``,
``pkg/kubelet/lifecycle/predicate.go``), and an image may not exist for another architecture. So a prediction may name
such a node. If a pod's nodeSelector or required node affinity names the label, kube-scheduler applies it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property

import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s, freeze
from rebalancer.snapshot.labels import MISSING, NodeLabels
from rebalancer.wire.objects import SchedulingSpec

OS_LABEL, ARCH_LABEL = "kubernetes.io/os", "kubernetes.io/arch"
"""Labels that each kubelet sets on its node."""
LINUX = "linux"
"""The operating system of pods that do not exist yet, unless another one is given."""


def required_keys(spec: SchedulingSpec) -> set[str]:
    """Return the keys of the node labels that a nodeSelector or a required node affinity names."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    keys = {*(spec.node_selector or {})}
    for term in required.node_selector_terms if required is not None else ():
        keys.update(one.key for one in term.match_expressions or ())
    return keys


_Values = frozenset[str]
_NONE: _Values = frozenset()


class NativeNodes:
    """The values of one label of nodes, and those on which classes run."""

    def __init__(
        self,
        labels: NodeLabels,
        key: str,
        asked: Sequence[str],
        groups: Sequence[Sequence[Hashable]],
        ready: tuple[Int32s, Int32s],
    ) -> None:
        """``asked`` (C,): the value that the pods of each class require, or empty.

        ``groups`` (C,): per class the sets of pods to which it belongs, the closest first. ``ready``: class and node
        of each Ready pod.
        """
        self._of_node, self._values = labels.column(key), labels.values(key)
        self._asked, self._groups, self._ready = asked, groups, ready
        self._foreign: dict[_Values, Bools | None] = {}

    def foreign(self, cls: int) -> Bools | None:
        """Return the nodes (N,) of another value than pods of a class run on; None if there are none.

        They run on the value that they require, else on those of the nodes where pods of the closest group are Ready. A
        node without the label is never excluded. The array is shared and read-only.
        """
        return self.others(self.values_of(cls))

    def others(self, native: frozenset[str]) -> Bools | None:
        """Return the nodes (N,) whose label has another value than these; None if there are none, or ``native`` is empty.

        The array is shared and read-only.
        """
        if not native:
            return None
        if native not in self._foreign:
            others = [at for at, value in enumerate(self._values) if value not in native]
            mask = np.isin(self._of_node, others)
            self._foreign[native] = freeze(mask) if mask.any() else None
        return self._foreign[native]

    def values_of(self, cls: int) -> frozenset[str]:
        """Return the values of the nodes on which pods of ``cls`` run, as far as that is known."""
        if asked := self._asked[cls]:
            return frozenset({asked})
        if len(self._values) < 2:
            return _NONE  # as in most clusters
        return next((of for group in self._groups[cls] if (of := self._seen.get(group))), _NONE)

    @cached_property
    def _seen(self) -> dict[Hashable, _Values]:
        """Group -> the values of the nodes on which its pods are Ready."""
        cls, node = self._ready
        of_pod = self._of_node[node]
        known = of_pod != MISSING
        pairs = np.unique(cls[known].astype(np.int64) * len(self._values) + of_pod[known])
        seen: dict[Hashable, _Values] = {}
        for of_class, at in zip(*np.divmod(pairs, len(self._values)), strict=True):
            for group in self._groups[int(of_class)]:
                seen[group] = seen.get(group, _NONE) | {self._values[int(at)]}
        return seen
