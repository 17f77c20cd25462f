"""Which pods count for the default spread: the selector deduced from Services and the owner.

Source: ``plugins/helper/spread.go: DefaultSelector``.
"""

from __future__ import annotations

from rebalancer.snapshot.labels import matches_labels
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.objects import Labels, LabelSelector, LabelSelectorRequirement

_KINDS = ("ReplicaSet", "StatefulSet", "ReplicationController")


class DefaultSelectors:
    """Selectors for pods that declare no spread themselves."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._services: dict[tuple[str, str, str], list[Labels]] = {}
        for namespace, selector in snapshot.services:
            key, value = min(selector.items())
            self._services.setdefault((namespace, key, value), []).append(selector)

    def of(self, cls: int) -> LabelSelector | None:
        """Return the selector of a class, or None if neither a Service nor an owner yields one."""
        of_class = self._snapshot.classes[cls]
        labels: Labels = {}
        for key, value in of_class.labels.items():
            for selector in self._services.get((of_class.namespace, key, value), ()):
                if matches_labels(selector, of_class.labels):
                    labels.update(selector)
        required = [_is(key, value) for key, value in sorted(labels.items())]
        owner = self._snapshot.selectors.get(of_class.controller_uid)
        if owner is not None and of_class.controller_kind in _KINDS:
            required += [_is(key, value) for key, value in (owner.match_labels or {}).items()]
            required += owner.match_expressions or ()
        return LabelSelector(match_expressions=tuple(required)) if required else None


def _is(key: str, value: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator="In", values=(value,))
