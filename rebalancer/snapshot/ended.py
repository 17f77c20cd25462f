"""Which pods that have ended may be removed, over a snapshot of them (``Snapshot.finished``)."""

from __future__ import annotations

import numpy as np

from rebalancer.policy.protect import Protect
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.model import PodClass, PodFlag, Snapshot
from rebalancer.snapshot.protect import JOB, RECREATING, Scope, bits_of, protect

NONE_ENDED: Int32s = np.zeros(0, np.int32)
"""Protections where no pods that have ended were read."""

_OF_RUNNING = bits_of(
    "singleReplica",
    "cannotSurge",
    "ownerUnsettled",
    "young",
    "job",
    "coolDown",
    "gang",
    "resizeDeferred",
)
"""Protections of what a pod does while it runs, and of moves that did not help: none replaces it anywhere."""


def done_with(finished: Snapshot, rules: Protect) -> Bools:
    """Return the pods (P,) that stand on a node and that their controllers are done with.

    ReplicaSets, StatefulSets and ReplicationControllers have made others, and so has a kind that the policy names as
    such. A Job is done with its pods when it has ended. Any other owner may still read what its pods have left, as
    people may of pods without a controller, and DaemonSets remove their own.
    """
    pods = finished.pods
    of_class = np.array([_done(cls, rules) for cls in finished.classes] or [False], bool)
    done: Bools = of_class[pods.cls] & (pods.node >= 0)
    done &= (pods.flags & (PodFlag.TERMINATING | PodFlag.MIRROR)) == 0
    return done


def _done(cls: PodClass, rules: Protect) -> bool:
    if cls.controller == JOB:
        return cls.job_ended
    known = cls.controller in RECREATING or cls.controller in rules.recreated_by
    return known and cls.spec.restart_policy == "Always"


def protect_ended(finished: Snapshot, rules: Protect, scope: Scope) -> Int32s:
    """Return the protections (P,) that keep each pod from being removed."""
    bits: Int32s = protect(finished, rules, scope) & ~_OF_RUNNING
    return bits
