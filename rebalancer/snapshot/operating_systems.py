"""The nodes whose operating system runs the pods of a class.

kube-scheduler compares no operating systems: the kubelet of another one refuses the pod (``PodOSNotSupported``,
``pkg/kubelet/lifecycle/predicate.go``), or its image does not run there. So a prediction may name such a node.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property

import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s, freeze
from rebalancer.snapshot.labels import MISSING, NodeLabels

OS_LABEL = "kubernetes.io/os"
"""Label that each kubelet sets on its node."""

_Systems = frozenset[str]


class OperatingSystems:
    """The operating systems of nodes, and those on which classes run."""

    def __init__(
        self,
        labels: NodeLabels,
        asked: Sequence[str],
        groups: Sequence[Sequence[Hashable]],
        ready: tuple[Int32s, Int32s],
    ) -> None:
        """``asked`` (C,): ``spec.os.name`` of each class, or empty.

        ``groups`` (C,): per class the sets of pods to which it belongs, the closest first. ``ready``: class and node
        of each Ready pod.
        """
        self._of_node, self._names = labels.column(OS_LABEL), labels.values(OS_LABEL)
        self._asked, self._groups, self._ready = asked, groups, ready
        self._foreign: dict[_Systems, Bools | None] = {}

    def foreign(self, cls: int) -> Bools | None:
        """Return the nodes (N,) of another operating system than pods of a class run on; None if there are none.

        They run on the one that ``spec.os`` names, else on those of the nodes where pods of the closest group are
        Ready. A node without the label is none of another. The array is shared and read-only.
        """
        systems = self._systems_of(cls)
        if not systems:
            return None
        if systems not in self._foreign:
            others = [at for at, name in enumerate(self._names) if name not in systems]
            mask = np.isin(self._of_node, others)
            self._foreign[systems] = freeze(mask) if mask.any() else None
        return self._foreign[systems]

    def _systems_of(self, cls: int) -> _Systems:
        if asked := self._asked[cls]:
            return frozenset({asked})
        if len(self._names) < 2:
            return frozenset()  # as in most clusters
        return next((of for group in self._groups[cls] if (of := self._seen.get(group))), _NONE)

    @cached_property
    def _seen(self) -> dict[Hashable, _Systems]:
        """Group -> the operating systems on which its pods are Ready."""
        cls, node = self._ready
        of_pod = self._of_node[node]
        known = of_pod != MISSING
        pairs = np.unique(cls[known].astype(np.int64) * len(self._names) + of_pod[known])
        seen: dict[Hashable, _Systems] = {}
        for of_class, at in zip(*np.divmod(pairs, len(self._names)), strict=True):
            for group in self._groups[int(of_class)]:
                seen[group] = seen.get(group, _NONE) | {self._names[int(at)]}
        return seen


_NONE: _Systems = frozenset()
