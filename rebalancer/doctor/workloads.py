"""Deployments and StatefulSets with the probes and hooks of their templates, which no plan needs and no snapshot keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from rebalancer.kube.client import Client
from rebalancer.kube.lists import list_whole, restarting
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import DEPLOYMENTS, STATEFUL_SETS
from rebalancer.wire.lists import JsonDecoder, decode_raw


class ProbedPort(o.ContainerPort, frozen=True, kw_only=True):
    """A port of a container that has a name, by which a probe can refer to it."""

    container_port: int = 0


class ProbedContainer(o.Container, frozen=True, kw_only=True):
    """A container with its readiness probe and its hooks."""

    ports: tuple[ProbedPort, ...] | None = None
    readiness_probe: dict[str, Any] | None = None
    lifecycle: dict[str, Any] | None = None


class ProbedSpec(o.SchedulingSpec, frozen=True, kw_only=True):
    """A pod spec whose containers have their probes and hooks."""

    containers: tuple[ProbedContainer, ...] = ()


class ProbedTemplate(o.PodTemplate, frozen=True, kw_only=True):
    """A pod template whose containers have their probes and hooks."""

    spec: ProbedSpec = ProbedSpec()


class RolledSpec(o.WorkloadSpec, frozen=True, kw_only=True):
    """The spec of a Deployment or a StatefulSet."""

    selector: dict[str, Any] | None = None
    template: ProbedTemplate | None = None
    volume_claim_templates: tuple[dict[str, Any], ...] | None = None


class RolledWorkload(o.Workload, frozen=True, kw_only=True):
    """A Deployment or a StatefulSet."""

    spec: RolledSpec = RolledSpec()
    probes_known: bool = True
    """False: it was read without probes and hooks, so that no advice on these is given."""

    @property
    def ref(self) -> str:
        """``kind/namespace/name``, for messages."""
        return f"{self.kind}/{self.metadata.namespace}/{self.metadata.name}"

    @property
    def replicas(self) -> int:
        """The requested number of pods; 1 if the spec has none."""
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def pod(self) -> ProbedSpec:
        """The spec of its pods."""
        return (self.spec.template or ProbedTemplate()).spec

    @property
    def pod_labels(self) -> o.Labels:
        """The labels of its pods."""
        return (self.spec.template or ProbedTemplate()).metadata.labels or {}

    @property
    def selector(self) -> dict[str, Any]:
        """The selector of its pods, as in the object."""
        return dict(self.spec.selector or {})

    @property
    def has_claims(self) -> bool:
        """Whether its pods have volume claims, which may tie them to a node or a zone."""
        volumes = self.pod.volumes or ()
        return bool(self.spec.volume_claim_templates) or any(
            one.persistent_volume_claim is not None or one.ephemeral is not None for one in volumes
        )


RESOURCES = {one.kind: one for one in (DEPLOYMENTS, STATEFUL_SETS)}
"""Kind -> resource of the workloads that are read."""

_decoder = JsonDecoder(RolledWorkload)


def decode_workloads(
    objects: Iterable[tuple[str, bytes | Raw | o.Workload]], *, probes_known: bool = True
) -> list[RolledWorkload]:
    """Return the workloads of a snapshot file or of a list, by reference.

    ``objects``: kind and object; one that is decoded already has no probes and hooks.
    ``probes_known``: whether the others have theirs.

    Raises:
        msgspec.DecodeError: an object is not a workload.
    """
    workloads = [_decode(kind, one, probes_known) for kind, one in objects]
    return sorted(workloads, key=lambda one: one.ref)


def _decode(kind: str, one: bytes | Raw | o.Workload, probes_known: bool) -> RolledWorkload:
    if isinstance(one, o.Workload):
        decoded = msgspec.convert(msgspec.to_builtins(one), RolledWorkload)
        return msgspec.structs.replace(decoded, kind=kind, probes_known=False)
    try:
        decoded = _decoder.decode_manifest(one)
        return msgspec.structs.replace(decoded, kind=kind, probes_known=probes_known)
    except msgspec.ValidationError as error:
        meta = msgspec.json.decode(one).get("metadata") or {}
        ref = f"{kind}/{meta.get('namespace', '')}/{meta.get('name', '')}"
        raise msgspec.ValidationError(f"{ref}: {error}") from None


def read_workloads(client: Client) -> list[RolledWorkload]:
    """Return all Deployments and StatefulSets of the cluster, by reference. Needs no other rights than a dry run.

    Raises:
        ClusterReadError: a list could not be read.
    """

    def attempt(may_restart: bool) -> list[RolledWorkload]:
        return decode_workloads(
            (kind, one)
            for kind, resource in RESOURCES.items()
            for one in list_whole(
                client,
                resource,
                lambda response: decode_raw(response.body),
                may_restart=may_restart,
            )
        )

    return restarting(attempt)
