"""One pod, as far as its eviction has to know it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from rebalancer.errors import ClusterReadError
from rebalancer.snapshot.protect import opt_out
from rebalancer.wire.objects import Condition
from rebalancer.wire.pods import NO_ANNOTATIONS, PodAnnotations


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
    annotations: PodAnnotations = NO_ANNOTATIONS

    @property
    def opted_out(self) -> str | None:
        """Why its annotations forbid the eviction, in the words of the protections; None if they allow it."""
        return opt_out(self.annotations)


class _Meta(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
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


def decode_pod(body: bytes) -> PodView:
    """Return the pod in ``body``.

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
        annotations=pod.metadata.annotations or NO_ANNOTATIONS,
    )
