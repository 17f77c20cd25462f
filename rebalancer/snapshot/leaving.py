"""Announcements that a node will be removed: taints, conditions, annotations."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import msgspec

from rebalancer.wire import objects as o
from rebalancer.wire.annotations import REBOOTING, STAYS
from rebalancer.wire.marks import (
    SCALE_IN,
    Lifecycle,
    ScaleInRecord,
    is_ours,
    scale_in_of,
)
from rebalancer.wire.times import unix_seconds

LEAVE = "rebalancer/leave"
"""Annotation of a node that is to be empty by its value: a RFC 3339 time, or :data:`NOW`."""
NOW = "now"
"""Text in parentheses may follow: the source of the announcement."""
_NOW = re.compile(rf"{NOW}(?: \(.*\))?")
DRAIN = "rebalancer/drain"
"""Annotation by which ``rebalancer drain`` marks the nodes that it empties; it is valid while the node is cordoned and the drain has not given up."""
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
"""Soft taint of a node that Cluster Autoscaler would remove if nothing changes; it accepts pods as before."""


class Announcements(NamedTuple):
    """The default taints, conditions and annotations that announce that a node goes away."""

    taints: frozenset[str]
    """Keys of the taints of autoscalers and interruption handlers."""
    conditions: frozenset[str]
    """Types of the node lifecycle conditions (KEP-5683)."""


LEAVING = Announcements(
    taints=frozenset(
        {
            "ToBeDeletedByClusterAutoscaler",
            CANDIDATE,
            "karpenter.sh/disrupted",
            "karpenter.sh/disruption",
            "aws-node-termination-handler/scheduled-maintenance",
            "aws-node-termination-handler/spot-itn",
            "aws-node-termination-handler/asg-lifecycle-termination",
            "aws-node-termination-handler/rebalance-recommendation",
            "node.cloudprovider.kubernetes.io/shutdown",
            "cloud.google.com/impending-node-termination",
        }
    ),
    conditions=frozenset(
        {
            "GracefulNodeShutdownInProgress",
            *Lifecycle,
        }
    ),
)


KEEPS: Mapping[str, str] = {
    STAYS: "true",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotation -> value that forbids emptying a node in order to remove it."""


class _Drain(msgspec.Struct):
    """The part of the annotation ``rebalancer/drain`` that is needed here (``rebalancer.machines.drain.cordon.Order``)."""

    ended: bool = False
    excluded: bool = False


_drains = msgspec.json.Decoder(_Drain)


class NoticeKind(enum.StrEnum):
    """The kind of object field that an announcement comes from."""

    KEEP = "keep"
    """It forbids the removal of the node."""
    ANNOTATION = "annotation"
    DRAIN = "drain"
    SCALE_IN = "scale-in"
    """Scale-in is emptying it, or has."""
    NOTED = "noted"
    """A note of scale-in; the node is not removed for now."""
    CONDITION = "condition"
    SAID = "said"
    """A condition that shows our own work, or a record of a drain that has ended: it requests nothing."""
    CLAIM = "claim"
    """Karpenter is removing it, and empties it itself."""
    CANDIDATE = "candidate"
    """Karpenter may remove or replace it next; it accepts pods as before."""
    WORKED_ON = "worked-on"
    """A reboot, or a drain that has ended, cordoned only this node. It does not require that the pods leave."""


OF_KARPENTER = (NoticeKind.CLAIM, NoticeKind.CANDIDATE)
"""The kinds of notices that are read from Karpenter's objects."""


class Announcement(NamedTuple):
    """One announcement on a node, other than a taint."""

    kind: NoticeKind
    name: str
    """Name of the annotation, or type of the condition."""
    at: float | None
    """Unix seconds by which the node is to be empty, 0: now; None: the annotation's value is not understood."""
    text: str
    """The announcement in words."""
    scale_in: ScaleInRecord | None = None
    """The record of scale-in, for the last two kinds."""

    def holds(
        self,
        conditions: Collection[str],
        *,
        drains: bool = True,
        annotation: bool = True,
        scale_in: bool = True,
        until: float = math.inf,
    ) -> bool:
        """Return whether the announcement requires an empty node by ``until`` (Unix seconds).

        ``conditions``: the condition types that count; ``drains``, ``annotation`` and ``scale_in``: whether these
        kinds count.
        """
        match self.kind:
            case (
                NoticeKind.KEEP
                | NoticeKind.NOTED
                | NoticeKind.SAID
                | NoticeKind.WORKED_ON
                | NoticeKind.CLAIM
                | NoticeKind.CANDIDATE
            ):
                return False
            case NoticeKind.DRAIN:
                return drains
            case NoticeKind.SCALE_IN:
                return scale_in
            case NoticeKind.CONDITION:
                return self.name in conditions
            case NoticeKind.ANNOTATION:
                return annotation and self.at is not None and self.at <= until


