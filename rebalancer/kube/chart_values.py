"""Which values of the chart grant rights that are missing: in its pods a role of one's own is seldom what helps."""

from __future__ import annotations

from collections.abc import Iterable

from rebalancer.kube.resources import AccessRule

_VALUES = {
    ("create", "", "pods/eviction"): "mode: enforce",
    ("delete", "", "pods"): "rbac.deletePods: true",
    ("get", "", "nodes"): "rbac.marks: true",
    ("patch", "", "nodes"): "rbac.marks: true",
    ("patch", "", "nodes/status"): "rbac.nodeConditions: true",
    ("get", "apps", "daemonsets"): "drain.enabled: true",
    ("get", "apps", "replicasets"): "rbac.restarts: true",
    ("get", "apps", "deployments"): "rbac.restarts: true",
    ("patch", "apps", "deployments"): "rbac.restarts: true",
    ("list", "metrics.k8s.io", "nodes"): "rbac.usage: true",
    ("list", "metrics.k8s.io", "pods"): "rbac.usage: true",
    ("list", "events.k8s.io", "events"): "rbac.events: true",
    ("list", "autoscaling.x-k8s.io", "capacitybuffers"): "rbac.capacityBuffers: true",
    ("get", "", "podtemplates"): "rbac.capacityBuffers: true",
    ("list", "storage.k8s.io", "volumeattachments"): "rbac.volumeAttachments: true",
}
"""(verb, group, resource) -> the value; rights that the chart always grants have none."""


def name_values(rules: Iterable[AccessRule]) -> tuple[str, ...]:
    """Return the values, as ``rbac.usage: true``, each once; empty if no value of the chart grants any of ``rules``."""
    values = (_value_of(rule) for rule in rules)
    return tuple(dict.fromkeys(value for value in values if value))


def _value_of(rule: AccessRule) -> str | None:
    if rule.resource == "horizontalpodautoscalers":
        return "rbac.autoscalers: true"
    if rule.resource in ("podgroups", "leaderworkersets"):
        return "rbac.podGroups: true"
    if rule.group == "cluster.x-k8s.io":
        return f"rbac.clusterApi: {rule.namespace}"
    return _VALUES.get((rule.verb, rule.group, rule.resource))
