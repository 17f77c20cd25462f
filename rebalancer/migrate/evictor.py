"""The arguments of DefaultEvictor, as models (pkg/framework/plugins/defaultevictor: types.go, validation.go)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rebalancer.base.durations import parse_go_duration
from rebalancer.migrate.arguments import Args, Selector
from rebalancer.policy.params import Section

EVICTOR = "DefaultEvictor"


class PriorityThreshold(Section):
    """Pods of this priority and above are protected."""

    value: int | None = None
    name: str = ""

    @model_validator(mode="after")
    def _one(self) -> PriorityThreshold:
        if self.value is not None and self.name:
            raise ValueError("only one of value and name can be set")
        return self


class StorageClass(Section):
    """A storage class by its name."""

    name: str = Field(min_length=1)


class PvcConfig(Section):
    """Which claims PodsWithPVC protects."""

    protected_storage_classes: tuple[StorageClass, ...] = ()


class ProtectionsConfig(Section):
    """Details of the protections."""

    pods_with_pvc: PvcConfig = Field(default=PvcConfig(), alias="PodsWithPVC")


class PodProtections(Section):
    """Additional protections, and default protections that are disabled."""

    extra_enabled: tuple[
        Literal["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"], ...
    ] = ()
    default_disabled: tuple[
        Literal["PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "FailedBarePods"],
        ...,
    ] = ()
    config: ProtectionsConfig = ProtectionsConfig()


_SWITCHES = {
    "evict_local_storage_pods": "PodsWithLocalStorage",
    "evict_daemon_set_pods": "DaemonSetPods",
    "evict_system_critical_pods": "SystemCriticalPods",
    "evict_failed_bare_pods": "FailedBarePods",
    "ignore_pvc_pods": "PodsWithPVC",
    "ignore_pods_without_pdb": "PodsWithoutPDB",
}
"""Deprecated switch -> the protection that it disables (evict...) or adds (ignore...)."""


class Switches(Section):
    """Deprecated switches of protections, which v1alpha1 has at the top of the file."""

    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    evict_failed_bare_pods: bool = False
    ignore_pvc_pods: bool = False


class EvictorArgs(Args, Switches):
    """DefaultEvictor: which pods the plug-ins of its profile may evict."""

    node_selector: str = ""
    label_selector: Selector = Selector()
    namespace_label_selector: Selector = Selector()
    priority_threshold: PriorityThreshold = PriorityThreshold()
    node_fit: bool = False
    min_replicas: int = Field(default=0, ge=0)
    min_pod_age: str | None = None
    no_eviction_policy: Literal["", "Preferred", "Mandatory"] = ""
    pod_protections: PodProtections = PodProtections()
    ignore_pods_without_pdb: bool = Field(default=False, alias="ignorePodsWithoutPDB")

    @model_validator(mode="after")
    def _as_the_descheduler(self) -> EvictorArgs:
        if self.min_pod_age is not None:
            parse_go_duration(self.min_pod_age)
        if self._by_lists and any(getattr(self, field) for field in _SWITCHES):
            raise ValueError(
                "the deprecated switches cannot stand beside extraEnabled or defaultDisabled"
            )
        return self

    @property
    def _by_lists(self) -> bool:
        lists = self.pod_protections
        return bool(lists.extra_enabled or lists.default_disabled)

    def switched(self, protection: str) -> tuple[str, ...] | None:
        """Return the keys that change ``protection`` from its default, None if it is not changed."""
        lists = self.pod_protections
        for key, names in (
            ("extraEnabled", lists.extra_enabled),
            ("defaultDisabled", lists.default_disabled),
        ):
            if protection in names:
                return ("podProtections", key)
        for field, name in _SWITCHES.items():
            if name == protection and getattr(self, field):
                return (_alias(field),)
        return None

    def refused(self, protection: str) -> tuple[str, ...] | None:
        """Return the deprecated switch of ``protection`` if it is present and false, which asks for the default."""
        for field, name in _SWITCHES.items():
            if name == protection and field in self.model_fields_set and not getattr(self, field):
                return (_alias(field),)
        return None


def _alias(field: str) -> str:
    return EvictorArgs.model_fields[field].alias or field
