"""Drains of single replicas by a restart of their rollout, in an embedded cluster."""

import pytest

from rebalancer.kube.evict import RESTARTED_AT
from rebalancer.testing.objects import deployment, statefulset
from tests.unit.commands.draining import drained, is_cordoned, pods_on
from tests.unit.commands.ready import ReadyPods

RESTART = ("method.singleReplicas=restart",)
# The threads of a process that was killed end, too.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def fill(cluster, *objects):
    """Have these run on n1, and only then n2 and n3 take pods."""
    cluster.cordon(["n2", "n3"])
    cluster.apply(*objects)
    cluster.settle()
    cluster.cordon(["n2", "n3"], on=False)
    cluster.settle()


def outcomes(done):
    return {one["pod"].partition("-")[0]: one["outcome"] for one in done.report["outcomes"]}


def restarts(cluster, name):
    template = cluster.get("Deployment", name)["spec"]["template"]
    return template["metadata"].get("annotations", {}).get(RESTARTED_AT)


@pytest.mark.parametrize(
    ("settings", "least", "how"), [(RESTART, 1, "restarted"), ((), 0, "evicted")]
)
def test_its_only_pod_is_replaced_before_it_goes_where_the_policy_says_so(
    three, settings, least, how
):
    fill(three, deployment("web", 1))
    seen = ReadyPods(three, "web")
    done = drained(three, "n1", settings=settings)
    assert done.code == 0, done.err
    assert outcomes(done) == {"web": how}
    assert not pods_on(three, "n1")
    assert seen.least == {"web": least}


def test_several_single_replicas_go_beside_pods_that_are_evicted(three):
    names = [f"s{number}" for number in range(4)]
    fill(three, *(deployment(name, 1) for name in names), deployment("many", 3))
    seen = ReadyPods(three, *names)
    done = drained(three, "n1", settings=RESTART)
    assert done.code == 0, done.err
    assert outcomes(done) == {**dict.fromkeys(names, "restarted"), "many": "evicted"}
    assert seen.least == dict.fromkeys(names, 1)
    assert not pods_on(three, "n1")


def test_a_dry_run_says_how_each_goes_and_what_leaves_a_gap(three):
    recreated = deployment("old", 1)
    recreated["spec"]["strategy"] = {"type": "Recreate"}
    fill(three, deployment("web", 1), recreated, statefulset("db", 1))
    text = drained(three, "n1", settings=RESTART, dry_run="client", output="table").out
    lines = {
        line.split("/")[1].partition("-")[0]: line for line in text.splitlines() if "->" in line
    }
    assert lines["web"].endswith("; by a restart of its rollout: it goes once the new pod is Ready")
    assert "evicted, with a gap: " in lines["old"]
    assert lines["old"].endswith(": Deployment/default/old: its strategy is Recreate")
    assert lines["db"].endswith(
        ": StatefulSet/default/db: the rolling update of a StatefulSet ends each pod before it creates the next"
    )
    for dry_run in ("client", "server"):
        report = drained(three, "n1", settings=RESTART, dry_run=dry_run).report
        methods = {
            pod["pod"].partition("-")[0]: pod["method"] for pod in report["nodes"][0]["pods"]
        }
        assert methods == {"web": "restart", "old": "evict", "db": "evict"}
        assert (report["exitCode"], report["nodes"][0]["verdict"]) == (0, "drainable")
    assert restarts(three, "web") is None
    assert not is_cordoned(three, "n1")
    done = drained(three, "n1", settings=RESTART)
    assert outcomes(done) == {"web": "restarted", "old": "evicted", "db": "evicted"}


def test_a_gang_with_a_single_replica_goes_pod_by_pod_and_only_by_order(three):
    gang = {"pod-group-name": "llm"}
    fill(three, *(deployment(name, 1, pod_annotations=gang) for name in ("head", "tail")))
    assert drained(three, "n1", dry_run="client").verdicts == {"n1": "drainable"}
    done = drained(three, "n1", settings=RESTART)
    assert (done.verdicts, done.codes) == ({"n1": "refused"}, {"Gang"})
    assert "moves by a restart of its rollout" in done.out
    seen = ReadyPods(three, "head", "tail")
    done = drained(three, "n1", settings=RESTART, evict_gangs=True)
    assert (done.code, outcomes(done)) == (0, dict.fromkeys(("head", "tail"), "restarted"))
    assert seen.least == {"head": 1, "tail": 1}


def test_a_rollout_that_a_person_forbids_goes_only_by_force(three):
    kept = deployment("web", 1)
    kept["metadata"]["annotations"] = {"rebalancer/evict": "false"}
    fill(three, kept)
    assert drained(three, "n1", settings=RESTART).verdicts == {"n1": "refused"}
    seen = ReadyPods(three, "web")
    done = drained(three, "n1", settings=RESTART, force=True)
    assert (done.code, outcomes(done)) == (0, {"web": "restarted"}), done.err
    assert seen.least == {"web": 1}
