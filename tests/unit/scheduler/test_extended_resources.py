"""Extended resources behind which a DeviceClass may stand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scheduler.worlds import Json, World, node, pod

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


def provided(where: str, number: int) -> Json:
    """Return the devices of a node."""
    return {
        "metadata": {"name": where},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": where,
            "pool": {"name": where, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{place}"} for place in range(number)],
        },
    }


def of_class(name: str, resource: str = "") -> Json:
    selectors = [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]
    named = {"extendedResourceName": resource} if resource else {}
    return {"metadata": {"name": name}, "spec": {"selectors": selectors, **named}}


def held(of: str, where: str, *devices: str) -> Json:
    """Return the claim that the scheduler makes for a pod."""
    results = [
        {"request": "r", "driver": "gpu.example.com", "pool": where, "device": one}
        for one in devices
    ]
    owner = {"kind": "Pod", "name": of, "uid": f"uid-default-{of}", "controller": True}
    return {
        "metadata": {"name": f"of-{of}", "namespace": "default", "ownerReferences": [owner]},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "uid": owner["uid"]}],
        },
    }


def with_classes(nodes: list[Json], pods: list[Json], **more: Any) -> World:
    known: dict[str, list[Json]] = {
        "resourceclaims": [],
        "resourceclaimtemplates": [],
        "resourceslices": [],
    }
    return World(nodes, pods, **{**known, **more})


def test_a_resource_behind_which_no_device_class_stands_is_one_of_device_plug_ins():
    pods = [pod("p", requests={GPU: "1"}), pod("old", on="b", requests={GPU: "1"})]
    made = with_classes([offering("a", "1"), node("b")], pods, deviceclasses=[of_class("other")])
    assert made.model.find_unmodelled(made.cls("p")) == ()
    assert made.feasible("p") == ["a"]


@pytest.mark.parametrize("resource", [GPU, "deviceclass.resource.kubernetes.io/gpu"])
def test_devices_stand_for_an_extended_resource(resource):
    asking = {resource: "2"}
    made = with_classes(
        [node("a"), node("b"), node("c")],
        [pod("p", requests=asking), pod("old", on="a", requests=asking)],
        deviceclasses=[of_class("gpu", resource if resource == GPU else "")],
        resourceslices=[provided("a", 3), provided("b", 2)],
        resourceclaims=[held("old", "a", "gpu-0", "gpu-2")],
    )
    assert made.model.find_unmodelled(made.cls("p")) == ()
    assert made.feasible("p") == ["b"]
    made.state.evict(made.row("old"))
    made.state.reap()
    assert made.feasible("p") == ["a", "b"]
    assert made.filters("p")["c"] == "NodeResourcesFit"


def test_some_nodes_have_a_device_plug_in_and_others_devices_for_a_resource():
    asking = {GPU: "1"}
    claiming: Any = {"resourceClaims": [{"name": "x", "resourceClaimTemplateName": "x"}]}
    exactly = {"deviceClassName": "gpu", "count": 1}
    template = {
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}},
    }
    made = with_classes(
        [offering("a", "2"), node("b"), node("c")],
        [pod("p", requests=asking), pod("q", **claiming), pod("old", on="b", requests=asking)],
        deviceclasses=[of_class("gpu", GPU)],
        resourceslices=[provided("b", 2)],
        resourceclaims=[held("old", "b", "gpu-0")],
        resourceclaimtemplates=[template],
    )
    assert made.feasible("p") == ["a", "b"]
    assert made.feasible("q") == ["b"]
    made.state.place(made.row("q"), made.cls("q"), 1)
    assert made.feasible("p") == ["a"]


@pytest.mark.parametrize(
    ("classes", "nodes", "spec", "why"),
    [
        (
            [of_class("gpu", GPU), of_class("other", GPU)],
            [node("a")],
            {"requests": {GPU: "1"}},
            f"several DeviceClasses stand behind {GPU}",
        ),
        ([of_class("gpu", GPU)], [node("a")], {"requests": {GPU: "33"}}, "more than 32"),
        (
            [of_class("gpu", GPU)],
            [node("a")],
            {
                "initContainers": [{"name": "i", "resources": {"requests": {GPU: "1"}}}],
                "requests": {"cpu": "1"},
            },
            "init containers ask",
        ),
        (
            [of_class("gpu", GPU)],
            [offering("a", "1"), node("b")],
            {"requests": {GPU: "1"}},
            "has devices and a device plug-in",
        ),
    ],
)
def test_what_is_not_modelled_of_such_devices_is_named(classes, nodes, spec, why):
    pods = [pod("p", **spec), pod("old", on=nodes[-1]["metadata"]["name"], requests={GPU: "1"})]
    made = with_classes(nodes, pods, deviceclasses=classes, resourceslices=[provided("a", 2)])
    assert why in made.model.find_unmodelled(made.cls("p"))[0]


def test_nodes_that_offer_a_resource_hide_no_devices_on_others():
    """As while a cluster goes from a device plug-in to a driver."""
    asking = {GPU: "1"}
    made = with_classes(
        [offering("a", "1"), node("b")],
        [pod("old", on="a", requests=asking), pod("p", requests=asking)],
        deviceclasses=[of_class("gpu", GPU)],
        resourceslices=[provided("b", 1)],
    )
    assert made.model.find_unmodelled(made.cls("p")) == ()
    assert made.feasible("p") == ["b"]


@pytest.mark.parametrize(
    "limited", ["count/resourceclaims.resource.k8s.io", "gpu.deviceclass.resource.k8s.io/devices"]
)
def test_a_quota_on_claims_is_named_for_such_a_resource(limited):
    quota = {
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {limited: "0"}},
        "status": {"hard": {limited: "0"}, "used": {limited: "0"}},
    }
    made = with_classes(
        [node("a")],
        [pod("p", requests={GPU: "1"})],
        deviceclasses=[of_class("gpu", GPU)],
        resourceslices=[provided("a", 1)],
        resourcequotas=[quota],
    )
    assert "limits claims" in made.model.find_unmodelled(made.cls("p"))[0]


def test_an_amount_of_such_a_resource_asks_for_devices():
    made = with_classes(
        [node("a"), node("b")],
        [pod("p", requests={GPU: "1"}), pod("old", on="a", requests={GPU: "1"})],
        deviceclasses=[of_class("gpu", GPU)],
        resourceslices=[provided("a", 1), provided("b", 1)],
        resourceclaims=[held("old", "a", "gpu-0")],
    )
    amounts = made.snapshot.amounts({GPU: "1"})
    assert amounts is not None
    free = made.snapshot.nodes.allocatable - made.state.used
    assert (free >= amounts[:, None]).all(axis=0).tolist() == [False, True]
