"""What a drain says, as a table and as data."""

from rebalancer.machines.drain.report import DrainReport
from rebalancer.testing.snapshots import node, workload
from tests.unit.machines.drain.test_preflight import GAP, NODES, RECREATE, budget, looked, single


def report(objects, *names, method="evict", **more):
    snapshot, checks = looked(objects, *names, method=method)
    return DrainReport("cluster.zip", True, snapshot, checks, 0, **more)


def test_each_node_has_a_verdict_and_what_is_in_the_way_is_named():
    objects = [*NODES, *workload("web", ["n1", "n2"]), budget("b", "web", 0, 2, 2, 2)]
    text = report(objects, "n1", "n3").document.show("table")
    assert text == (
        "Drain of 2 nodes (dry run)\n"
        "cluster.zip, Kubernetes 1.36, 2027-01-15T08:00:00Z\n"
        "\n"
        "  n1  never-satisfiable  1 to evict\n"
        "      PodDisruptionBudget: default/b can never allow an eviction: of 2 pods 2 have to be healthy\n"
        "        default/web-0\n"
        "  n3  drainable\n"
        "\n"
        "Refused: nothing was cordoned, and nothing evicted.\n"
    )


def test_many_pods_in_one_situation_are_counted():
    objects = [node("n1"), node("n2", cpu="10m"), *workload("web", ["n1"] * 7)]
    text = report(objects, "n1").document.show("table")
    assert "default/web-4 and 2 more" in text


def test_how_it_ended_is_one_sentence():
    assert report(NODES, "n1").document.show("table").endswith("this is a dry run.\n")
    done = report(NODES, "n1", ended="the run's deadline has passed").document.show("table")
    assert done.endswith("Not empty: the run's deadline has passed.\n")


def test_a_dry_run_says_how_a_single_replica_goes():
    def line(objects, method):
        text = report([*NODES[:2], *objects], "n1", method=method).document.show("table")
        return next(line.strip() for line in text.splitlines() if "->" in line)

    goes = "default/web-0 -> n2 100%"
    assert line(single(), "evict") == goes
    restarted = f"{goes}; by a restart of its rollout: it goes once the new pod is Ready"
    assert line(single(), "restart") == restarted
    gap = f"{goes}; {GAP}Deployment/default/web: its strategy is Recreate"
    assert line(single(RECREATE), "restart") == gap


def test_the_data_has_landings_and_codes():
    data = report([*NODES, *workload("web", ["n1"])], "n1").data()
    assert (data["kind"], data["exitCode"], data["dryRun"]) == ("DrainReport", 0, True)
    ((pod,),) = [of["pods"] for of in data["nodes"]]
    assert (pod["pod"], pod["fate"], pod["code"]) == ("web-0", "evict", "Ordered")
    assert pod["method"] == "evict"
    assert {landing["node"] for landing in pod["landings"]} <= {"n2", "n3"}
