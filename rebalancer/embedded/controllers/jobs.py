"""Jobs: pods until enough have succeeded.

Source: ``k8s.io/kubernetes/pkg/controller/job``, for NonIndexed Jobs without pod failure policy actions. A
replacement is created after the back-off that an eviction starts, even if the evicted pod still
terminates; with ``podReplacementPolicy: Failed`` or a podFailurePolicy (KEP-3939), the back-off begins
when that pod is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalancer.embedded.apiserver.deletion import delete
from rebalancer.embedded.apiserver.kinds import JOB, POD, Json, condition, is_ready, set_condition
from rebalancer.embedded.apiserver.store import Change, Key
from rebalancer.embedded.controllers.pods import (
    WorkloadController,
    create_pod,
    is_active,
    is_terminating,
    owner_key,
)
from rebalancer.embedded.engine import Engine
from rebalancer.wire.pods import FINISHED

# Ten minutes for a first pause of ten seconds.
_MAX_BACKOFF = 60


@dataclass
class _Record:
    """How the pods of one Job ended: uid to phase, and the failures in a row."""

    ended: dict[str, str] = field(default_factory=dict)
    failures: int = 0
    """Since the last success."""
    last_failure: float = 0.0


class Jobs(WorkloadController):
    """Keeps ``parallelism`` pods running until ``completions`` have succeeded."""

    kind = JOB

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._records: dict[str, _Record] = {}

    def observe(self, change: Change) -> None:
        """Record how a pod of a Job ended, and queue the Job."""
        if change.kind is POD and (key := owner_key(change.object, JOB)) is not None:
            self._count(change, key)
        super().observe(change)

    def _count(self, change: Change, key: Key) -> None:
        """Record how a pod ended: it counts for its Job even after it is deleted."""
        pod, job = change.object, self.store.find(JOB, *key)
        phase = pod["status"]["phase"]
        early = is_terminating(pod) and job is not None and not _waits(job["spec"])
        if phase not in FINISHED and (change.new is None or early):
            # Unless the Job waits for its end, a pod counts as failed as soon as it is being deleted.
            phase = "Failed"
        record = self._records.setdefault(pod["metadata"]["ownerReferences"][0]["uid"], _Record())
        uid = pod["metadata"]["uid"]
        if phase not in FINISHED or uid in record.ended:
            return
        record.ended[uid] = phase
        record.failures = record.failures + 1 if phase == "Failed" else 0
        record.last_failure = self.store.clock.now()

    def reconcile(self, job: Json, key: Key) -> None:
        """Create or delete pods, and write the status."""
        spec = job["spec"]
        record = self._records.setdefault(job["metadata"]["uid"], _Record())
        ended = list(record.ended.values())
        succeeded, failed = ended.count("Succeeded"), ended.count("Failed")
        owned = self.store.dependents(job["metadata"]["uid"], POD)
        active = [pod for pod in owned if is_active(pod)]
        waiting = sum(is_terminating(pod) for pod in owned) if _waits(spec) else 0
        over = self._over(job, succeeded, failed)
        wanted = 0 if over else min(spec["parallelism"], spec["completions"] - succeeded)
        for pod in active[max(0, wanted) :]:
            delete(self.store, POD, pod, {})
        missing = wanted - len(active) - waiting
        pause = self._pause(record) if missing > 0 else 0.0
        if pause > 0:
            self.engine.after(pause, lambda: self.note(key))
        else:
            for _ in range(missing):
                create_pod(self.store, JOB, job)
        self._report(job, succeeded, failed, over)

    def _pause(self, record: _Record) -> float:
        """Return how long the next pod has to wait (``backoff_utils.go: getRemainingTime``)."""
        if not record.failures:
            return 0.0
        first = self.engine.timings.job_backoff
        pause = min(first * 2 ** (record.failures - 1), first * _MAX_BACKOFF)
        return max(0.0, record.last_failure + pause - self.store.clock.now())

    def _over(self, job: Json, succeeded: int, failed: int) -> str:
        if succeeded >= job["spec"]["completions"]:
            return "Complete"
        return "Failed" if failed > job["spec"]["backoffLimit"] else ""

    def _report(self, job: Json, succeeded: int, failed: int, over: str) -> None:
        owned = self.store.dependents(job["metadata"]["uid"], POD)
        active = [pod for pod in owned if is_active(pod)]
        now = self.store.timestamp()

        def report(new: Json) -> None:
            status = new["status"]
            status |= {
                "active": len(active),
                "ready": sum(is_ready(pod) for pod in active),
                "terminating": sum(is_terminating(pod) for pod in owned),
                "succeeded": succeeded,
                "failed": failed,
            }
            status.setdefault("startTime", now)
            if over and condition(status, over) is None:
                set_condition(status, over, "True", now)
                if over == "Complete":
                    status["completionTime"] = now

        self.store.modify(JOB, job, report)


def _waits(spec: Json) -> bool:
    """Whether a replacement is created only when the failed pod has ended."""
    return spec.get("podReplacementPolicy") == "Failed" or bool(spec.get("podFailurePolicy"))
