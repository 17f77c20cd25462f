"""One pod, as far as a run in progress has to know it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from rebalancer.errors import ClusterReadError
from rebalancer.wire import objects as o
from rebalancer.wire.times import unix_seconds


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod at one moment."""

    namespace: str
    name: str
    uid: str
    node: str
    """Empty while it has none."""
    phase: str
    ready: bool
    deleting: bool
    controller_uid: str
    """uid of its controller, empty if it has none."""
    created: float
    """Unix seconds."""
    resource_version: str


class _Meta(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[o.OwnerReference, ...] | None = None


class _Spec(msgspec.Struct, rename="camel", gc=False):
    node_name: str = ""


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    conditions: tuple[o.Condition, ...] | None = None


class NarrowPod(msgspec.Struct, gc=False):
    """A pod as JSON, without all that does not change where it is and how it does."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    def view(self) -> PodView:
        """Return it as a PodView."""
        meta, status = self.metadata, self.status
        owners = [ref.uid for ref in meta.owner_references or () if ref.controller]
        return PodView(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            node=self.spec.node_name,
            phase=status.phase,
            ready=any(c.type == "Ready" and c.status == "True" for c in status.conditions or ()),
            deleting=meta.deletion_timestamp is not None,
            controller_uid=owners[0] if owners else "",
            created=unix_seconds(meta.creation_timestamp),
            resource_version=meta.resource_version,
        )


_decoder = msgspec.json.Decoder(NarrowPod)


def decode_pod(body: bytes | msgspec.Raw) -> PodView:
    """Return the pod in ``body``.

    Raises:
        ClusterReadError: ``body`` is no pod.
    """
    try:
        view = _decoder.decode(body).view()
    except msgspec.DecodeError as error:
        raise ClusterReadError(f"the API server's answer is not a pod: {error}") from None
    if not view.uid:
        raise ClusterReadError("the API server's answer is not a pod: it has no uid")
    return view
