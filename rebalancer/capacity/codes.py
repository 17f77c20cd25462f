"""What is said of nodes, of pods that wait and of groups: stable codes, named as Cluster Autoscaler's where they mean the same."""

from __future__ import annotations

import enum


class RemovalCode(enum.StrEnum):
    """Whether a node can go. Stable: users alert on them."""

    EMPTY = "Empty"
    """It can go: only pods that belong to it are on it."""
    REMOVABLE = "Removable"
    """It can go: all of its pods have landings elsewhere, together with those of the other nodes that can go."""
    BEING_REMOVED = "CurrentlyBeingDeleted"
    """It is being deleted, or announced to go."""
    CONTROL_PLANE = "ControlPlane"
    """It is labelled as one of the control plane."""
    DISABLED = "ScaleDownDisabled"
    """An annotation says that it stays."""
    NOT_READY = "NotReady"
    """It is not Ready and pods are on it, or its object cannot be read."""
    NO_GROUP = "NotInGroup"
    """Its machine is in no group of the provider."""
    MIN_SIZE = "NodeGroupMinSizeReached"
    """Its group would fall below its minimum."""
    TOO_FULL = "NotUnderutilized"
    """More of it is requested than ``capacity.under`` allows."""
    NEEDED = "NeededByPendingPod"
    """It has room for a pod that waits, which the scheduler has not placed yet."""
    POD_STAYS = "BlockedByPod"
    """A pod on it may not be moved: a protection, or a PodDisruptionBudget."""
    RULE_BREAKS = "PolicyRuleWouldBreak"
    """Its pods have landings elsewhere, but a rule of the policy that holds now would break there."""
    NO_PLACE = "NoPlaceToMovePods"
    """Its pods have no landings elsewhere, together with those of the other nodes that can go."""


GOES = frozenset({RemovalCode.EMPTY, RemovalCode.REMOVABLE})
"""The codes of nodes that can go."""


class ScaleInCode(enum.StrEnum):
    """What scale-in does to a node, or waits for. Stable: users alert on them."""

    UNNEEDED = "Unneeded"
    """It could go; once it could for long enough, it is taken out."""
    NEEDED = "NeededAgain"
    """It could have gone, and cannot any more: what was written on it is taken away."""
    COOLING_DOWN = "CoolingDown"
    """It could be taken out, but nothing is for a while: a node has joined, or one had to be given back."""
    ENOUGH_AT_ONCE = "EnoughAtOnce"
    """It could be taken out, but as many as may be at once are on their way."""
    TAKEN_OUT = "TakenOut"
    """It is cordoned and tainted, and its pods are moved away."""
    EMPTYING = "Emptying"
    """Pods are still on it."""
    TERMINATED = "Terminated"
    """It was empty: the end of its machine was asked for, and its group is smaller by one."""
    ENDING = "Ending"
    """Its machine has left the group; the cloud controller removes the node."""
    GIVEN_BACK = "GivenBack"
    """It is open again."""
    FAILED = "Failed"
    """It could not be done; it is open again, or tried again by the next run."""


class PodCode(enum.StrEnum):
    """What a pod waits for. Stable: users alert on them."""

    FITS = "Fits"
    """A node that is there has room for it: the scheduler has not placed it yet."""
    COMING = "NodeOnItsWay"
    """A machine that was asked for before, and is no ready node yet, would take it."""
    GROWS = "GroupGrows"
    """New nodes of a group would take it."""
    MAX_SIZE = "NodeGroupMaxSizeReached"
    """New nodes of a group would take it, but the group is as large as it may be."""
    BARRED = "GroupMayNotGrow"
    """New nodes of a group would take it, but the group failed to grow, or has just grown."""
    NO_GROUP = "NoGroupFits"
    """No new node of any group would take it."""
    OF_NODE = "BelongsToNode"
    """A DaemonSet has made it for one node: no other one would take it."""
    REJECTED = "Rejected"
    """The scheduler looks at no node for it: a scheduling gate, or a claim that is missing."""
    UNPREDICTABLE = "NotPredictable"
    """What its scheduler would do is not known."""
    EXPENDABLE = "Expendable"
    """Its priority is below -10: nothing grows for it."""
    TOO_YOUNG = "TooYoung"
    """The scheduler has not refused it yet, or it waits for less than ``newPodDelay``."""


class GroupCode(enum.StrEnum):
    """Why a group does not help a pod. Stable: users alert on them."""

    MAX_SIZE = "MaxSizeReached"
    """A new node would take it, but the group is as large as it may be."""
    BACKS_OFF = "BacksOff"
    """A new node would take it, but the machines that were asked for last did not come: it is tried again later."""
    COOLS_DOWN = "CoolsDown"
    """A new node would take it, but the group has just grown."""
    NO_TEMPLATE = "NoTemplate"
    """It has no live node, and nothing says what a new one would be."""
    FILTERED = "Filtered"
    """The scheduler would refuse a new node."""
