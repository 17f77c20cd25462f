"""What it costs to evict each pod: 1 for an ordinary one."""

from __future__ import annotations

import numpy as np

from rebalancer.snapshot.columns import Floats
from rebalancer.snapshot.model import POD_INDEX, POD_NAME, PodClass, Snapshot

# Karpenter's weights of deletion cost and priority (designs/balanced-consolidation.md).
_DELETION_COST_SCALE = 2.0**27
_PRIORITY_SCALE = 2.0**25
_LEAST, _MOST = 0.1, 10.0
# A pod that just started is as reluctant as one that costs twice as much; that halves every hour.
_YOUTH = 1.0
_YOUTH_HALF_LIFE = 3600.0
# Far below any difference in cost; it only decides between equals.
_ORDER = 1e-6
_VOLUME = 0.5
_LONG_GRACE_SECONDS = 120
_LONG_GRACE = 0.25
_STATEFUL_SET = "StatefulSet.apps"


def eviction_cost(snapshot: Snapshot) -> Floats:
    """Return the cost (P,) from deletion cost, priority, volumes and grace period.

    ``clamp(1 + deletion cost / 2^27 + priority / 2^25, 0.1, 10)``, plus 0.5 for persistent volumes and 0.25
    for grace periods above two minutes. What a move must gain is measured by it, so it does not change
    with time: a cluster where a run had nothing to do stays one.
    """
    pods = snapshot.pods
    if not len(pods):
        return np.zeros(0)
    priority = np.array([c.priority for c in snapshot.classes], float)
    extra = np.zeros(len(snapshot.classes))
    for index, cls in enumerate(snapshot.classes):
        if any(v.persistent_volume_claim is not None for v in cls.spec.volumes or ()):
            extra[index] += _VOLUME
        if (cls.spec.termination_grace_period_seconds or 30) > _LONG_GRACE_SECONDS:
            extra[index] += _LONG_GRACE
    base = 1.0 + pods.deletion_cost / _DELETION_COST_SCALE + priority[pods.cls] / _PRIORITY_SCALE
    cost: Floats = np.clip(base, _LEAST, _MOST) + extra[pods.cls]
    return cost


def reluctance(snapshot: Snapshot) -> Floats:
    """Return by what factor (P,) pods are a later choice among their equals.

    From 1 to 2 for younger ones. Those of a StatefulSet are as young as the youngest of them, so that the highest
    ordinal goes first, as where it scales in or rolls; they differ by no more than that asks for.
    """
    pods = snapshot.pods
    if not len(pods):
        return np.zeros(0)
    ordinal = _ordinals(snapshot)
    youngest = np.zeros(len(snapshot.classes))
    np.maximum.at(youngest, snapshot.siblings[pods.cls], pods.created)
    numbered = np.isfinite(ordinal)
    created = np.where(numbered, youngest[snapshot.siblings[pods.cls]], pods.created)
    age = np.maximum(0.0, snapshot.captured_at - created)
    later = 1.0 + _YOUTH * 2.0 ** (-age / _YOUTH_HALF_LIFE)
    return later * (1.0 + _ORDER / (1.0 + ordinal))


def _ordinals(snapshot: Snapshot) -> Floats:
    """Return the ordinal (P,) of each pod of a StatefulSet, infinite for any other pod."""
    pods = snapshot.pods
    ordinals: Floats = np.array([_ordinal(cls) for cls in snapshot.classes], float)[pods.cls]
    # A file may lack these labels, and its pods are of one class then: their names have the ordinal, too.
    unlabelled = np.array(
        [c.controller == _STATEFUL_SET and _ordinal(c) == np.inf for c in snapshot.classes], bool
    )
    for pod in np.flatnonzero(unlabelled[pods.cls]).tolist():
        ordinals[pod] = _number(pods.name[pod].rpartition("-")[2])
    return ordinals


def _ordinal(cls: PodClass) -> float:
    """Return the ordinal of the one pod of a StatefulSet that is of ``cls``, infinite for any other class."""
    if cls.controller != _STATEFUL_SET:
        return np.inf
    return _number(cls.labels.get(POD_INDEX) or cls.labels.get(POD_NAME, "").rpartition("-")[2])


def _number(written: str) -> float:
    return float(written) if written.isdecimal() else np.inf
