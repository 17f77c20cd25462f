"""On which nodes the operating system runs a pod; the scheduler does not ask."""

import pytest

from rebalancer.testing.snapshots import node, snapshot_of, workload

OS = "kubernetes.io/os"
NODES = [
    node("bare"),
    node("lin0", labels={OS: "linux"}),
    node("lin1", labels={OS: "linux"}),
    node("win0", labels={OS: "windows"}),
]


def foreign(objects, name):
    snapshot = snapshot_of(objects)
    cls = int(snapshot.pods.cls[list(snapshot.pods.name).index(name)])
    nodes = snapshot.foreign_nodes(snapshot.classes[cls].replacement)
    return [] if nodes is None else [snapshot.nodes.names[at] for at in nodes.nonzero()[0]]


def unready(objects):
    for item in objects:
        if item["kind"] == "Pod":
            item["status"]["conditions"][0]["status"] = "False"
    return objects


@pytest.mark.parametrize(
    ("pods", "others"),
    [
        (workload("web", ["bare"], spec={"os": {"name": "linux"}}), ["win0"]),
        (workload("web", ["bare"], spec={"os": {"name": "windows"}}), ["lin0", "lin1"]),
        # Without spec.os, what its Ready pods stand on says it.
        (workload("web", ["lin0", "lin1"]), ["win0"]),
        (workload("web", ["win0"], kind="StatefulSet"), ["lin0", "lin1"]),
        (workload("web", ["lin0", "win0"]), []),
        (workload("web", ["bare"]), []),
        (unready(workload("web", ["lin0"])), []),
        # What the pod says counts, wherever it stands.
        (workload("web", ["lin0"], spec={"os": {"name": "windows"}}), ["lin0", "lin1"]),
        # One that waits is of the template of those that are Ready.
        (workload("web", ["", "lin0"]), ["win0"]),
        (workload("web", [""]), []),
    ],
)
def test_nodes_of_another_operating_system_are_foreign(pods, others):
    assert foreign([*NODES, *pods], "web-0") == others


def test_a_new_template_runs_where_the_old_one_does():
    old, new = workload("web", ["lin0"]), workload("web", [""])
    for item in new:
        item["metadata"]["uid"] = f"{item['metadata'].get('uid', '')}-new"
    new[-1]["metadata"]["name"] = "web-new"
    new[-1]["metadata"]["ownerReferences"][0]["uid"] = new[1]["metadata"]["uid"]
    new[1]["metadata"]["name"] = "web-2"
    assert foreign([*NODES, *old, *new[1:]], "web-new") == ["win0"]


SYSTEM = {"key": OS, "operator": "In", "values": ["linux", "windows"]}
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [SYSTEM]}]}
EACH = {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}
PREFERRED = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [SYSTEM]}}
    ]
}


@pytest.mark.parametrize(
    ("spec", "others"),
    [
        ({"nodeSelector": {OS: "linux"}}, []),
        ({"nodeSelector": {OS: "windows"}}, []),
        ({"nodeSelector": {"pool": "a"}}, ["win0"]),
        ({"affinity": {"nodeAffinity": EACH}}, []),
        ({"affinity": {"nodeAffinity": PREFERRED}}, ["win0"]),
        # The kubelet asks what the spec says in any case.
        ({"nodeSelector": {OS: "windows"}, "os": {"name": "linux"}}, ["win0"]),
    ],
)
def test_what_the_scheduler_asks_by_itself_makes_no_node_foreign(spec, others):
    assert foreign([*NODES, *workload("web", ["lin0"], spec=spec)], "web-0") == others


def test_a_cluster_of_one_operating_system_is_asked_for_spec_only():
    web = workload("web", ["lin0"])
    assert foreign([*NODES[1:3], *web], "web-0") == []
    asks = workload("web", ["lin0"], spec={"os": {"name": "windows"}})
    assert foreign([*NODES[1:3], *asks], "web-0") == ["lin0", "lin1"]
