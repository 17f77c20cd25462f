"""The explanation of a landing as a table."""

from rebalancer.explain.text import format_explanation
from rebalancer.scheduler.explain import explain_pod
from tests.unit.scheduler.worlds import HOSTNAME, World, node, pod


def test_pending_pods_that_take_the_room_are_named_up_to_ten():
    queue = [
        pod(f"w{i:02}", requests={"cpu": "100m"}, nodeSelector={HOSTNAME: "a"}) for i in range(12)
    ]
    world = World(
        [node("a", cpu="2"), node("b", cpu="2")],
        [pod("v", on="a", requests={"cpu": "2"}), *queue],
    )
    explanation = explain_pod(world.snapshot, world.model, world.state, world.row("v"))
    lines = format_explanation(explanation).splitlines()
    at = lines.index("Pending pods that would take the room that it leaves")
    assert lines[at + 1] == "  default/w00 on a"
    assert lines[at + 11 :] == ["  ... and 2 more (-o json shows all)"]
    assert "Pending pods" not in format_explanation(explanation, "a")
