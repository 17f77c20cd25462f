"""What a drain says, as a table and as data."""

from rebalancer.machines.drain.report import DrainReport
from rebalancer.testing.snapshots import node, workload
from tests.unit.machines.drain.test_preflight import NODES, budget, looked


def report(objects, *names, **more):
    snapshot, checks = looked(objects, *names)
    return DrainReport("cluster.zip", True, snapshot, checks, 0, **more)


def test_each_node_has_a_verdict_and_what_is_in_the_way_is_named():
    objects = [*NODES, *workload("web", ["n1", "n2"]), budget("b", "web", 0, 2, 2, 2)]
    text = report(objects, "n1", "n3").render("table")
    assert text == (
        "Drain of 2 nodes (dry run)\n"
        "cluster.zip, Kubernetes 1.36, 2027-01-15T08:00:00Z\n"
        "\n"
        "  n1  never-satisfiable  1 to evict\n"
        "      PodDisruptionBudget: default/b needs 2 healthy pods and has 2: of 2 pods it never lets one go\n"
        "        default/web-0\n"
        "  n3  drainable\n"
        "\n"
        "Refused: nothing was cordoned, and nothing evicted.\n"
    )


def test_many_pods_in_one_situation_are_counted():
    objects = [node("n1"), node("n2", cpu="10m"), *workload("web", ["n1"] * 7)]
    text = report(objects, "n1").render("table")
    assert "default/web-4 and 2 more" in text


def test_how_it_ended_is_one_sentence():
    assert report(NODES, "n1").render("table").endswith("this is a dry run.\n")
    done = report(NODES, "n1", ended="the run's deadline has passed").render("table")
    assert done.endswith("Not empty: the run's deadline has passed.\n")


def test_the_data_has_landings_and_codes():
    data = report([*NODES, *workload("web", ["n1"])], "n1").data()
    assert (data["kind"], data["exitCode"], data["dryRun"]) == ("DrainReport", 0, True)
    ((pod,),) = [of["pods"] for of in data["nodes"]]
    assert (pod["pod"], pod["fate"], pod["code"]) == ("web-0", "evict", "Ordered")
    assert {landing["node"] for landing in pod["landings"]} <= {"n2", "n3"}
