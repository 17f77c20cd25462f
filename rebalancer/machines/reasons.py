"""The codes of machines and drains, and the sentences of reports with the names of their facts: one table of each.

Codes are stable, and equal to Cluster Autoscaler's where the meaning is equal: users alert on the values.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from rebalancer.cost.room_term import KEPT_FREE
from rebalancer.plan.plan import Code

CodeT = TypeVar("CodeT", bound=enum.StrEnum)


class DrainVerdict(enum.StrEnum):
    """The expected result for a node; the worst of its pods decides."""

    DRAINABLE = "drainable"
    """Its pods can go now, as far as is known."""
    WAITS = "waits"
    """Waits for work that comes to an end, for terminating pods, or for a rollout that will replace them."""
    BLOCKED = "blocked"
    """A PodDisruptionBudget allows no eviction now; healthy pods in a closed zone do not count in favour of pods elsewhere."""
    NO_ROOM = "no-room"
    """No landing is foreseen for a replacement."""
    NEVER = "never-satisfiable"
    """By a PodDisruptionBudget that allows nothing even while all of its pods are Ready."""
    MISCONFIGURED = "misconfigured"
    """Two PodDisruptionBudgets select one pod: the API refuses every eviction of it."""
    REFUSED = "refused"
    """Pods are on it that are evicted only if a flag says so."""


class FateReason(enum.StrEnum):
    """Why a pod on a node that is drained is evicted, waited for, left there, or refuses the drain."""

    ORDERED = "Ordered"
    """It is evicted: nothing forbids it."""
    DAEMON_SET = "DaemonSet"
    """Its DaemonSet would create it again on the same node."""
    MIRROR = "Mirror"
    """The kubelet runs it from a file: the API server cannot evict it."""
    NOT_SELECTED = "NotSelected"
    """``--pod-selector`` does not match it."""
    TERMINATING = "Terminating"
    """It is being deleted: the drain waits until it is gone."""
    BATCH = "Batch"
    """It does work that ends by itself, and that an eviction would lose."""
    DAEMON_SET_MISSING = "DaemonSetMissing"
    """The DaemonSet that it names does not exist."""
    LOCAL_DATA = "LocalData"
    """It has an emptyDir, whose data an eviction deletes."""
    NO_CONTROLLER = "NoController"
    """It has no controller that would recreate it."""
    OPTED_OUT = "OptedOut"
    """An annotation of it, its workload or its namespace forbids its eviction, always or for a time."""
    ROLLOUT = "Rollout"
    """The rollout of its Deployment has to end first."""
    OWN_POD = "OwnPod"
    """It runs the drain itself."""


class RemovalCode(enum.StrEnum):
    """Whether a node can be removed."""

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
    HELD = "HeldByProvider"
    """The provider cannot end just its machine now: the group is paused, say, or a rollout is under way."""
    MIN_SIZE = "NodeGroupMinSizeReached"
    """Its group would fall below its minimum."""
    MIN_TOTAL = "MinimalResourceLimitExceeded"
    """The cluster would have less of a resource than the ``min`` of the policy's ``capacity.total``."""
    ZONE_BACK = "ZoneIsBack"
    """Its zone takes pods again and has none yet, and an unmet rule of the policy asks for the zone: runs refill it."""
    TOO_FULL = "NotUnderutilized"
    """As much of it is requested as ``capacity.under``, or the option of its group, or more."""
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
    """What scale-in does with a node, or waits for."""

    UNNEEDED = "Unneeded"
    """It can be removed; once it could for long enough, it is drained."""
    NEEDED = "NeededAgain"
    """It was unneeded, and is needed again."""
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
    """What helps a pending pod."""

    FITS = "Fits"
    """An existing node has room for it: the scheduler has not placed it yet."""
    UPCOMING = "NodeUpcoming"
    """An upcoming machine would take it: requested before, and no ready node yet."""
    TRIGGERED = "GroupGrows"
    """New nodes of a group would take it."""
    MAX_SIZE = "NodeGroupMaxSizeReached"
    """New nodes of a group would take it, but the group, or the cluster, is as large as it may be."""
    GROUP_BLOCKED = "GroupMayNotGrow"
    """New nodes of a group would take it, but the group is in a back-off after a failure, launches none now, cools down, or its last machines did not help."""
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
    """Why a group does not help a pod."""

    MAX_SIZE = "MaxSizeReached"
    """A new node would take it, but the group is as large as it may be."""
    CLUSTER_FULL = "ClusterMaxNodesReached"
    """A new node would take it, but the cluster has as many as ``capacity.maxNodes`` allows."""
    TOTAL_REACHED = "ClusterMaxResourcesReached"
    """A new node would take it, but with it the cluster would have more of a resource than the ``max`` of ``capacity.total``."""
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
    NO_HELP = "DidNotHelp"
    """A new node would take it, but the group's last machines came in another zone, or as another type."""
    NO_TEMPLATE = "NoTemplate"
    """It has no live node, and nothing says what a new one would be."""
    FILTERED = "Filtered"
    """The scheduler would refuse a new node."""


