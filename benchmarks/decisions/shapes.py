"""What a scenario's cluster is made of: the size of each node, and the workloads. Here the made-up mix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rebalancer.wire import quantity
from tests.controlplane import workloads

Manifest = dict[str, Any]
_MIB = 2**20
MOST = "most"
"""Label of a workload of which no more replicas than so many are sure to find room."""


@dataclass(frozen=True)
class Room:
    """What a node has to give, as Kubernetes quantities."""

    cpu: str
    memory: str


Rooms = Mapping[str, Room]
"""By name of the node."""


class Shapes(Protocol):
    """Where nodes' sizes and workloads come from."""

    def make(
        self, every: Sequence[str], early: Sequence[str], *, seed: int, load: float
    ) -> tuple[list[Manifest], Rooms]:
        """Return workloads and the rooms of ``every`` node; the same for the same arguments.

        ``early`` are the nodes on which the workloads are placed first. About ``load`` of the room of
        every node is requested once all carry the workloads.
        """
        ...


class MadeUp:
    """Equal nodes, sized by the mixed bag of `tests.controlplane.workloads`."""

    def make(
        self, every: Sequence[str], early: Sequence[str], *, seed: int, load: float
    ) -> tuple[list[Manifest], Rooms]:
        """Return two workloads per node, every kind in turn."""
        bag = mixed(len(every) * 2, seed, hosts=len(early))
        return bag, dict.fromkeys(every, sized(bag, len(every), load))


def mixed(count: int, seed: int, *, hosts: int) -> list[Manifest]:
    """Return the mixed bag; no more replicas than ``hosts`` where they must stand apart."""
    return [within(manifest, hosts, 1) for manifest in workloads.mixed(count, seed)]


def sized(
    bag: Sequence[Manifest], nodes: int, load: float, *, memory_load: float | None = None
) -> Room:
    """Return the room of nodes that so much of is requested once all carry the bag."""
    cpu, memory = (
        sum(m["spec"]["replicas"] * _request(m, name) for m in bag) / (nodes * share)
        for name, share in (("cpu", load), ("memory", memory_load or load))
    )
    return Room(f"{round(cpu * 1000)}m", f"{round(memory / _MIB)}Mi")


def within(manifest: Manifest, hosts: int, times: int) -> Manifest:
    """Return the workload with so many times its replicas, as far as they are sure to find room."""
    labels = manifest["metadata"]["labels"]
    replicas = int(manifest["spec"]["replicas"]) * times
    if labels.get("kind") == "require-other-host":
        replicas = min(replicas, hosts)
    replicas = min(replicas, int(labels.get(MOST, replicas)))
    return {**manifest, "spec": {**manifest["spec"], "replicas": replicas}}


def _request(manifest: Manifest, resource: str) -> float:
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    return quantity.parse(container["resources"]["requests"][resource], milli=True) / 1000
