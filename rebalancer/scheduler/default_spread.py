"""The pods that the default spread constraints count: those that Services and the owner select.

Source: ``plugins/helper/spread.go: DefaultSelector``.
"""

from __future__ import annotations

import numpy as np

from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.labels import matches_labels
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.wire.objects import Labels, LabelSelector, LabelSelectorRequirement

_KINDS = ("ReplicaSet", "StatefulSet", "ReplicationController")


class DefaultMatches:
    """The classes that default spread constraints count for a pod without constraints of its own."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._services: dict[tuple[str, str, str], list[Labels]] = {}
        for namespace, selector in snapshot.services:
            key, value = min(selector.items())
            self._services.setdefault((namespace, key, value), []).append(selector)
        self._siblings: dict[str, list[int]] | None = None

    def of(self, cls: int) -> Int32s | None:
        """Return the classes; None if neither a Service nor an owner gives a selector.

        If the owning ReplicaSet was not read (a file may lack it), its own pods are used instead of its selector;
        the result is the same unless two controllers compete for pods.
        """
        of_class = self._snapshot.classes[cls]
        required = self._of_services(of_class)
        owner = self._snapshot.selectors.get(of_class.controller_uid)
        unread = owner is None and of_class.controller_kind in _KINDS
        if owner is not None:
            required += [_is(key, value) for key, value in (owner.match_labels or {}).items()]
            required += owner.match_expressions or ()
        if not required and not unread:
            return None
        selector = LabelSelector(match_expressions=tuple(required))
        selected = self._snapshot.class_index.match([of_class.namespace], selector)
        return np.intersect1d(selected, self._of_controller(of_class)) if unread else selected

    def _of_services(self, of_class: PodClass) -> list[LabelSelectorRequirement]:
        labels: Labels = {}
        for key, value in of_class.labels.items():
            for selector in self._services.get((of_class.namespace, key, value), ()):
                if matches_labels(selector, of_class.labels):
                    labels.update(selector)
        return [_is(key, value) for key, value in sorted(labels.items())]

    def _of_controller(self, of_class: PodClass) -> Int32s:
        if self._siblings is None:
            self._siblings = {}
            for index, other in enumerate(self._snapshot.classes):
                self._siblings.setdefault(other.controller_uid, []).append(index)
        return np.array(self._siblings[of_class.controller_uid], np.int32)


def _is(key: str, value: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator="In", values=(value,))