class ScaleOutCode(enum.StrEnum):
    """Acts of scale-out on groups; the names of Cluster Autoscaler's events."""

    SCALED_OUT = "ScaledUpGroup"
    """The size of the group is increased for pending pods."""
    FAILED = "FailedToScaleUpGroup"
    """The provider refused a request: to increase the group is tried again after a back-off, to decrease it by the next run."""
    DECREASED = "DecreasedTargetSize"
    """Requested machines were not provisioned: the size of the group is decreased to the machines that it has."""
    BLOCKED = "GroupMayNotGrow"
    """It would be increased, but it is in a back-off after a failure, launches no machines now, cools down, or its last machines did not help."""
    LIMITED = "ClusterLimitReached"
    """It would be increased, but the cluster is as large as ``capacity.maxNodes`` or ``capacity.total`` allows."""


CODES: Mapping[str, type[enum.StrEnum]] = {
    "a pod in a drain": DrainVerdict,
    "a reason in a drain": FateReason,
    "a node that may be removed": RemovalCode,
    "a pending pod": PodCode,
    "a group of machines": GroupCode,
    "scale-in": ScaleInCode,
    "scale-out": ScaleOutCode,
}
"""What a code describes -> the enumeration with its meaning, for ``explain code``."""


class Reason(NamedTuple, Generic[CodeT]):
    """A code with its sentence: one of a table here, or a text that another party wrote; empty if the code is sufficient."""

    code: CodeT
    message: str = ""


class _Row(Generic[CodeT]):
    """One row of a table: a code, and a sentence with its facts in braces."""

    def __init__(self, code: CodeT, sentence: str) -> None:
        self.code, self.sentence = code, sentence

    def of(self, **facts: object) -> Reason[CodeT]:
        return Reason(self.code, self.sentence.format(**facts))


# fmt: off
class PodStays(_Row[FateReason], enum.Enum):
    """Why a drain does not evict a pod, by the rules on single pods."""

    OPTED_OUT = FateReason.OPTED_OUT, "{why}: --force evicts it anyway"
    ROLLOUT = FateReason.ROLLOUT, "it stays until its rollout is at its end: {why}"
    OWN_POD = FateReason.OWN_POD, "this command's own pod: run it elsewhere"
    NO_DAEMON_SET = FateReason.DAEMON_SET_MISSING, "there is no DaemonSet {daemon_set}: --force evicts its pods"
    DAEMON_SET = FateReason.DAEMON_SET, "a DaemonSet's pod: --ignore-daemonsets lets it stay"
    LOCAL_DATA = FateReason.LOCAL_DATA, "its emptyDir would be lost: --delete-emptydir-data says it may"
    NO_CONTROLLER = FateReason.NO_CONTROLLER, "no controller would recreate it: --force evicts it anyway"


class Obstacle(_Row[Code], enum.Enum):
    """Why the pre-flight of a drain refuses an eviction that the rules on single pods allow."""

    NO_NODE_EVER = Code.NO_ROOM, "no node that stays could ever take its replacement"
    GANG = Code.GANG, "{why}: --evict-gangs evicts the pods of {gang} one by one all the same"


class NodeStays(_Row[RemovalCode], enum.Enum):
    """Why a node cannot be removed."""

    NOT_SELECTED = RemovalCode.NOT_SELECTED, "the strategy's select leaves it out"
    LEAVING = RemovalCode.BEING_REMOVED, "it is being deleted, or announced to go"
    CONTROL_PLANE = RemovalCode.CONTROL_PLANE, "it is labelled {key}"
    DISABLED = RemovalCode.DISABLED, "it is {notice}"
    NOT_READY = RemovalCode.NOT_READY, "it is not Ready, and pods are on it"
    NO_GROUP = RemovalCode.NO_GROUP, "its machine is in no group of the provider"
    BEING_REPLACED = RemovalCode.BEING_REPLACED, "the machines of its group are being replaced"
    MIN_SIZE = RemovalCode.MIN_SIZE, "{group} has {have} nodes and needs {least}"
    MIN_TOTAL = RemovalCode.MIN_TOTAL, "of {resource} the cluster has {have} and needs {least}, and this node has {own}"
    ZONE_BACK = RemovalCode.ZONE_BACK, "runs refill {zone}, which {rule} asks for"
    TOO_FULL = RemovalCode.TOO_FULL, "{share:.0%} of its {resource} is requested, and nodes{group} stay from {least:.0%} on"
    FITS_POD = RemovalCode.NEEDED, "{pod} is pending, and fits on it"
    KEEPS_ROOM = RemovalCode.NEEDED, "room is kept on it for {pod}"
    SLOT = RemovalCode.NEEDED, KEPT_FREE


