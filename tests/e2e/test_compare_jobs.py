"""compare in the pods of an Indexed Job: the Job controller makes them, the test runs what their kubelet would."""

import copy
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rebalancer.kube.resources import AccessRule
from tests.controlplane import wait_until
from tests.e2e.product import grant, rebalancer
from tests.unit.fleet.test_stores import WHERE, bucket  # noqa: F401  (a fixture)
from tests.unit.fleet.worlds import skewed, write_policies

RULES = (
    AccessRule("get", "batch", "cronjobs"),
    *(AccessRule(verb, "batch", "jobs") for verb in ("get", "create", "delete")),
)
_ANNOTATION = "batch.kubernetes.io/job-completion-index"
CRON_JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "recording", "namespace": "default"},
    "spec": {
        "schedule": "0 0 1 1 *",
        "suspend": True,
        "jobTemplate": {
            "spec": {
                "template": {
                    "metadata": {"labels": {"app": "recording"}},
                    "spec": {
                        "restartPolicy": "Never",
                        # No node: KWOK would end the pods before they have done anything.
                        "nodeSelector": {"is": "nowhere"},
                        "containers": [{"name": "rebalancer", "image": "i", "args": ["record"]}],
                    },
                }
            }
        },
    },
}


def pods_of(cluster):
    path = "/api/v1/namespaces/default/pods?labelSelector=app%3Drecording"
    return [pod for pod in cluster.api.get(path)["items"] if pod["status"]["phase"] == "Pending"]


def play_one(cluster):
    """Run what the first waiting pod would, and say that it has succeeded; return its index."""
    waiting = pods_of(cluster)
    if not waiting:
        return None
    pod = waiting[0]
    index = pod["metadata"]["annotations"][_ANNOTATION]
    (container,) = pod["spec"]["containers"]
    assert "JOB_COMPLETION_INDEX" in [one["name"] for one in container["env"]]
    done = rebalancer(*container["args"], env={"JOB_COMPLETION_INDEX": index})
    assert done.code == 0, done.err
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
    cluster.api.patch(path, {"status": {"phase": "Succeeded"}})
    return index


def compare_by_job(cluster, *args):
    """Compare by the Job of the CronJob, until that is gone; return how it ended, and the indices played."""
    by_job = [*args, "--kubernetes=default/recording"]
    played: list[str | None] = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(rebalancer, *by_job, f"--kubeconfig={grant(cluster, RULES)}")

        def end_of_all_parts():
            played.append(play_one(cluster))
            return running.done()

        wait_until(end_of_all_parts, 300, "the comparison by a Job")
        done = running.result()
    wait_until(lambda: not cluster.api.get("/apis/batch/v1/jobs")["items"], 60, "the Job to go")
    return done, sorted(int(index) for index in played if index)


def test_pods_that_mount_the_claim_of_the_snapshots_give_the_same(cluster, tmp_path):
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    files = [skewed(recorded / f"{number}.json", 1 + number) for number in range(2)]
    cron_job = copy.deepcopy(CRON_JOB)
    pod = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "recorded", "persistentVolumeClaim": {"claimName": "recorded"}}]
    # The test runs where the pod would: the volume is at the same place.
    pod["containers"][0]["volumeMounts"] = [{"name": "recorded", "mountPath": str(recorded)}]
    cluster.apply([cron_job])
    policies = write_policies(tmp_path)
    where = ["--snapshots", str(recorded), "--draws=1", "-ojson"]
    args = ["compare", "--policies", *policies, *where]
    expected = rebalancer(*args)
    done, played = compare_by_job(cluster, *args)
    assert (done.code, done.out, played) == (0, expected.out, list(range(4))), done.err
    assert sorted(recorded.rglob("*")) == sorted([*files, recorded / ".work"])


def test_the_job_of_a_real_controller_gives_the_bytes_of_one_process(cluster, tmp_path, bucket):  # noqa: F811
    cluster.apply([CRON_JOB])
    policies = write_policies(tmp_path)
    for number in range(4):
        file = skewed(tmp_path / f"{number}.json", 1 + number % 3)
        bucket.put_object(Bucket="snapshots", Key=f"prod/a/{number}.json", Body=file.read_bytes())
    args = ["compare", "--policies", *policies, "--snapshots", WHERE, "--draws=2", "-ojson"]
    expected = rebalancer(*args)
    assert expected.code == 0, expected.err
    done, played = compare_by_job(cluster, *args, "--jobs=2")
    assert (done.code, done.out) == (0, expected.out), done.err
    assert played == list(range(8))
    assert len(json.loads(done.out)["rows"]) == 16
    # The Job is deleted, and what it needed in the bucket.
    keys = [one["Key"] for one in bucket.list_objects_v2(Bucket="snapshots")["Contents"]]
    assert keys == [f"prod/a/{number}.json" for number in range(4)]
