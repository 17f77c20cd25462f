"""Cases of kube-scheduler's own table tests (``plugins/nodeports``)."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.worlds import Json, World, node, pod


def ports(*wanted: str) -> list[Json]:
    declared = []
    for one in wanted:
        protocol, address, port = one.split("/")
        declared.append({"protocol": protocol, "hostIP": address, "hostPort": int(port)})
    return [{"name": "main", "ports": declared}]


@pytest.mark.parametrize(
    ("wanted", "standing", "fits"),
    [
        ([], [], True),
        (["UDP/127.0.0.1/8080"], ["UDP/127.0.0.1/9090"], True),
        (["UDP/127.0.0.1/8080"], ["UDP/127.0.0.1/8080"], False),
        (["TCP/127.0.0.1/8080"], ["TCP/127.0.0.1/8080"], False),
        (["TCP/127.0.0.1/8080"], ["TCP/127.0.0.2/8080"], True),
        (["UDP/127.0.0.1/8080"], ["TCP/127.0.0.1/8080"], True),
        (["UDP/127.0.0.1/8000", "UDP/127.0.0.1/8080"], ["UDP/127.0.0.1/8080"], False),
        (["TCP/0.0.0.0/8001"], ["TCP/127.0.0.1/8001"], False),
        (["TCP/10.0.10.10/8001", "TCP/0.0.0.0/8001"], ["TCP/127.0.0.1/8001"], False),
        (["TCP/127.0.0.1/8001"], ["TCP/0.0.0.0/8001"], False),
        (["UDP/127.0.0.1/8001"], ["TCP/0.0.0.0/8001"], True),
        (["UDP//8001"], ["UDP/127.0.0.1/8001"], False),
        (["TCP//0"], ["TCP//0"], True),
    ],
)
def test_a_port_is_taken_per_protocol_and_address(wanted, standing, fits):
    world = World(
        [node("a")],
        [pod("old", on="a", containers=ports(*standing)), pod("p", containers=ports(*wanted))],
    )
    assert world.filters("p") == {"a": "" if fits else "NodePorts"}


def test_sidecars_hold_ports_and_init_containers_do_not():
    once = {**ports("TCP//80")[0], "name": "once"}
    always = {**once, "name": "always", "restartPolicy": "Always"}
    nodes = [node("a"), node("b")]
    old = [pod("x", on="a", initContainers=[always]), pod("y", on="b", initContainers=[once])]
    assert World(nodes, [*old, pod("p", containers=ports("TCP//80"))]).feasible("p") == ["b"]
