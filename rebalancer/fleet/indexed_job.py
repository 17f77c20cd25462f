"""The engine that executes tasks in the pods of an Indexed Job, which share a bucket or a volume with the command.

The Job gets its pod from the chart's CronJob that records there: image, account, environment, volumes, security. The
tasks are stored beside the snapshots, a slice for each index. A pod writes one file per result, and another one
before each try of a task. So the replacement of a pod that died continues there, and a task whose pod died
``MAX_DEATHS`` times fails, as on the other engines.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.fleet.engines import MAX_DEATHS, Result, attempt
from rebalancer.fleet.stores import S3, SnapshotStore, store_of
from rebalancer.fleet.task import Failure, Row, Rules, Task, TaskSetting, fail
from rebalancer.kube.client import Client
from rebalancer.kube.failures import says_missing
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import CRON_JOBS, JOBS

WORK = ".work"
"""Folder beside the snapshots for what a Job needs; nothing below it is a snapshot."""
PARTS_PER_POD = 4
"""Indices for each pod at a time: none waits long for the slowest."""
_TASKS, _RESULTS, _TRIES = "tasks", "result-", "try-"
_POLL_INTERVAL = 2.0
_CONFLICT = 409
_KEPT = 3600
"""Seconds that the cluster keeps a Job whose command was killed before it could delete it."""


class _Part(msgspec.Struct, frozen=True):
    """The fields of one task that differ from task to task."""

    number: int
    policy: int
    snapshot: str
    source: str
    draw: int
    seed: tuple[int, ...]


class _Work(msgspec.Struct, frozen=True):
    """All tasks of a Job."""

    setting: TaskSetting
    policies: tuple[Rules, ...]
    parts: tuple[tuple[_Part, ...], ...]
    """Index of the Job -> its tasks."""


class IndexedJob:
    """Executes tasks in the pods of an Indexed Job."""

    poll_interval = _POLL_INTERVAL

    def __init__(self, client: Client, cron_job: tuple[str, str], folder: str, pods: int) -> None:
        """``cron_job``: namespace and name of the one whose pod is taken; ``folder``: with the snapshots, of a bucket or a volume; ``pods``: at a time."""
        self._client, self._folder, self._pods = client, folder, pods
        self._namespace, self._cron_job = cron_job

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the result of each task, in any order.

        Raises:
            PolicyError: the pods could not read a snapshot, or the place of the tasks cannot be used.
            ClusterReadError: the Job cannot be created or read.
        """
        every = list(tasks)
        if not every:
            return
        template = self._pod_template()
        places = (S3, *_find_claims(template))
        for task in every:
            if not task.source.startswith(places):
                where = " or ".join(places[1:]) or "none"
                message = (
                    f"--kubernetes: {task.snapshot} is neither in a bucket nor below where the pod of"
                    f" {self._namespace}/{self._cron_job} mounts a PersistentVolumeClaim ({where})"
                )
                raise PolicyError([message])
        parts = min(len(every), self._pods * PARTS_PER_POD)
        encoded = _encode(every, parts)
        # The same tasks, the same Job: a command that was killed goes on with what its Job has done since.
        name = f"rebalancer-compare-{hashlib.sha256(encoded).hexdigest()[:12]}"
        work = store_of(f"{self._folder}/{WORK}/{name}")
        try:
            work.put(_TASKS, encoded)
            self._create(job_manifest(name, template, work.where, parts, self._pods))
            try:
                yield from self._collect(name, work, {task.number: task for task in every})
            finally:
                self._delete(name)
                work.clear()
        except OSError as error:
            raise PolicyError([f"{work.where}: {error}"]) from None

    def _pod_template(self) -> dict[str, Any]:
        rule = AccessRule("get", CRON_JOBS.group, CRON_JOBS.plural)
        path = CRON_JOBS.path(self._namespace, self._cron_job)
        cron_job = json.loads(self._client.expect(self._client.get(path), rule).body)
        template: dict[str, Any] = cron_job["spec"]["jobTemplate"]["spec"]["template"]
        return template

    def _create(self, manifest: Mapping[str, Any]) -> None:
        rule = AccessRule("create", JOBS.group, JOBS.plural)
        response = self._client.post(JOBS.path(self._namespace), msgspec.json.encode(manifest))
        if response.status != _CONFLICT:
            self._client.expect(response, rule)

    def _collect(self, job: str, work: SnapshotStore, left: dict[int, Task]) -> Iterator[Result]:
        """Yield results as they appear, until all are there or the Job has ended."""
        seen: set[str] = set()
        while left:
            # Asked first: what its pods wrote before the end is listed after it.
            ended = self._end(job)
            for name in sorted(set(work.files()) - seen):
                seen.add(name)
                if name.startswith(_RESULTS):
                    with work.open(name) as stream:
                        result = _decode(stream.read())
                    if left.pop(result.number, None) is not None:
                        yield result
            if ended:
                for task in left.values():
                    yield fail(task, f"the Job {job} has ended without it: {ended}")
                return
            if left and self._client.stop.wait(self.poll_interval):
                raise ClusterReadError(f"stopped while the Job {job} was at work")

    def _end(self, job: str) -> str:
        """Return how the Job has ended; empty while it has not."""
        rule = AccessRule("get", JOBS.group, JOBS.plural)
        response = self._client.get(JOBS.path(self._namespace, job))
        if says_missing(response.status, response.body):
            return "it was deleted"
        status = json.loads(self._client.expect(response, rule).body).get("status", {})
        for one in status.get("conditions") or ():
            if one["type"] in ("Complete", "Failed") and one["status"] == "True":
                return f"{one.get('reason') or one['type']} {one.get('message', '')}".strip()
        return ""

    def _delete(self, job: str) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        path = JOBS.path(self._namespace, job)
        self._client.last_words.delete(path, msgspec.json.encode(options))


