"""The node lifecycle conditions of Kubernetes (KEP-5683), and the reasons by which ours are known.

Kubernetes defines the types, and that any authorised client writes them; it defines no owner. A condition is ours by
its reason, as kubectl's are by theirs (``KubectlDrainStarted``).
"""

from __future__ import annotations

import enum


class Lifecycle(enum.StrEnum):
    """The types of the conditions that we set."""

    DRAINING = "DrainInProgress"
    DRAINED = "Drained"
    PLANNED = "MaintenancePlanned"
    MAINTAINED = "MaintenanceInProgress"


class LifecycleReason(enum.StrEnum):
    """Why a condition of ours is True: which of our components empties the node."""

    DRAIN = "RebalancerDrain"
    REPLACEMENT = "RebalancerReplacement"
    INTERRUPTION = "RebalancerInterruption"
    SCALE_IN = "RebalancerScaleIn"


_TYPES = frozenset(Lifecycle)
_REASONS = frozenset(LifecycleReason)


def is_ours(type_: str, reason: str) -> bool:
    """Return whether a node condition of this type and reason was set by us."""
    return type_ in _TYPES and reason in _REASONS
