"""The objects of metrics.k8s.io/v1beta1: NodeMetrics and PodMetrics.

An aggregated API server (metrics-server, or an adapter) serves them, not the cluster's own server, so any value is
possible. An unreadable value counts as not measured. Source: ``k8s.io/metrics/pkg/apis/metrics/v1beta1``.
Measurements of Prometheus have the same form (``rebalancer.kube.metrics``), with ``shares``, ``since`` and an
annotation that the API does not have.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from rebalancer.wire.quantity import parse, parse_nano
from rebalancer.wire.times import unix_seconds

Measured = tuple[int | None, int | None]
"""Nanocores of cpu, bytes of memory; None if not measured."""

NOT_MEASURED = "rebalancer/not-measured"
"""Annotation of a node: why its answer is not a valid measurement."""

_MAX_AMOUNT = 2**53
"""Nine million cores, nine petabytes: what is more is no measurement, and would not add up in a float."""


class _Metrics(Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """Base class with the options of all wire structs (``rebalancer.wire.objects``)."""


class MetricsMeta(_Metrics, frozen=True):
    """The metadata: name, namespace, annotations, and the time of the answer.

    Metrics are not stored, so there is no uid and no resourceVersion; ``creationTimestamp`` is the time of the
    answer.
    """

    name: str = ""
    namespace: str = ""
    creation_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class Used(_Metrics, frozen=True):
    """A ResourceList of used amounts."""

    cpu: Any = None
    memory: Any = None

    def amounts(self) -> Measured | None:
        """Return both amounts; None if both are missing, or one is unreadable or invalid."""
        try:
            cpu = None if self.cpu is None else _nanocores(self.cpu)
            memory = None if self.memory is None else _bytes(self.memory)
        except ValueError:
            return None
        given = [amount for amount in (cpu, memory) if amount is not None]
        return (cpu, memory) if given and all(0 <= one <= _MAX_AMOUNT for one in given) else None


class Shares(_Metrics, frozen=True):
    """The usage of a node as shares of its allocatable."""

    cpu: float | None = None
    memory: float | None = None


class ContainerMetrics(_Metrics, frozen=True):
    """The usage of one container."""

    usage: Used | None = None


class NodeMetrics(_Metrics, frozen=True):
    """The usage of one node, by all of its processes, over ``window`` until ``timestamp``."""

    metadata: MetricsMeta = MetricsMeta()
    timestamp: Any = None
    window: Any = None
    usage: Used | None = None
    shares: Shares | None = None
    """Shares of each resource, in place of ``usage``."""
    since: Any = None

    @property
    def at(self) -> float:
        """The time of the measurement in Unix seconds; 0 if it is missing."""
        return _at(self.timestamp)

    @property
    def began(self) -> float:
        """The start of the measurement in Unix seconds if it is given; else :attr:`at`."""
        return self.at if self.since is None else _at(self.since)

    @property
    def not_measured(self) -> str | None:
        """Why the answer for the node is not a measurement, if known."""
        return (self.metadata.annotations or {}).get(NOT_MEASURED)

    def amounts(self) -> Measured | None:
        """Return the usage of the node; None if it was not measured."""
        return self.usage.amounts() if self.usage is not None else None


class PodMetrics(_Metrics, frozen=True):
    """The usage of the running containers of one pod, unordered; metrics-server omits stopped containers.

    A pod is omitted until its containers have been observed long enough, and again after a container restart; a pod
    whose counters have decreased has neither containers nor a timestamp.
    """

    metadata: MetricsMeta = MetricsMeta()
    timestamp: Any = None
    window: Any = None
    containers: tuple[ContainerMetrics, ...] | None = None

    @property
    def at(self) -> float:
        """The time of the measurement in Unix seconds; 0 if it is missing."""
        return _at(self.timestamp)

    def amounts(self) -> Measured | None:
        """Return the summed usage of the containers; None if one was not measured, or there are none."""
        sums: list[int | None] = [0, 0]
        for container in self.containers or ():
            amounts = container.usage.amounts() if container.usage is not None else None
            if amounts is None:
                return None
            for of, amount in enumerate(amounts):
                sums[of] = None if amount is None else _plus(sums[of], amount)
        return (sums[0], sums[1]) if self.containers else None


def _plus(so_far: int | None, amount: int) -> int | None:
    return None if so_far is None else so_far + amount


def _at(timestamp: Any) -> float:
    return unix_seconds(timestamp) if isinstance(timestamp, str) else 0.0


def _nanocores(text: Any) -> int:
    # What metrics-server writes unless a larger unit is exact ("500m", "0"); the grammar takes thirty times as long.
    if type(text) is str and text[-1:] == "n" and text[:-1].isdigit():
        return int(text[:-1])
    return parse_nano(str(text))


def _bytes(text: Any) -> int:
    if type(text) is str and text[-2:] == "Ki" and text[:-2].isdigit():
        return int(text[:-2]) * 1024
    return parse(str(text))
