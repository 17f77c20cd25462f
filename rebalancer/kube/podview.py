"""One pod, as far as its eviction has to know it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from rebalancer.errors import ClusterReadError


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod at one moment."""

    uid: str
    node: str
    """Empty while it has none."""
    deleting: bool


class _Meta(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel", gc=False):
    node_name: str = ""


class _Pod(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decoder = msgspec.json.Decoder(_Pod)


def decode_pod(body: bytes) -> PodView:
    """Return the pod in ``body``.

    Raises:
        ClusterReadError: ``body`` is no pod.
    """
    try:
        pod = _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ClusterReadError(f"the API server's answer is not a pod: {error}") from None
    if not pod.metadata.uid:
        raise ClusterReadError("the API server's answer is not a pod: it has no uid")
    return PodView(
        pod.metadata.uid, pod.spec.node_name, pod.metadata.deletion_timestamp is not None
    )
