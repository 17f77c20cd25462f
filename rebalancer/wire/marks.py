"""Records on nodes: a mark, the soft taint by which a run keeps pods off a node for a while; and the scale-in record.

The two reasons have separate keys, since a node has at most one taint per key and effect. The value is
``REASON.EXPIRY.RUN``, with the expiry in UTC as ``20261122T091500Z``. Values of taints follow the rules of label
values: at most 63 characters of ``[A-Za-z0-9._-]``, with an alphanumeric character first and last.

The record is one annotation, written in the same request as the cordon and the taint, so a killed run leaves a
complete step or none.

The node lifecycle conditions (KEP-5683) say the same to everybody. Kubernetes defines their types, and that any
authorised client writes them; it defines no owner. A condition is ours by its reason, as kubectl's are by theirs
(``KubectlDrainStarted``).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import msgspec

from rebalancer.wire.objects import Taint

NOT_BALANCED = "node.kubernetes.io/exclude-from-external-load-balancers"
"""Label of a node to which external load balancers send nothing. Upgrades set it, with a cordon, on the nodes to be replaced."""
EFFECT = "PreferNoSchedule"
STEER = "steer"
"""Reason of marks that exist until one replacement is bound."""
EMPTY = "empty"
"""Reason of marks on nodes that are being emptied, or are to be kept empty."""
PINS = "pins"
"""Reason of marks on nodes that protected pods pin: a pod that is recreated anyway then lands on another node."""
KEYS = {STEER: "rebalancer/mark", EMPTY: "rebalancer/empty", PINS: "rebalancer/empty"}
"""Reason -> key of the taint."""
KEY = KEYS[STEER]

_FORM = "%Y%m%dT%H%M%SZ"
_VALUE = re.compile(r"([a-z]{1,20})\.(\d{8}T\d{6}Z)\.([0-9a-z]{1,20})\Z", re.ASCII)

ANY_MARK = Taint(key=KEY, value=STEER, effect=EFFECT)
"""A taint that represents every mark in checks of tolerations: only ``Exists`` tolerates a value that changes."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The parsed value of a mark."""

    reason: str
    """The reason in lower-case letters."""
    expires: float
    """Unix seconds, to the second: from then on any run removes it."""
    run: str
    """Which run set it, or which Lease that run has taken; lower-case letters and digits."""

    @property
    def key(self) -> str:
        """The key of the taint."""
        return KEYS.get(self.reason, KEY)

    @property
    def value(self) -> str:
        """The value of the taint."""
        expires = datetime.fromtimestamp(int(self.expires), UTC)
        return f"{self.reason}.{expires.strftime(_FORM)}.{self.run}"


def parse_mark(value: str) -> Mark | None:
    """Parse the value of a mark; None if it is malformed."""
    match = _VALUE.match(value)
    if match is None:
        return None
    try:
        expires = datetime.strptime(match[2], _FORM).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return Mark(match[1], expires, match[3])


def is_mark(key: str, effect: str) -> bool:
    """Return whether a taint is a mark. A taint with one of our keys but another effect is not."""
    return key in KEYS.values() and effect == EFFECT


SCALE_IN = "rebalancer/scale-in"
"""Key of the annotation, and of the taint."""
TAINT = Taint(key=SCALE_IN, effect="NoSchedule")


class Phase(enum.StrEnum):
    """The phase of a node's scale-in, in which it is cordoned."""

    LEAVING = "leaving"
    """It is cordoned and tainted, and is being drained."""
    ENDING = "ending"
    """It was empty, and its machine is being terminated, or was: the Node is left to the cloud controller."""


def is_written(annotations: Mapping[str, str], taint_keys: Iterable[str | None]) -> bool:
    """Return whether a node has any trace of scale-in, readable or not."""
    return SCALE_IN in annotations or SCALE_IN in taint_keys


class ScaleInRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the annotation; times are RFC 3339."""

    phase: Phase
    since: str
    """Since when it is unneeded, without a break."""
    at: str
    """Start of the phase."""
    by: str = ""
    """The process that brought it there."""
    uid: str = ""
    """Uid of the Node: another Node with its name is another machine."""
    cordoned: bool = False
    """Whether it was us who cordoned it."""
    excluded: bool = False
    """Whether it was us who labelled it so that load balancers leave it out."""
    empty: str = ""
    """When it was first seen empty while something else was waited for, see ``rebalancer.machines.drain.remaining``."""
    release: str = ""
    """Namespace and name of the Lease under which it was written: another release leaves it alone. Empty: written without one."""
    why: str = ""
    """Why its machine is to be terminated a second time; empty: it was requested once at most."""
    accepted: str = ""
    """In the phase ``ending``: when the provider accepted the request; empty: no answer is known."""

    @property
    def value(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self).decode()


def scale_in_of(annotations: Mapping[str, str]) -> ScaleInRecord | None:
    """Return the scale-in record of a node; None if there is none, or it is malformed."""
    text = annotations.get(SCALE_IN)
    try:
        return None if text is None else msgspec.json.decode(text, type=ScaleInRecord)
    except (ValueError, RecursionError):
        return None


class _EarlierRecord(msgspec.Struct):
    phase: Literal["unneeded", "failed"]


def is_of_open_node(text: str) -> bool:
    """Return whether a record is of a phase of earlier versions, in which a node was neither cordoned nor tainted.

    Nothing has to be undone for it.
    """
    try:
        msgspec.json.decode(text, type=_EarlierRecord)
    except (ValueError, RecursionError):
        return False
    return True


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