def notices_of(node: o.Node) -> tuple[Announcement, ...]:
    """Return the announcements on a node. All its conditions with status True are included, except Ready.

    Our own conditions request nothing: their cause is announced by its record.
    """
    annotations = node.metadata.annotations or {}
    notices: list[Announcement] = []
    if (value := annotations.get(LEAVE)) is not None:
        at = 0.0 if _NOW.fullmatch(value) else unix_seconds(value) or None
        notices.append(
            Announcement(NoticeKind.ANNOTATION, LEAVE, at, f'annotated {LEAVE}: "{value}"')
        )
    drain = annotations.get(DRAIN)
    if node.spec.unschedulable and is_draining(drain):
        notices.append(Announcement(NoticeKind.DRAIN, DRAIN, 0.0, "drained by rebalancer drain"))
    if has_left_label(drain):
        text = "left out of load balancers by a drain that has ended"
        notices.append(Announcement(NoticeKind.SAID, DRAIN, 0.0, text))
    if node.spec.unschedulable:
        notices += _work_on(annotations)
    if (state := scale_in_of(annotations)) is not None:
        notices.append(scale_in_notice(state))
    notices += [
        Announcement(NoticeKind.KEEP, key, 0.0, f'annotated {key}: "{value}"')
        for key, value in KEEPS.items()
        if annotations.get(key) == value
    ]
    notices += [
        _condition_notice(condition)
        for condition in node.status.conditions or ()
        if condition.status == "True" and condition.type != "Ready"
    ]
    return tuple(notices)


def _work_on(annotations: Mapping[str, str]) -> Iterator[Announcement]:
    """Yield the announcements that only cordon this node, without requiring that its pods leave permanently."""
    if DRAIN in annotations and not is_draining(annotations[DRAIN]):
        yield Announcement(NoticeKind.WORKED_ON, DRAIN, 0.0, "cordoned by a drain that has ended")
    if REBOOTING in annotations:
        yield Announcement(NoticeKind.WORKED_ON, REBOOTING, 0.0, "rebooted by kured")


def _condition_notice(condition: o.Condition) -> Announcement:
    if is_ours(condition.type, condition.reason):
        text = f"condition {condition.type} ({condition.reason})"
        return Announcement(NoticeKind.SAID, condition.type, 0.0, text)
    return Announcement(NoticeKind.CONDITION, condition.type, 0.0, f"condition {condition.type}")


def is_draining(value: str | None) -> bool:
    """Return whether a value of ``DRAIN`` belongs to a drain that is running or was killed, not to one that gave up."""
    try:
        return value is not None and not _drains.decode(value).ended
    except (ValueError, RecursionError):
        return True


def has_left_label(value: str | None) -> bool:
    """Return whether a value of ``DRAIN`` belongs to a drain that has ended, and whose label is still on the node."""
    try:
        drain = None if value is None else _drains.decode(value)
    except (ValueError, RecursionError):
        return False
    return drain is not None and drain.ended and drain.excluded


def scale_in_notice(state: ScaleInRecord) -> Announcement:
    """Return the announcement for the scale-in record on a node."""
    why = f" ({state.why})" if state.why else ""
    text = f"scale-in: {state.phase} since {state.at}{why}"
    return Announcement(NoticeKind.SCALE_IN, SCALE_IN, 0.0, text, state)


def is_leaving(node: o.Node, notices: tuple[Announcement, ...]) -> bool:
    """Return whether the removal of a node is announced, so that no replacement should land on it."""
    if node.metadata.deletion_timestamp is not None:
        return True
    if any(taint.key in LEAVING.taints for taint in node.spec.taints or ()):
        return True
    return any(notice.holds(LEAVING.conditions) for notice in notices)
