"""Small worlds that tests of several packages share: policies, quick embedded clusters, rollouts, groups, metrics."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from rebalancer.embedded.engine import Durations
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import LoadedPolicy, load_text
from rebalancer.registry import Registry
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.objects import EmbeddedCluster

FAST = Durations(start_up=0.05, shutdown=0.05, node_start_up=0.05, job=2.0, job_backoff=0.1)
"""Pods and nodes that change as soon as a test looks twice."""
HEAD = "apiVersion: rebalancer/v1\nkind: Policy\n"


def read_policy(text: str = "") -> LoadedPolicy:
    """Load a policy of these keys, below its head."""
    return load_text((HEAD + text).encode(), "policy", Registry.installed())


def read_rules(text: str, scope: Scope | None = None) -> RunRules:
    """Return what a run under a policy of these keys goes by."""
    return RunRules(read_policy(text), Registry.installed(), scope or Scope())


@contextmanager
def embedded_nodes(
    *names: str, timings: Durations = FAST, **more: Any
) -> Iterator[EmbeddedCluster]:
    """Yield an embedded cluster with these nodes, each in a zone of its own."""
    with EmbeddedCluster(timings=timings) as cluster:
        for name in names:
            cluster.add_node(name, f"zone-{name}", **more)
        cluster.settle()
        yield cluster


def rolling_update(surge: int | str = 1, unavailable: int | str = 0) -> dict[str, Any]:
    """Return the ``strategy`` of a Deployment."""
    pace = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"type": "RollingUpdate", "rollingUpdate": pace}


def require_nodes(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    """Return the part of a pod's spec that requires nodes with such a label."""
    asked = {"key": key, "operator": operator, "values": list(values)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [asked]}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def read_metrics(text: str) -> dict[tuple[str, ...], float]:
    """Return (name, values of its labels) -> value of metrics in Prometheus' text format."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
