"""The descheduler's policy, v1alpha2, as models (pkg/api/v1alpha2/types.go). Keys and rules are the descheduler's.

What the descheduler refuses is refused here, except for values that are not carried over. It ignores unknown
keys at the top level; here they are problems, except for those in its own documentation.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from rebalancer.policy.values import Section


class PluginConfig(Section):
    """A plug-in's arguments; their models are in ``plugins``."""

    name: str
    args: dict[str, Any] = Field(default={})


class PluginSet(Section):
    """The plug-ins of an extension point."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    """The descheduler does not read it."""


class Plugins(Section):
    """The extension points. Of these, ``presort``, ``preEvictionFilter`` and ``preSort`` have no effect."""

    presort: PluginSet = PluginSet()
    sort: PluginSet = PluginSet()
    deschedule: PluginSet = PluginSet()
    balance: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    preevictionfilter: PluginSet = PluginSet()
    pre_eviction_filter: PluginSet = PluginSet()
    pre_sort: PluginSet = PluginSet()


class Profile(Section):
    """Plug-ins that share one DefaultEvictor."""

    name: str = ""
    plugin_config: tuple[PluginConfig, ...] = ()
    plugins: Plugins = Plugins()


class MetricsCollector(Section):
    """Deprecated in favour of MetricsProvider."""

    enabled: bool = False


class SecretReference(Section):
    """A Secret."""

    namespace: str = ""
    name: str = ""


class AuthToken(Section):
    """Source of the token for Prometheus."""

    secret_reference: SecretReference = SecretReference()


class Prometheus(Section):
    """Address and token of Prometheus."""

    url: str = ""
    auth_token: AuthToken = AuthToken()


class MetricsProvider(Section):
    """Source of measured usage."""

    source: Literal["KubernetesMetrics", "Prometheus"]
    prometheus: Prometheus = Prometheus()


class Limits(Section):
    """Top-level keys of both versions of the format."""

    kind: Literal["DeschedulerPolicy"]
    node_selector: str = ""
    max_no_of_pods_to_evict_per_node: int | None = Field(default=None, ge=0)
    max_no_of_pods_to_evict_per_namespace: int | None = Field(default=None, ge=0)


class PeerPolicy(Limits):
    """The root of a policy file."""

    api_version: Literal["descheduler/v1alpha2"]
    profiles: tuple[Profile, ...] = ()
    max_no_of_pods_to_evict_total: int | None = Field(default=None, ge=0)
    eviction_failure_event_notification: bool = False
    metrics_collector: MetricsCollector = MetricsCollector()
    metrics_providers: tuple[MetricsProvider, ...] = ()
    grace_period_seconds: int | None = None
    tracing: Any = None
    """In the descheduler's chart; the descheduler does not read it."""
