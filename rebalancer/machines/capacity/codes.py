"""The codes for nodes, pending pods and groups: stable, and equal to Cluster Autoscaler's where the meaning is equal."""

from __future__ import annotations

import enum


class RemovalCode(enum.StrEnum):
    """Whether a node can be removed. Stable: users alert on the values."""

    EMPTY = "Empty"
    """It can be removed: only pods that belong to it are on it."""
    REMOVABLE = "Removable"
    """It can be removed: all of its pods have landings elsewhere, together with those of the other removable nodes."""
    NOT_SELECTED = "NotSelected"
    """The ``select`` of the policy's strategy that removes machines leaves it out."""
    BEING_REMOVED = "CurrentlyBeingDeleted"
    """It is being deleted, or announced to go."""
    CONTROL_PLANE = "ControlPlane"
    """It is labelled as one of the control plane."""
    DISABLED = "ScaleDownDisabled"
    """An annotation disables its scale-in."""
    NOT_READY = "NotReady"
    """It is not Ready and pods are on it, or its object cannot be read."""
    NO_GROUP = "NotInGroup"
    """Its machine is in no group of the provider."""
    BEING_REPLACED = "GroupBeingReplaced"
    """The machines of its group are being replaced (``replace --surge``): until that ends, runs remove none."""
    MIN_SIZE = "NodeGroupMinSizeReached"
    """Its group would fall below its minimum."""
    TOO_FULL = "NotUnderutilized"
    """More of it is requested than ``capacity.under`` allows."""
    NEEDED = "NeededByPendingPod"
    """It has room for a pending pod, which the scheduler has not placed yet, or is one of those that the policy's ``slots`` keep free."""
    POD_STAYS = "BlockedByPod"
    """A pod on it may not be moved: a protection, or a PodDisruptionBudget."""
    RULE_BREAKS = "PolicyRuleWouldBreak"
    """Its pods have landings elsewhere, but a rule of the policy that holds now would break there."""
    NO_PLACE = "NoPlaceToMovePods"
    """Its pods have no landings elsewhere, together with those of the other removable nodes."""


REMOVABLE_CODES = frozenset({RemovalCode.EMPTY, RemovalCode.REMOVABLE})
"""The codes of nodes that can be removed."""


class ScaleInCode(enum.StrEnum):
    """What scale-in does with a node, or waits for. Stable: users alert on the values."""

    UNNEEDED = "Unneeded"
    """It can be removed; once it could for long enough, it is drained."""
    NEEDED = "NeededAgain"
    """It was unneeded, and is needed again: the annotation is removed."""
    COOLDOWN = "InCooldown"
    """It would be drained, but not during a cool-down: a node has joined, or a scale-in has failed."""
    ENOUGH_AT_ONCE = "EnoughAtOnce"
    """It would be drained, but as many nodes as may be at once are being removed."""
    DRAIN_STARTED = "DrainStarted"
    """It is cordoned and tainted, and the planner drains it."""
    DRAINING = "Draining"
    """Pods are still on it."""
    TERMINATED = "Terminated"
    """It was empty: the termination of its machine was requested, and its group is smaller by one."""
    TERMINATING = "Terminating"
    """Its machine has left the group; the cloud controller removes the node."""
    CANCELLED = "Cancelled"
    """Its scale-in was cancelled: it is untainted, and uncordoned."""
    FAILED = "Failed"
    """Its scale-in has failed: it is untainted and uncordoned, or the next run tries again."""


class PodCode(enum.StrEnum):
    """What helps a pending pod. Stable: users alert on the values."""

    FITS = "Fits"
    """An existing node has room for it: the scheduler has not placed it yet."""
    UPCOMING = "NodeUpcoming"
    """An upcoming machine would take it: requested before, and no ready node yet."""
    TRIGGERED = "GroupGrows"
    """New nodes of a group would take it."""
    MAX_SIZE = "NodeGroupMaxSizeReached"
    """New nodes of a group would take it, but the group, or the cluster, is as large as it may be."""
    GROUP_BLOCKED = "GroupMayNotGrow"
    """New nodes of a group would take it, but the group is in a back-off after a failure, launches none now, or cools down."""
    NO_GROUP = "NoGroupFits"
    """No new node of any group would take it."""
    OF_NODE = "BelongsToNode"
    """A DaemonSet has made it for one node: no other one would take it."""
    REJECTED = "Rejected"
    """The scheduler looks at no node for it: a scheduling gate, or a claim that is missing."""
    UNPREDICTABLE = "NotPredictable"
    """What its scheduler would do is not known."""
    EXPENDABLE = "Expendable"
    """Its priority is below -10: it triggers no scale-out."""
    TOO_YOUNG = "TooYoung"
    """It is not Unschedulable yet, or younger than ``newPodDelay``."""


class GroupCode(enum.StrEnum):
    """Why a group does not help a pod. Stable: users alert on the values."""

    MAX_SIZE = "MaxSizeReached"
    """A new node would take it, but the group is as large as it may be."""
    CLUSTER_FULL = "ClusterMaxNodesReached"
    """A new node would take it, but the cluster has as many as ``capacity.maxNodes`` allows."""
    FOREIGN = "NotOfThisCluster"
    """A new node would take it, but none of the group's machines has become a node here for 15 minutes: it may be of another cluster."""
    BACKOFF = "InBackoff"
    """A new node would take it, but the group is in a back-off after a failure."""
    UNHEALTHY = "Unhealthy"
    """A new node would take it, but too many nodes of the group are not Ready."""
    SUSPENDED = "LaunchSuspended"
    """A new node would take it, but the provider launches no machines of the group now."""
    COOLDOWN = "InCooldown"
    """A new node would take it, but the group cools down after a scale-out."""
    NO_TEMPLATE = "NoTemplate"
    """It has no live node, and nothing says what a new one would be."""
    FILTERED = "Filtered"
    """The scheduler would refuse a new node."""
