"""What metrics.k8s.io/v1beta1 says of nodes and pods: NodeMetrics and PodMetrics.

It is served by an aggregated API server (metrics-server, or an adapter), not by the cluster's own, so its
values are taken for what they may be: anything. What cannot be read was not measured.
Source: ``k8s.io/metrics/pkg/apis/metrics/v1beta1``. What Prometheus has measured comes in the same form
(``rebalancer.kube.prometheus``), with ``shares``, ``since`` and an annotation that the API does not have.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from rebalancer.wire.quantity import parse, parse_nano
from rebalancer.wire.times import unix_seconds

Measured = tuple[int | None, int | None]
"""Nanocores of cpu, bytes of memory; None for what was not measured."""

NOT_MEASURED = "rebalancer/not-measured"
"""Annotation of a node: why what was answered of it is no measurement."""

_MAX_AMOUNT = 2**53
"""Nine million cores, nine petabytes: what is more is no measurement, and would not add up in a float."""


class _Metrics(Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """As the base of all wire structs (``rebalancer.wire.objects``)."""


class MetricsMeta(_Metrics, frozen=True):
    """The metadata: a name, labels that we have from the node or pod itself, and when the answer was made.

    Nothing is stored, so there is neither uid nor resourceVersion, and ``creationTimestamp`` is the answer's.
    """

    name: str = ""
    namespace: str = ""
    creation_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class Used(_Metrics, frozen=True):
    """A ResourceList of what is used."""

    cpu: Any = None
    memory: Any = None

    def amounts(self) -> Measured | None:
        """Return both amounts, None if both are missing, or one is unreadable or none that can be used."""
        try:
            cpu = None if self.cpu is None else _nanocores(self.cpu)
            memory = None if self.memory is None else _bytes(self.memory)
        except ValueError:
            return None
        given = [amount for amount in (cpu, memory) if amount is not None]
        return (cpu, memory) if given and all(0 <= one <= _MAX_AMOUNT for one in given) else None


class Shares(_Metrics, frozen=True):
    """What is used of a node, as shares of its allocatable."""

    cpu: float | None = None
    memory: float | None = None


class ContainerMetrics(_Metrics, frozen=True):
    """Of one container."""

    usage: Used | None = None


class NodeMetrics(_Metrics, frozen=True):
    """Of one node, over ``window`` until ``timestamp``, by whatever runs there."""

    metadata: MetricsMeta = MetricsMeta()
    timestamp: Any = None
    window: Any = None
    usage: Used | None = None
    shares: Shares | None = None
    """In place of ``usage``."""
    since: Any = None

    @property
    def at(self) -> float:
        """Unix seconds of the measurement, 0 if it does not say."""
        return _at(self.timestamp)

    @property
    def began(self) -> float:
        """Unix seconds from which on it was measured, if it says so; else as ``at``."""
        return self.at if self.since is None else _at(self.since)

    @property
    def not_measured(self) -> str | None:
        """Why what was answered of the node is no measurement, if that is known."""
        return (self.metadata.annotations or {}).get(NOT_MEASURED)

    def amounts(self) -> Measured | None:
        """Return what the node uses, None if it was not measured."""
        return self.usage.amounts() if self.usage is not None else None


class PodMetrics(_Metrics, frozen=True):
    """Of the containers of one pod that run, in no order; metrics-server leaves out one that is down.

    A pod is left out until its containers have been seen for long enough, and again after one was restarted;
    one whose counters have fallen has neither a container nor a timestamp.
    """

    metadata: MetricsMeta = MetricsMeta()
    timestamp: Any = None
    window: Any = None
    containers: tuple[ContainerMetrics, ...] | None = None

    @property
    def at(self) -> float:
        """Unix seconds of the measurement, 0 if it does not say."""
        return _at(self.timestamp)

    def amounts(self) -> Measured | None:
        """Return what its containers use together, None if one of them was not measured, or there is none."""
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
