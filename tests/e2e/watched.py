"""Samples what serves while machines come and go: nodes, pods, and whether nodes say the truth by their conditions."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.controlplane import ApiClient, ControlPlane, operations

_PAUSE = 0.1
CONDITIONS = ("MaintenancePlanned", "DrainInProgress", "Drained", "MaintenanceInProgress")
"""Types of the node lifecycle conditions of KEP-5683."""


@dataclass
class Sampled:
    """What was seen so far."""

    nodes: list[int] = field(default_factory=list)
    """How many nodes were Ready and open."""
    pods: list[int] = field(default_factory=list)
    """How many pods of the service were Ready."""
    untrue: list[str] = field(default_factory=list)
    """Nodes that said they were drained, and were not."""
    stale: list[str] = field(default_factory=list)
    """Nodes that were open again, and said still what was done to them: after a kill until the next process comes."""


def count_ready_and_open(api: ApiClient) -> int:
    """Return how many nodes are Ready and open."""
    return sum(map(_is_ready_and_open, api.list_all("/api/v1/nodes")))


def _is_ready_and_open(node: dict[str, Any]) -> bool:
    return operations.is_ready(node) and not node["spec"].get("unschedulable")


def our_conditions(node: Mapping[str, Any]) -> list[str]:
    """Return the types of the conditions of a node that the product has set."""
    every = node["status"].get("conditions", ())
    return [one["type"] for one in every if one.get("reason", "").startswith("Rebalancer")]


def _judge(seen: Sampled, node: Mapping[str, Any], pods: list[dict[str, Any]]) -> None:
    """Note what a node says that is not so: it is read before the pods, and none comes to one that is closed."""
    name, says = node["metadata"]["name"], our_conditions(node)
    if says and not node["spec"].get("unschedulable"):
        seen.stale.append(f"{name} is open, and says {says}")
        return
    there = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == name]
    if there and {"Drained", "MaintenanceInProgress"} & {*says}:
        seen.untrue.append(f"{name} says {says}, and has {there}")


@contextmanager
def sampling(
    plane: ControlPlane, sample: Callable[[ApiClient], object], pause: float = _PAUSE
) -> Iterator[None]:
    """Call ``sample`` with a client of its own again and again, while inside; ``pause``: seconds between two calls."""
    end = threading.Event()

    def repeat() -> None:
        client = plane.client(plane.admin_token)
        while not end.wait(pause):
            sample(client)
        client.close()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@contextmanager
def watched(plane: ControlPlane, app: str = "web") -> Iterator[Sampled]:
    """Sample, while inside; ``app``: label of the pods of the service."""
    seen = Sampled()

    def sample(client: ApiClient) -> None:
        nodes = client.list_all("/api/v1/nodes")
        pods = operations.pods(client, selector=f"app={app}")
        seen.nodes.append(sum(map(_is_ready_and_open, nodes)))
        seen.pods.append(sum(map(operations.is_ready, pods)))
        for node in nodes:
            _judge(seen, node, pods)

    with sampling(plane, sample):
        yield seen
