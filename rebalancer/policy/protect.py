"""Protections that a policy may lift, each by its name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from rebalancer.policy.params import Section
from rebalancer.policy.values import Duration


class Selection(Section):
    """Pods by namespace and labels; a pod must meet both, and what is absent admits all."""

    namespaces: tuple[str, ...] = Field(default=(), description="Namespaces; none means all.")
    labels: dict[str, str] = Field(
        default_factory=dict, description="Labels that the pod must carry; none means all pods."
    )

    def admits(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a pod of ``namespace`` with ``labels`` is selected."""
        if self.namespaces and namespace not in self.namespaces:
            return False
        return all(labels.get(key) == value for key, value in self.labels.items())


class SystemCritical(Section):
    """Protects pods of system-critical priority (2,000,000,000 and more), with an exception."""

    except_: Selection = Field(
        alias="except", description="Pods that may be moved although they are system-critical."
    )


def _switch_or_exception(value: Any) -> str:
    return "exception" if isinstance(value, (dict, SystemCritical)) else "switch"


class NamespaceFilter(Section):
    """Which namespaces' pods may be moved; the pods of the others still count."""

    include: tuple[str, ...] = Field(
        default=(), description="Only these namespaces' pods may be moved; none means all."
    )
    exclude: tuple[str, ...] = Field(
        default=(), description="These namespaces' pods are never moved; stronger than include."
    )

    def admits(self, namespace: str) -> bool:
        """Return whether pods of ``namespace`` may be moved."""
        return namespace not in self.exclude and (not self.include or namespace in self.include)


class Protect(Section):
    """The protections that a policy may lift, each named; true protects.

    Never lifted: static and mirror pods, DaemonSets' pods, pods without controller, terminating pods, the
    rebalancer's own pod, opt-out annotations (ours, the descheduler's, Cluster Autoscaler's, Karpenter's),
    owners in a rollout or with unready replicas, PodDisruptionBudgets and ResourceQuotas.
    """

    volumes: bool = Field(default=True, description="Pods with a PersistentVolumeClaim.")
    local_storage: bool = Field(
        default=True, description="Pods with an emptyDir or hostPath volume: its content is lost."
    )
    single_replicas: bool = Field(
        default=True, description="Pods whose owner has one replica: nothing serves meanwhile."
    )
    min_pod_age: Duration = Field(
        default=timedelta(minutes=5), description="Pods younger than this; 0s protects none."
    )
    system_critical: Annotated[
        Annotated[bool, Tag("switch")] | Annotated[SystemCritical, Tag("exception")],
        Discriminator(_switch_or_exception),
    ] = Field(
        default=True,
        description="Pods of system-critical priority; an exception names namespaces and labels.",
    )
    jobs: bool = Field(default=True, description="Pods of Jobs: their work starts again.")
    namespaces: NamespaceFilter = Field(
        default=NamespaceFilter(), description="Which namespaces' pods may be moved."
    )

    def spares_critical(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a pod of system-critical priority is protected."""
        if isinstance(self.system_critical, SystemCritical):
            return not self.system_critical.except_.admits(namespace, labels)
        return self.system_critical
