"""Convert the descheduler's Prometheus queries into the policy section ``usage``.

In the descheduler each plug-in has its own query, with one threshold named MetricResource. Here the policy has one
query for cpu and one for memory, and the thresholds have these names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from rebalancer.base.durations import format_duration
from rebalancer.migrate import plugins as theirs
from rebalancer.migrate.plugins import LowUtilizationArgs
from rebalancer.migrate.uses import KeyFate, Notes, Peer, Use
from rebalancer.policy.cluster import Prometheus, looks_back
from rebalancer.policy.document import KeyPath

METRIC = "MetricResource"
"""The one threshold that the descheduler takes with Prometheus."""
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_SECRET = "/var/run/secrets/usage"  # noqa: S105  # a path
"""Where our chart mounts the Secret of ``usage.secretName``."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The result of converting measured usage."""

    usage: dict[str, Any]
    """The policy's section, empty without Prometheus."""
    uses: tuple[Use, ...]
    """The plug-ins that can be converted."""


def resource_of(query: str) -> str:
    """Return the resource that a query measures: ``memory`` if the query names it, else ``cpu``."""
    return "memory" if "mem" in query.lower() else "cpu"


def read_usage(peer: Peer, notes: Notes) -> Asked:
    """Return the section ``usage``, and the plug-ins except those whose query cannot be converted."""
    queries: dict[str, str] = {}
    kept: list[Use] = []
    provider = _provider(peer)
    asks = provider is not None and _section(provider[1], {"cpu": "up"}) is not None
    measured = any(_by_metrics_api(use) for use in peer.uses)
    for use in peer.uses:
        if not by_prometheus(use):
            kept.append(use)
        elif (why := _refusal(use, queries, asks=asks, measured=measured)) is None:
            query = use.args.value.metrics_utilization.prometheus.query
            queries[resource_of(query)] = query
            kept.append(use)
        else:
            notes.add(use.args.at("metricsUtilization"), KeyFate.LOST, f"{use.plugin}: {why}")
    if provider is None:
        return Asked({}, tuple(kept))
    if not queries:
        notes.add(provider[0], KeyFate.LOST, "no plug-in that is carried over asks Prometheus")
        return Asked({}, tuple(kept))
    _note(provider, notes)
    return Asked({"prometheus": _section(provider[1], queries)}, tuple(kept))


def by_prometheus(use: Use) -> bool:
    """Return whether a plug-in judges nodes by a Prometheus query."""
    args = use.args.value
    return isinstance(args, LowUtilizationArgs) and args.metrics_utilization.source == "Prometheus"


def _by_metrics_api(use: Use) -> bool:
    args = use.args.value
    if not isinstance(args, LowUtilizationArgs):
        return False
    given = args.metrics_utilization
    return given.metrics_server or given.source == "KubernetesMetrics"


def _refusal(use: Use, queries: dict[str, str], *, asks: bool, measured: bool) -> str | None:
    """Return why a plug-in's query cannot be carried over, or None."""
    args = use.args.value
    query = args.metrics_utilization.prometheus.query
    if set(args.thresholds) != {METRIC}:
        return f"with Prometheus the descheduler takes thresholds of {METRIC} only"
    if not asks:
        return "no provider has an address of Prometheus that can be asked"
    try:
        Prometheus.model_validate({"url": "https://p", "nodes": {"cpu": query}, **_window([query])})
    except ValueError:
        return "its query cannot be asked: it is empty, too long, or looks back too far"
    if measured:
        return "another plug-in goes by metrics.k8s.io, and one policy asks one of the two"
    if queries.get(resource_of(query), query) != query:
        return f"another plug-in has another query, and one policy asks one of {resource_of(query)}"
    return None


def _provider(peer: Peer) -> tuple[KeyPath, theirs.PeerPrometheus] | None:
    for index, provider in enumerate(peer.top.value.metrics_providers):
        if provider.source == "Prometheus":
            return (*peer.top.at("metricsProviders"), index), provider.prometheus
    return None


def _section(provider: theirs.PeerPrometheus, queries: dict[str, str]) -> dict[str, Any] | None:
    """Return ``usage.prometheus``; None if the address is not supported."""
    data: dict[str, Any] = {
        "url": provider.url,
        "nodes": dict(sorted(queries.items())),
        "unit": "share",
        "nodeLabel": "instance",
        **_window(queries.values()),
    }
    if provider.url.startswith("https:"):
        own = provider.auth_token.secret_reference.name
        data["tokenFile"] = f"{_SECRET}/prometheusAuthToken" if own else f"{_ACCOUNT}/token"
        data["caFile"] = f"{_ACCOUNT}/ca.crt"
    try:
        Prometheus.model_validate(data)
    except ValidationError:
        return None
    return data


def _window(queries: Iterable[str]) -> dict[str, str]:
    default = Prometheus.model_fields["window"].default
    longest = max(map(looks_back, queries))
    return {"window": format_duration(longest)} if longest > default else {}


def _note(provider: tuple[KeyPath, theirs.PeerPrometheus], notes: Notes) -> None:
    path, prometheus = provider
    secret = prometheus.auth_token.secret_reference
    if not prometheus.url.startswith("https:"):
        notes.add(path, KeyFate.LOST, "a token is sent over https only, and none over this url")
    elif secret.name:
        text = f"the Secret {secret.namespace}/{secret.name} is to be mounted at {_SECRET}"
        notes.add(path, KeyFate.DIFFERS, f"{text}: usage.secretName of the chart")
