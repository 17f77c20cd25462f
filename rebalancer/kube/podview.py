"""One pod, as far as its eviction has to know it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.wire.objects import Condition
from rebalancer.wire.opt_outs import opt_outs
from rebalancer.wire.pods import NO_ANNOTATIONS, PodAnnotations
from rebalancer.wire.times import unix_seconds


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod at one moment."""

    uid: str
    node: str
    """Empty while it has none."""
    deleting: bool
    ready: bool = True
    """Whether its condition Ready is True."""
    phase: str = "Running"
    opted_out: str | None = None
    """Why its annotations forbid the eviction, in the words of the protections; None if they allow it."""


class _Meta(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: PodAnnotations | None = None


class _Spec(msgspec.Struct, rename="camel", gc=False):
    node_name: str = ""


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    conditions: tuple[Condition, ...] | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Pod)


def decode_pod(body: bytes, now: float | None = None) -> PodView:
    """Return the pod in ``body``, as it is at ``now`` (Unix seconds; None: an opt-out for a time holds still).

    Raises:
        ClusterReadError: ``body`` is no pod.
    """
    try:
        pod = _decoder.decode(body)
    except (ValueError, RecursionError) as error:  # msgspec's DecodeError is a ValueError
        raise ClusterReadError(f"the API server's answer is not a pod: {error}") from None
    if not pod.metadata.uid:
        raise ClusterReadError("the API server's answer is not a pod: it has no uid")
    conditions = pod.status.conditions or ()
    return PodView(
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        deleting=pod.metadata.deletion_timestamp is not None,
        ready=any(c.type == "Ready" and c.status == "True" for c in conditions),
        phase=pod.status.phase,
        opted_out=_opted_out(pod, now),
    )


def _opted_out(pod: _Pod, now: float | None) -> str | None:
    # Without a time, nothing has ended yet.
    age, at = (0.0, -math.inf) if now is None else (now - _since(pod), now)
    annotations = pod.metadata.annotations or NO_ANNOTATIONS
    return next((own.text for own in opt_outs(annotations) if own.protects(age, at)), None)


def _since(pod: _Pod) -> float:
    """Return when the pod was Ready, else when it was created, as the protections of a snapshot count its age."""
    ready = [c for c in pod.status.conditions or () if c.type == "Ready" and c.status == "True"]
    return unix_seconds(ready[0].last_transition_time if ready else None) or unix_seconds(
        pod.metadata.creation_timestamp
    )
