"""The descheduler's policy, v1alpha2, as models (pkg/api/v1alpha2/types.go). Keys and rules are the descheduler's.

What it refuses is refused here, too, but for values that are not carried over. Keys that it does not know it drops
in silence at the top; here they are problems, but for those that its own documentation shows.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from rebalancer.policy.params import Section


class PluginConfig(Section):
    """A plug-in's arguments; ``plugins`` has their models."""

    name: str
    args: dict[str, Any] = Field(default={})


class PluginSet(Section):
    """The plug-ins of an extension point."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    """Never read by the descheduler."""


class Plugins(Section):
    """The extension points. In camel case the last two and the first are documented, but have no effect."""

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
    """Deprecated there in favour of MetricsProvider."""

    enabled: bool = False


class SecretReference(Section):
    """A Secret."""

    namespace: str = ""
    name: str = ""


class AuthToken(Section):
    """Where Prometheus' token is."""

    secret_reference: SecretReference = SecretReference()


class Prometheus(Section):
    """Where Prometheus is."""

    url: str = ""
    auth_token: AuthToken = AuthToken()


class MetricsProvider(Section):
    """Where measured use comes from."""

    source: Literal["KubernetesMetrics", "Prometheus"]
    prometheus: Prometheus = Prometheus()


class Limits(Section):
    """What both versions have at the top of the file."""

    kind: Literal["DeschedulerPolicy"]
    node_selector: str = ""
    max_no_of_pods_to_evict_per_node: int | None = Field(default=None, ge=0)
    max_no_of_pods_to_evict_per_namespace: int | None = Field(default=None, ge=0)


class PeerPolicy(Limits):
    """A whole policy."""

    api_version: Literal["descheduler/v1alpha2"]
    profiles: tuple[Profile, ...] = ()
    max_no_of_pods_to_evict_total: int | None = Field(default=None, ge=0)
    eviction_failure_event_notification: bool = False
    metrics_collector: MetricsCollector = MetricsCollector()
    metrics_providers: tuple[MetricsProvider, ...] = ()
    grace_period_seconds: int | None = None
    tracing: Any = None
    """Shown in the descheduler's chart; nothing reads it."""