def _find_claims(template: Mapping[str, Any]) -> list[str]:
    """Return where the container of a pod mounts volumes with a claim, each with a slash at its end."""
    spec = template["spec"]
    claims = {of["name"] for of in spec.get("volumes") or () if "persistentVolumeClaim" in of}
    mounts = spec["containers"][0].get("volumeMounts") or ()
    return [f"{of['mountPath'].rstrip('/')}/" for of in mounts if of["name"] in claims]


def job_manifest(
    name: str, template: Mapping[str, Any], work: str, parts: int, pods: int
) -> dict[str, Any]:
    """Return the Indexed Job whose pods play the tasks of ``work``, from the pod template of a CronJob."""
    template = copy.deepcopy(dict(template))
    spec = template["spec"]
    spec["restartPolicy"] = "Never"
    # A simulation reads no cluster.
    spec["automountServiceAccountToken"] = False
    spec["containers"][0]["args"] = ["work", work]
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name, "labels": template.get("metadata", {}).get("labels", {})},
        "spec": {
            "completionMode": "Indexed",
            "completions": parts,
            "parallelism": min(pods, parts),
            # Each death costs one: a part may hold several tasks that end their pods.
            "backoffLimitPerIndex": 3 * MAX_DEATHS,
            "ttlSecondsAfterFinished": _KEPT,
            "template": template,
        },
    }


def play_part(work: SnapshotStore, index: int, play: Callable[[Task], Result] = attempt) -> int:
    """In a pod: play the tasks of its index that have no result yet; return their number.

    Raises:
        PolicyError: the place cannot be used, or holds no such part.
    """
    try:
        with work.open(_TASKS) as stream:
            given = msgspec.json.decode(stream.read(), type=_Work)
        if not 0 <= index < len(given.parts):
            raise PolicyError([f"{work.where}: has no part {index}"])
        names = work.files()
        left = [of for of in given.parts[index] if f"{_RESULTS}{of.number}" not in names]
        for part in left:
            task = Task(
                part.number,
                given.policies[part.policy],
                part.snapshot,
                part.source,
                part.draw,
                part.seed,
                given.setting,
            )
            tries = sum(name.startswith(f"{_TRIES}{part.number}-") for name in names)
            if tries >= MAX_DEATHS:
                result: Result = fail(task, f"its pod died {tries} times; is there enough memory?")
            else:
                work.put(f"{_TRIES}{part.number}-{tries}", b"")
                result = play(task)
            work.put(f"{_RESULTS}{part.number}", _encode_result(result))
    except (OSError, msgspec.DecodeError) as error:
        raise PolicyError([f"{work.where}: {error}"]) from None
    return len(left)


def _encode(tasks: Sequence[Task], parts: int) -> bytes:
    policies = list(dict.fromkeys(task.policy for task in tasks))
    rows = [
        _Part(
            task.number,
            policies.index(task.policy),
            task.snapshot,
            task.source,
            task.draw,
            task.seed,
        )
        for task in tasks
    ]
    # In order, so that an index reads few snapshots.
    slices = tuple(
        tuple(rows[len(rows) * at // parts : len(rows) * (at + 1) // parts]) for at in range(parts)
    )
    return msgspec.json.encode(_Work(tasks[0].setting, tuple(policies), slices))


def _encode_result(result: Result) -> bytes:
    return msgspec.json.encode({"row" if isinstance(result, Row) else "failure": result})


class _Decoded(msgspec.Struct):
    row: Row | None = None
    failure: Failure | None = None


def _decode(text: bytes) -> Result:
    decoded = msgspec.json.decode(text, type=_Decoded)
    result = decoded.row or decoded.failure
    if result is None:
        raise PolicyError(["a result beside the tasks is none"])
    return result
