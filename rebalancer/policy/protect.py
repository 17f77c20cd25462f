"""Protections that a policy may disable, each by its name."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from rebalancer.base.plain_text import quote_value
from rebalancer.policy.select import Select
from rebalancer.policy.values import Duration, Section
from rebalancer.wire.quantity import parse


class Exempting(Section):
    """A protection with exceptions."""

    except_: Select = Field(alias="except", description="Pods that may be moved anyway.")

    @model_validator(mode="after")
    def _names_some(self) -> Exempting:
        if not self.except_:
            raise ValueError("except names no pods; write false to lift the protection for all")
        return self


def _switch_or_exception(value: Any) -> str:
    return "exception" if isinstance(value, (dict, Exempting)) else "switch"


Switch = Annotated[
    Annotated[bool, Tag("switch")] | Annotated[Exempting, Tag("exception")],
    Discriminator(_switch_or_exception),
]
"""``true`` protects, ``false`` does not, ``{except: ...}`` protects all but some."""


def _size(text: str) -> str:
    if parse(text) <= 0:
        raise ValueError(f"{quote_value(text)} is no size above 0, like 100Mi")
    return text


class LocalStorage(Exempting):
    """Which local storage protects a pod. A hostPath volume always does."""

    except_: Select = Field(
        default=Select(), alias="except", description="Pods that may be moved anyway."
    )
    in_memory: bool = Field(
        default=True,
        description="Whether an emptyDir of medium Memory or HugePages protects its pod: scratch space that a restart of"
        " the node would lose, too.",
    )
    larger_than: Annotated[str, AfterValidator(_size)] | None = Field(
        default=None,
        description="An emptyDir whose sizeLimit is at most this (100Mi) does not protect its pod; one without a"
        " sizeLimit does.",
    )

    @model_validator(mode="after")
    def _names_some(self) -> LocalStorage:
        if not self.except_ and self.in_memory and self.larger_than is None:
            raise ValueError(
                "lifts nothing: give except, inMemory: false or largerThan; or write true"
            )
        return self


LocalSwitch = Annotated[
    Annotated[bool, Tag("switch")] | Annotated[LocalStorage, Tag("exception")],
    Discriminator(_switch_or_exception),
]
"""As ``Switch``, which an emptyDir's medium and size may lift, too."""


_GROUP_KIND = r"^[A-Z][A-Za-z0-9]{0,62}(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$"
_OTHERWISE = {
    "Job.batch": "protect.jobs: false lets Jobs' pods move",
    "DaemonSet.apps": "its pods are never moved",
}
"""Kinds that have a rule of their own -> that rule."""


def _group_kind(text: str) -> str:
    if not re.match(_GROUP_KIND, text, re.ASCII):
        raise ValueError(f"{quote_value(text)} is no Kind.group, like CloneSet.apps.kruise.io")
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
    """The protections that a policy may disable. ``true`` protects, ``{except: ...}`` protects all but some pods.

    These protections cannot be disabled: static and mirror pods, DaemonSets' pods, pods without controller, pods of
    custom controllers whose restartPolicy is not Always, terminating pods, the rebalancer's own pod, opt-out
    annotations (ours, also of owners and namespaces; the descheduler's, Cluster Autoscaler's, Karpenter's), owners
    in a rollout or with unready replicas, pods that wait for a resize, PodDisruptionBudgets and ResourceQuotas.
    """

    volumes: Switch = Field(default=True, description="Pods with a PersistentVolumeClaim.")
    local_storage: LocalSwitch = Field(
        default=True, description="Pods with an emptyDir or hostPath volume: its content is lost."
    )
    single_replicas: Switch = Field(
        default=True, description="Pods whose owner has one replica: nothing serves meanwhile."
    )
    min_pod_age: Duration = Field(
        default=timedelta(minutes=5), description="Pods younger than this; 0s protects none."
    )
    after_scaling: Duration | None = Field(
        default=None,
        description="Pods of workloads that a HorizontalPodAutoscaler has scaled less than this time ago, or is scaling;"
        " absent: none. Needs list on horizontalpodautoscalers.",
    )
    system_critical: Switch = Field(
        default=True, description="Pods of system-critical priority (2,000,000,000 and more)."
    )
    jobs: Switch = Field(default=True, description="Pods of Jobs: their work starts again.")
    gangs: Switch = Field(
        default=True,
        description="Pods of a gang that has others do not move alone, but all together or not at all: a PodGroup,"
        " LeaderWorkerSet or JobSet, a gang of Volcano, KAI or Koordinator.",
    )
    recreated_by: tuple[GroupKind, ...] = Field(
        default=(),
        description="Kinds of custom controllers, as Kind.group (CloneSet.apps.kruise.io), that recreate a pod once it"
        " is evicted, beside ReplicaSet, StatefulSet and ReplicationController; pods of any other kind stay, and pods"
        " whose restartPolicy is not Always stay whatever is named here.",
    )
    pods: tuple[Select, ...] = Field(
        default=(), description="Pods that are not moved: those that any of these selects."
    )

    @model_validator(mode="after")
    def _pods_named(self) -> Protect:
        if not all(self.pods):
            raise ValueError(
                "an entry of pods names none, and would protect all; use mode: observe"
            )
        return self
