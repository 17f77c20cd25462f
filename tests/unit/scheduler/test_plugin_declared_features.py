"""NodeDeclaredFeatures: cases of kube-scheduler's own tests (``plugins/nodedeclaredfeatures``)."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.worlds import Json, World, node, pod

RESTARTING: Json = {
    "containers": [
        {
            "name": "main",
            "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {}}],
        }
    ]
}
ONE_CONTAINER: Json = {
    "containers": [{"name": "main", "restartPolicyRules": [{"action": "Restart"}]}]
}
INIT: Json = {"initContainers": RESTARTING["containers"]}
USERS: Json = {"hostNetwork": True, "hostUsers": False}


def declaring(name: str, *features: str) -> Json:
    made = node(name)
    made["status"]["declaredFeatures"] = list(features)
    return made


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, "abc"),
        (ONE_CONTAINER, "abc"),
        (RESTARTING, "b"),
        (INIT, "b"),
        (USERS, "c"),
        ({"hostNetwork": True}, "abc"),
        ({"hostNetwork": True, "hostUsers": True}, "abc"),
        ({"hostUsers": False}, "abc"),
        ({**RESTARTING, **USERS}, ""),
    ],
)
def test_a_pod_goes_where_the_kubelet_can_do_what_it_needs(spec, fits):
    nodes = [
        declaring("a", "ExtendWebSocketsToKubelet"),
        declaring("b", "RestartAllContainersOnContainerExits"),
        declaring("c", "UserNamespacesHostNetworkSupport"),
    ]
    world = World(nodes, [pod("p", **spec), pod("plain")])
    assert world.feasible("p") == list(fits)
    assert set(world.filters("p").values()) <= {"", "NodeDeclaredFeatures"}
    assert world.feasible("plain") == ["a", "b", "c"]
    assert World(nodes, [pod("p", **spec)], version=(1, 35)).feasible("p") == ["a", "b", "c"]
