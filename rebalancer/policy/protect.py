"""Protections that a policy may lift, each by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema

from rebalancer.plain_text import shown
from rebalancer.policy.params import Section
from rebalancer.policy.values import Duration, Labels

_PATTERN = re.compile(r"[a-z0-9*?\[\]!-]+\Z")


def _namespace_pattern(text: str) -> str:
    if not _PATTERN.match(text):
        raise ValueError(f"{shown(text)} is no namespace, nor a pattern of some, like kube-*")
    return text


NamespacePattern = Annotated[
    str,
    AfterValidator(_namespace_pattern),
    WithJsonSchema({"type": "string", "pattern": _PATTERN.pattern.replace(r"\Z", "$")}),
]
"""A namespace, or a pattern of some: ``*``, ``?``, ``[ab]`` and ``[!ab]`` as a shell reads them (fnmatch)."""


def _any_matches(patterns: Iterable[str], namespace: str) -> bool:
    return any(fnmatchcase(namespace, pattern) for pattern in patterns)


class Selection(Section):
    """Pods by namespace and labels; a pod must meet both, and what is absent admits all."""

    namespaces: tuple[NamespacePattern, ...] = Field(
        default=(), description="Namespaces, or patterns like kube-*; none means all."
    )
    labels: Labels = Field(
        default_factory=dict, description="Labels that the pod must carry; none means all pods."
    )

    def admits(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a pod of ``namespace`` with ``labels`` is selected."""
        if self.namespaces and not _any_matches(self.namespaces, namespace):
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

    include: tuple[NamespacePattern, ...] = Field(
        default=(),
        description="Only these namespaces' pods may be moved, names or patterns like shop-*; none means all.",
    )
    exclude: tuple[NamespacePattern, ...] = Field(
        default=(),
        description="These namespaces' pods are never moved, names or patterns like kube-*; stronger than include.",
    )

    def admits(self, namespace: str) -> bool:
        """Return whether pods of ``namespace`` may be moved."""
        if _any_matches(self.exclude, namespace):
            return False
        return not self.include or _any_matches(self.include, namespace)


_GROUP_KIND = r"^[A-Z][A-Za-z0-9]{0,62}(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$"
_OTHERWISE = {
    "Job.batch": "protect.jobs: false lets Jobs' pods move",
    "DaemonSet.apps": "its pods are never moved",
}
"""Kinds that have a rule of their own -> that rule."""


def _group_kind(text: str) -> str:
    if not re.match(_GROUP_KIND, text, re.ASCII):
        raise ValueError(f"{shown(text)} is no Kind.group, like CloneSet.apps.kruise.io")
    if text in _OTHERWISE:
        raise ValueError(f"{text} cannot stand here: {_OTHERWISE[text]}")
    return text


GroupKind = Annotated[
    str,
    AfterValidator(_group_kind),
    WithJsonSchema({"type": "string", "pattern": _GROUP_KIND}),
]
"""A kind with its API group, as Kubernetes writes both in one word: ``CloneSet.apps.kruise.io``."""


class Protect(Section):
    """The protections that a policy may lift, each named; true protects.

    Never lifted: static and mirror pods, DaemonSets' pods, pods without controller, pods of custom
    controllers whose restartPolicy is not Always, terminating pods, the rebalancer's own pod, opt-out annotations (ours, also of owners and namespaces; the descheduler's, Cluster Autoscaler's, Karpenter's),
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
    recreated_by: tuple[GroupKind, ...] = Field(
        default=(),
        description="Kinds of custom controllers, as Kind.group (CloneSet.apps.kruise.io), that create a pod anew once it"
        " is evicted, beside ReplicaSet, StatefulSet and ReplicationController; pods of any other kind stay, and pods"
        " whose restartPolicy is not Always stay whatever is named here.",
    )
    namespaces: NamespaceFilter = Field(
        default=NamespaceFilter(), description="Which namespaces' pods may be moved."
    )

    def spares_critical(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a pod of system-critical priority is protected."""
        if isinstance(self.system_critical, SystemCritical):
            return not self.system_critical.except_.admits(namespace, labels)
        return self.system_critical
