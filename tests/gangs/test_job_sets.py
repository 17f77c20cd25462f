"""JobSets move as far as their Jobs let pods fail, and come back whole."""

import time

import pytest

from rebalancer.kube.access import DRAIN_RULES
from tests.e2e.product import RUN_RULES, Product, grant, rebalancer
from tests.gangs.ground import job_set

TAINTS = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s, jobs: false}
budgets: {perRun: 100%, inFlight: 100%, perOwner: 100%, perNode: 100}
strategies: {taints: {}}
"""
DRAIN = ("--ignore-daemonsets", "--evict-batch", "--wait-batch=0s", "-o", "json")


def drain(ground, *flags):
    kubeconfig = grant(ground.plane, (*RUN_RULES, *DRAIN_RULES))
    return rebalancer("drain", f"--kubeconfig={kubeconfig}", *DRAIN, *flags)


def on(ground, app, node):
    """The names of the pods of ``app`` on ``node``, without what the Job controller adds at random."""
    return {pod.rpartition("-")[0] for pod, where in ground.where(app).items() if where == node}


def test_a_drain_never_makes_a_job_fail_for_good(ground):
    """Eight pods are more than the six that may fail by default: those on the node leave, the others stay."""
    ground.nodes([f"n{n}" for n in range(4)], cpu="4")
    ground.make(job_set("train", {"w": 8}, cpu="1"), 8)
    ground.nodes(["n4"], cpu="4")
    goes = ground.where("train").popitem()[1]
    named = on(ground, "train", goes)
    looked = drain(ground, goes, "--dry-run=client")
    assert looked.code == 0, (looked.err, looked.out)
    done = drain(ground, goes)
    assert done.code == 0, (done.err, done.out)
    left = {one["pod"].rpartition("-")[0] for one in done.report["outcomes"]}
    assert left == named
    ground.settle("train", 8)
    assert ground.terminal("train") == ""
    assert ground.jobs()["train-w-0"]["failed"] == len(named)


def test_a_drain_is_refused_where_the_first_eviction_would_be_the_end(ground):
    ground.nodes(["n0", "n1", "n2"], cpu="4")
    ground.make(job_set("train", {"w": 2}, cpu="3", job={"backoffLimit": 0}), 2)
    goes = ground.where("train").popitem()[1]
    for flags in (("--dry-run=client",), ()):
        done = drain(ground, goes, *flags)
        assert done.code == 3, (done.err, done.out)
        (pod,) = (
            pod for of in done.report["nodes"] for pod in of["pods"] if pod["verdict"] == "refused"
        )
        assert pod["code"] == "Gang"
        assert "its Job train-w-0 would fail: it allows 0 failed, and has 0" in pod["message"]
    ground.settle("train", 2)
    assert ground.terminal("train") == ""


@pytest.mark.parametrize("jobs", [{"a": 2, "b": 1}])
def test_a_run_moves_a_job_set_whole_and_waits_for_as_long_as_its_jobs_do(ground, tmp_path, jobs):
    """A Job makes no pod again for 10 seconds after the first failure, and for 20 after the second."""
    ground.nodes([f"n{n}" for n in range(4)], cpu="4")
    ground.make(job_set("train", jobs, cpu="3"), 3)
    ground.taint(ground.where("train").popitem()[1])
    began = time.monotonic()
    ran = Product(ground.plane, tmp_path, TAINTS).run()
    assert ran.code == 0, (ran.err, ran.out)
    assert [one["outcome"] for one in ran.report["moves"]] == ["evicted"] * 3
    assert all(one["landed"] for one in ran.report["moves"])
    assert time.monotonic() - began > 10
    ground.settle("train", 3)
    assert ground.terminal("train") == ""


def test_a_run_waits_longer_than_for_other_pods_where_its_job_pauses_longer(ground, tmp_path):
    """Three failures are a pause of 40 seconds; ``maxPendingTime`` is 30."""
    ground.nodes([f"n{n}" for n in range(4)], cpu="4")
    ground.make(job_set("train", {"w": 3}, cpu="3"), 3)
    ground.taint(ground.where("train").popitem()[1])
    ran = Product(ground.plane, tmp_path, TAINTS).run()
    assert ran.code == 0, (ran.err, ran.out)
    assert all(one["landed"] for one in ran.report["moves"])


def test_a_job_set_that_starts_all_of_its_jobs_again_is_seen_again(ground, tmp_path):
    """Its Jobs are made again under their names, with other uids, once one of them has failed."""
    ground.nodes([f"n{n}" for n in range(4)], cpu="4")
    policy = {"failurePolicy": {"maxRestarts": 3}}
    fails = {
        "backoffLimit": 6,
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
            ]
        },
    }
    ground.make(job_set("train", {"w": 3}, cpu="3", job=fails, **policy), 3)
    goes = ground.where("train").popitem()[1]
    done = drain(ground, goes)
    assert done.code == 0, (done.err, done.out)
    ground.settle("train", 3)
    assert ground.jobs()["train-w-0"].get("failed", 0) == 0
    assert ground.terminal("train") == ""


def test_a_job_with_a_rack_to_itself_follows_its_leader_into_another(ground):
    """The webhook of JobSet writes the rack of the leader's node into the nodeSelector of the other pods."""
    ground.nodes(["n0", "n1"], cpu="4", labels={"rack": "a"})
    of = job_set("train", {"w": 2}, cpu="3")
    of["metadata"]["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    ground.make(of, 2)
    ground.nodes(["n2", "n3"], cpu="4", labels={"rack": "b"})
    assert set(ground.where("train").values()) == {"n0", "n1"}
    done = drain(ground, "n0", "n1")
    assert done.code == 0, (done.err, done.out)
    ground.settle("train", 2)
    assert set(ground.where("train").values()) == {"n2", "n3"}
    assert {one["landed"] for one in done.report["outcomes"]} == {"n2", "n3"}