class NotIncreased(_Row[GroupCode], enum.Enum):
    """Why a group is not increased for a pod."""

    MAX_SIZE = GroupCode.MAX_SIZE, "it has {have} nodes and may have {most}"
    CLUSTER_FULL = GroupCode.CLUSTER_FULL, "the cluster may have {most} nodes"
    TOTAL_UNKNOWN = GroupCode.TOTAL_REACHED, "what the machines of {group} have of {resource} is not known, and capacity.total limits it"
    TOTAL_REACHED = GroupCode.TOTAL_REACHED, "of {resource} the cluster has {have} and may have {most}, and a new node has {own}"
    FOREIGN = GroupCode.FOREIGN, "it has machines, and none has been a node of this cluster since {since}"
    BACKOFF = GroupCode.BACKOFF, "{why}; back-off until {until}"
    COOLDOWN = GroupCode.COOLDOWN, "scaled out at {at}, and cools down"
    TRIED_IN_VAIN = GroupCode.NO_HELP, "{why}; back-off until {until}"
    ONE_TRIED_FIRST = GroupCode.NO_HELP, "{why}; one machine is tried first"
    NO_TEMPLATE = GroupCode.NO_TEMPLATE, "it has no live node, and the provider does not say what a new one would be"
    OTHER_SYSTEM = GroupCode.FILTERED, "a new node would be of another operating system than it runs on"


class ScaleInWaits(_Row[ScaleInCode], enum.Enum):
    """What scale-in waits for, or why it gives up a node."""

    UNNEEDED = ScaleInCode.UNNEEDED, "{why}; it is drained once it is unneeded for {time}"
    UNNEEDED_SINCE = ScaleInCode.UNNEEDED, "since {since}; it is drained once it is unneeded for {time}"
    MACHINES_COME = ScaleInCode.COOLDOWN, "{group} has {have} of {desired} machines"
    NODE_JOINED = ScaleInCode.COOLDOWN, "{node} has joined less than {time} ago"
    NODE_FAILED = ScaleInCode.COOLDOWN, "the scale-in of {node} has failed at {at}"
    AT_ONCE = ScaleInCode.ENOUGH_AT_ONCE, "{number} nodes are being removed, and atOnce is {most}"
    DRAINING_AT_ONCE = ScaleInCode.ENOUGH_AT_ONCE, "{number} nodes are being drained, and drainingAtOnce is {most}"
    STARTED = ScaleInCode.DRAIN_STARTED, "unneeded since {since}: {why}"
    SUSPENDED = ScaleInCode.DRAINING, "it is drained since {at}"
    JUDGED_LATER = ScaleInCode.DRAINING, "whether it can be removed is judged by the next run"
    JUST_CLOSED = ScaleInCode.DRAINING, "closed at {at}: the scheduler may have chosen it, and load balancers use it still"
    DELAYED = ScaleInCode.DRAINING, "it is empty, and {why}"
    STILL_THERE = ScaleInCode.DRAINING, "the termination of its machine was requested at {at}, and it is still there"
    TOO_SLOW = ScaleInCode.DRAINING, "it took more than {seconds:.0f} s to note that its machine is ended: the next run tries again"
    ENDING = ScaleInCode.TERMINATING, "the termination of its machine was requested at {at}: a later run looks again"
    ENDED = ScaleInCode.TERMINATING, "its machine was terminated at {at}: the cloud controller removes the node"
    LEFT_GROUP = ScaleInCode.TERMINATING, "its machine has left {group}: the cloud controller removes the node"
    TERMINATED = ScaleInCode.TERMINATED, "{machine} is terminated, and the size of {group} is decreased by one"
    TERMINATED_DESPITE = ScaleInCode.TERMINATED, "{machine} is terminated, and the size of {group} is decreased by one, although {why} after {seconds:.0f} s"
    NEEDED_AGAIN = ScaleInCode.CANCELLED, "it cannot be removed any more: {why}"
    NOT_REMOVED = ScaleInCode.CANCELLED, "not removed for {time}: {why}"
    NOT_EMPTIED = ScaleInCode.FAILED, "not empty after {time}: {left}"
# fmt: on
