"""What a pod's explanation says of its landing, and of pods that wait beside it."""

import json

import pytest

from rebalancer.explain.text import format_nodes
from rebalancer.report.document import ReportDocument
from rebalancer.scheduler.explain import explain_pod
from rebalancer.testing.snapshots import node as plain_node
from rebalancer.testing.snapshots import workload
from tests.unit.commands.called import called
from tests.unit.scheduler.worlds import HOSTNAME, World, node, pod


def test_pending_pods_that_take_the_room_are_named_up_to_ten():
    queue = [
        pod(f"w{i:02}", requests={"cpu": "100m"}, nodeSelector={HOSTNAME: "a"}) for i in range(12)
    ]
    world = World(
        [node("a", cpu="2"), node("b", cpu="2")], [pod("v", on="a", requests={"cpu": "2"}), *queue]
    )
    explanation = explain_pod(world.snapshot, world.model, world.state, world.row("v"))
    assert [one.pod for one in explanation.pending] == [f"default/w{i:02}" for i in range(12)]
    assert (
        ReportDocument(format_nodes(explanation, "a"), {})
        .show("table")
        .startswith("Nodes that will not take it\n")
    )


def explained(tmp_path, objects, name, *args, policy=""):
    path, rules = tmp_path / "cluster.json", tmp_path / "policy.yaml"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    rules.write_text(f"apiVersion: rebalancer/v1\nkind: Policy\n{policy}")
    done = called("explain", "pod", name, f"--snapshot={path}", f"--policy={rules}", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def waiting(name, cpu, created):
    objects = workload(name, ["n1"], cpu=cpu)
    one = objects[-1]
    del one["spec"]["nodeName"]
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    one["status"] = {"phase": "Pending", "conditions": [unschedulable]}
    one["metadata"]["creationTimestamp"] = created
    return objects


@pytest.mark.parametrize(("first", "second"), [("early", "late"), ("late", "early")])
def test_pods_that_wait_have_the_node_that_the_queue_leaves_them(tmp_path, first, second):
    """Of two, the older has the better node, and of the other all parts of the answer name the node that is left."""
    ages = {first: "2026-01-01T00:00:00Z", second: "2026-01-01T00:01:00Z"}
    pods = [one for name in sorted(ages) for one in waiting(name, "700m", ages[name])]
    nodes = [plain_node(name, "a", cpu="1") for name in ("n1", "n2")]
    for name in ages:
        data = json.loads(explained(tmp_path, [*nodes, *pods], f"default/{name}-0", "-o", "json"))
        before = [(f"default/{first}-0", "n1")] if name == second else []
        assert [(one["pod"], one["node"]) for one in data["pending"]] == before
        assert data["machines"]["node"] == data["landings"][0]["node"]
        assert len(data["landings"]) == (1 if before else 2)


MAKE_ROOM = "protect: {minPodAge: 0s}\nsteer: marks\nstrategies: {make-room: {after: 0s}}\n"


def test_of_a_pod_for_which_room_is_made_the_moves_are_the_answer(tmp_path):
    nodes = [plain_node(name, "a", cpu="4") for name in ("n1", "n2")]
    small = workload("small", ["n1", "n2"], cpu="2")
    big = waiting("big", "3", "2026-01-01T00:00:00Z")
    text = explained(tmp_path, [*nodes, *small, *big], "big-0", policy=MAKE_ROOM)
    assert "the plan makes room for default/big-0 on n" in text
    assert "default/small-" in text
    assert "moves from n" in text
    assert "evicted now" not in text
    assert text.index("makes room") < text.index("Nodes that will not take it")
    data = json.loads(
        explained(tmp_path, [*nodes, *small, *big], "big-0", "-o", "json", policy=MAKE_ROOM)
    )
    assert data["plan"]["verdict"] == "room"
    assert [move["makesWayFor"] for move in data["plan"]["roomBy"]] == [big[-1]["metadata"]["uid"]]
