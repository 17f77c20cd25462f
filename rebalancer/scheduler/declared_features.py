"""NodeDeclaredFeatures: kubelet features that a pod needs (KEP-5328, on from 1.36).

Source: ``plugins/nodedeclaredfeatures`` and ``InferForScheduling`` of each feature in
``component-helpers/nodedeclaredfeatures/features``. The features that are missing here have no scheduling
requirement, or are off (VolumeBindMountOptions of 1.37 is alpha: the API server drops the field).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.objects import SchedulingSpec


def needed_features(spec: SchedulingSpec) -> Iterator[str]:
    """Yield the features that a kubelet must have to run the pod."""
    containers = (*spec.containers, *(spec.init_containers or ()))
    rules = (rule for container in containers for rule in container.restart_policy_rules or ())
    if any(rule.action == "RestartAllContainers" for rule in rules):
        yield "RestartAllContainersOnContainerExits"
    if spec.host_network and spec.host_users is False:
        yield "UserNamespacesHostNetworkSupport"


def declaring(snapshot: Snapshot, cls: int) -> Bools | None:
    """Return the nodes (N,) that declare all features a class needs; None if it needs none."""
    mask: Bools | None = None
    for feature in needed_features(snapshot.classes[cls].spec):
        none = np.zeros(len(snapshot.nodes), bool)
        has = snapshot.nodes.declared_features.get(feature, none)
        mask = has if mask is None else mask & has
    return mask
