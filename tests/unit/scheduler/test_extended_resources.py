"""Extended resources behind which a DeviceClass may stand."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.worlds import World, node, pod

GPU = "example.com/gpu"


def offering(name: str, amount: str | None):
    return node(name, allocatable={} if amount is None else {GPU: amount})


@pytest.mark.parametrize(
    ("offered", "standing", "version", "unmodelled"),
    [
        ({"a": "2", "b": None}, "a", (1, 36), False),
        ({"a": "2", "b": None}, "b", (1, 36), True),
        ({"a": "2", "b": "0"}, "b", (1, 36), True),
        ({"a": None, "b": None}, "b", (1, 36), True),
        ({"a": None, "b": None}, "", (1, 36), True),
        ({"a": "2", "b": None}, "", (1, 36), False),
        ({"a": None, "b": None}, "b", (1, 35), False),
    ],
)
def test_a_resource_that_pods_have_where_no_node_offers_it_is_unpredicted(
    offered, standing, version, unmodelled
):
    asking = {GPU: "1"}
    pods = [pod("p", requests=asking), pod("plain")]
    if standing:
        pods.append(pod("old", on=standing, requests=asking))
    nodes = [offering(name, amount) for name, amount in offered.items()]
    world = World(nodes, pods, version=version)
    why = f"a DeviceClass may stand behind {GPU} (dynamic resource allocation)"
    assert world.model.find_unmodelled(world.cls("p")) == ((why,) if unmodelled else ())
    assert world.model.find_unmodelled(world.cls("plain")) == ()


@pytest.mark.parametrize(
    ("resource", "unmodelled"),
    [
        ("deviceclass.resource.kubernetes.io/gpu.example.com", True),
        ("hugepages-2Mi", False),
        ("batch.kubernetes.io/x", False),
    ],
)
def test_only_extended_resources_may_be_of_a_device_class(resource, unmodelled):
    world = World([node("a")], [pod("p", requests={resource: "1"})])
    assert bool(world.model.find_unmodelled(world.cls("p"))) is unmodelled
