"""Tasks in the pods of an Indexed Job: pods are played by the test, the bucket is moto, the API server scripted."""

import contextlib
import json
from typing import Any

import msgspec
import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.cli import command
from rebalancer.fleet.indexed_job import IndexedJob, play_part
from rebalancer.fleet.stores import store_of
from rebalancer.fleet.task import Failure, Row
from tests.unit.fleet.test_engines import by_number, row, tasks
from tests.unit.fleet.test_stores import WHERE, bucket  # noqa: F401  (a fixture)
from tests.unit.kube.scripted import Say, client_of, kubeconfig

JOBS = "/apis/batch/v1/namespaces/rebalancing/jobs"
CRON = ("rebalancing", "rebalancer-record")
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {
        "serviceAccountName": "recording",
        "containers": [{"name": "rebalancer", "image": "i", "args": ["record", "--to=s3://x"]}],
    },
}


def job_on(server, folder, where, template=TEMPLATE):
    cron = {"spec": {"jobTemplate": {"spec": {"template": template}}}}
    path = f"/apis/batch/v1/namespaces/{CRON[0]}/cronjobs/{CRON[1]}"
    server.on("GET", path, Say(json.dumps(cron).encode()))
    server.on("POST", JOBS, Say(b"{}", status=201))
    engine = IndexedJob(client_of(server.url, folder), CRON, where, 2)
    engine.poll_interval = 0.05
    return engine


@pytest.fixture
def job(server, tmp_path, bucket):  # noqa: F811
    return job_on(server, tmp_path, WHERE)


class Kubelet:
    """Plays the parts of the Job that was created, one with each look at its status, as the pods of its indices would."""

    def __init__(self, server, play=row, parts=8):
        self.server, self.play, self.left = server, play, list(range(parts))
        server.fallback = self.answer

    @property
    def manifest(self):
        return self.server.to(JOBS, "POST")[-1].body

    def answer(self, asked):
        assert asked.path == f"{JOBS}/{self.manifest['metadata']['name']}"
        if asked.method == "DELETE":
            return Say(b"{}")
        conditions = []
        if self.left:
            (verb, where) = self.manifest["spec"]["template"]["spec"]["containers"][0]["args"]
            assert verb == "work"
            with contextlib.suppress(PodDied):
                play_part(store_of(where), self.left[0], self.play)
                del self.left[0]
        else:
            conditions = [{"type": "Complete", "status": "True"}]
        return Say(json.dumps({"status": {"conditions": conditions}}).encode())


class PodDied(BaseException):
    """Ends a pod in the middle of a task."""


def given(number):
    return [
        msgspec.structs.replace(task, source=f"{WHERE}/{task.draw}.json") for task in tasks(number)
    ]


def test_the_pods_of_a_job_play_all_tasks_and_nothing_is_left_behind(job, server, bucket):  # noqa: F811
    kubelet = Kubelet(server)
    assert by_number(job.run(iter(given(20)))) == [row(task) for task in given(20)]
    spec = kubelet.manifest["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 8, 2)
    pod = spec["template"]["spec"]
    assert pod["serviceAccountName"] == "recording"
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False
    assert [one.method for one in server.asked].count("DELETE") == 1
    assert bucket.list_objects_v2(Bucket="snapshots").get("KeyCount") == 0


def test_a_task_that_ends_its_pod_each_time_is_named_and_fails_alone(job, server):
    def deadly(task):
        if task.number == 3:
            raise PodDied
        return row(task)

    Kubelet(server, deadly)
    results = by_number(job.run(iter(given(9))))
    assert [type(of) for of in results] == [Row] * 3 + [Failure] + [Row] * 5
    assert results[3].error.startswith("its pod died 3 times")


def test_a_pod_that_died_once_goes_on_where_it_stood(job, server):
    played = []

    def once(task):
        played.append(task.number)
        if task.number == 2 and played.count(2) == 1:
            raise PodDied
        return row(task)

    Kubelet(server, once, parts=4)
    assert by_number(job.run(iter(given(4)))) == [row(task) for task in given(4)]
    assert played == [0, 1, 2, 2, 3]


def test_a_job_that_ends_without_results_fails_its_tasks_by_name(job, server):
    kubelet = Kubelet(server)
    kubelet.left = []
    results = list(job.run(iter(given(2))))
    assert all(isinstance(of, Failure) for of in results)
    assert "has ended without it: Complete" in results[0].error


def test_a_volume_with_a_claim_serves_as_a_bucket_does(server, tmp_path):
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    container = TEMPLATE["spec"]["containers"][0]
    mounts = [{"name": "v", "mountPath": str(recorded)}, {"name": "s", "mountPath": "/scratch"}]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "s"}]
    spec = {"containers": [{**container, "volumeMounts": mounts}], "volumes": volumes}
    job = job_on(server, tmp_path, str(recorded / "prod"), {**TEMPLATE, "spec": spec})
    given = [
        msgspec.structs.replace(task, source=str(recorded / f"{task.draw}.json"))
        for task in tasks(9)
    ]
    kubelet = Kubelet(server)

    def deadly(task):
        if task.number == 3:
            raise PodDied
        return row(task)

    kubelet.play = deadly
    results = by_number(job.run(iter(given)))
    assert results[:3] + results[4:] == [row(task) for task in given if task.number != 3]
    assert results[3].error.startswith("its pod died 3 times")
    work = kubelet.manifest["spec"]["template"]["spec"]["containers"][0]["args"][1]
    assert work.startswith(f"{recorded}/prod/.work/rebalancer-compare-")
    assert list(recorded.rglob("*.json")) + list(recorded.rglob("task*")) == []
    elsewhere = msgspec.structs.replace(given[0], source="/scratch/0.json")
    with pytest.raises(PolicyError, match=rf"mounts a PersistentVolumeClaim \({recorded}/\)"):
        list(job.run(iter([elsewhere])))


def test_a_snapshot_that_the_pods_cannot_read_is_refused(job):
    with pytest.raises(PolicyError, match=r"is neither in a bucket nor .*\(none\)"):
        list(job.run(iter(tasks(1))))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--snapshots", "s3://b/x", "--kubernetes", "a"], "write NAMESPACE/NAME"),
        (["--snapshots", "s3://b/x", "--kubernetes", "a/b", "--ray", "local"], "give one of them"),
    ],
)
def test_wrong_uses_end_with_code_2(args, message, tmp_path, monkeypatch, capsys, server, bucket):  # noqa: F811
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server.url)))
    monkeypatch.setattr("rebalancer.commands.compare.list_snapshots", list)
    assert command(["compare", "--policies", "default", *args]) == 2
    assert message in capsys.readouterr().err


def test_work_outside_a_pod_of_a_job_is_refused(capsys):
    assert command(["work", WHERE]) == 2
    assert "JOB_COMPLETION_INDEX is not set" in capsys.readouterr().err
