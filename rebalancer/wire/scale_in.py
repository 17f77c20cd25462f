"""The scale-in record on a node, from which any later run can continue.

The record is one annotation, written in the same request as the cordon and the taint, so a killed run leaves a
complete step or none.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import msgspec

from rebalancer.wire.objects import Taint

KEY = "rebalancer/scale-in"
"""Of the annotation, and of the taint."""
TAINT = Taint(key=KEY, effect="NoSchedule")


class Phase(enum.StrEnum):
    """The phase of a node's scale-in."""

    UNNEEDED = "unneeded"
    """It can be removed, and nothing else was done to it."""
    LEAVING = "leaving"
    """It is cordoned and tainted, and is being drained."""
    ENDING = "ending"
    """It was empty, and its machine is being terminated, or was: the Node is left to the cloud controller."""
    FAILED = "failed"
    """Its scale-in has failed and was cancelled; nothing is removed during a cool-down."""


GOING = frozenset({Phase.LEAVING, Phase.ENDING})
"""The phases in which the node is cordoned."""


def is_written(annotations: Mapping[str, str], taint_keys: Iterable[str | None]) -> bool:
    """Return whether a node has any trace of scale-in, readable or not."""
    return KEY in annotations or KEY in taint_keys


class ScaleIn(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the annotation; times are RFC 3339."""

    phase: Phase
    since: str
    """Since when it is unneeded, without a break."""
    at: str
    """When that was seen last; from ``leaving`` on: when the phase began."""
    by: str = ""
    """The process that brought it there."""
    uid: str = ""
    """Of the Node, from ``leaving`` on: another one of its name is another machine."""
    cordoned: bool = False
    """Whether it was us who cordoned it."""
    excluded: bool = False
    """Whether it was us who labelled it so that load balancers leave it out."""
    empty: str = ""
    """When it was first seen empty while something else was waited for, see ``rebalancer.machines.capacity.writing.delay_of``."""
    release: str = ""
    """Namespace and name of the Lease under which it was written: another release leaves it alone. Empty: written without one."""
    why: str = ""
    """Of ``failed``; before: why its machine is to be terminated a second time."""

    @property
    def value(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self).decode()


def scale_in_of(annotations: Mapping[str, str]) -> ScaleIn | None:
    """Return the scale-in record of a node; None if there is none, or it is malformed."""
    text = annotations.get(KEY)
    try:
        return None if text is None else msgspec.json.decode(text, type=ScaleIn)
    except (ValueError, RecursionError):
        return None
