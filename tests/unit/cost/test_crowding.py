"""Where the living pods of each owner stand: how many, on which nodes, most on one."""

from rebalancer.cost.view import Crowding
from rebalancer.testing.snapshots import node, workload
from tests.unit.cost.small import view_on

N0, N1, N2 = range(3)


def test_the_living_pods_of_each_owner_the_most_on_one_node_and_their_nodes():
    web, db, gone = (
        workload("web", ["n2", "n0", "n0"]),
        workload("db", ["n1"]),
        workload("gone", ["n1", "n1"]),
    )
    for pod in gone[1:]:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    waits = workload("waits", ["n0"])
    del waits[-1]["spec"]["nodeName"]
    nodes = [node("n0"), node("n1"), node("n2")]
    snapshot = view_on([*nodes, *web, *db, *gone, *waits]).snapshot
    crowding = Crowding.of(snapshot)
    counted = {
        owner.ref.rpartition("/")[2]: (
            crowding.pods[index],
            crowding.fullest[index],
            crowding.nodes(index).tolist(),
        )
        for index, owner in enumerate(snapshot.owners)
    }
    assert counted == {
        "web": (3, 2, [N0, N2]),
        "db": (1, 1, [N1]),
        "gone": (0, 0, []),
        "waits": (0, 0, []),
    }
    assert [snapshot.owners[index].ref for index in crowding.crowded()] == [
        "Deployment/default/web"
    ]


def test_a_cluster_without_pods_crowds_nothing():
    assert Crowding.of(view_on([node("n0")]).snapshot).crowded() == []


def test_a_view_counts_once():
    view = view_on([node("n0"), *workload("web", ["n0"])])
    assert view.crowding() is view.crowding()
