"""Jobs: pods until enough have succeeded.

Source: ``k8s.io/kubernetes/pkg/controller/job``, for NonIndexed Jobs without pod failure policy actions. A
replacement comes after the back-off that an eviction counts for, whether or not the victim still
terminates; with ``podReplacementPolicy: Failed`` or a podFailurePolicy (KEP-3939), the back-off begins
when the victim is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalancer.embedded.apiserver.deletion import FINISHED, delete
from rebalancer.embedded.apiserver.kinds import JOB, POD
from rebalancer.embedded.apiserver.store import Change, Json, Key
from rebalancer.embedded.conditions import condition, is_ready, set_condition
from rebalancer.embedded.controllers.pods import create_pod, is_active, is_terminating, owner_key
from rebalancer.embedded.engine import Controller, Engine

# Ten minutes for a first pause of ten seconds.
_LONGEST_BACKOFF = 60


@dataclass
class _Record:
    """How the pods of one Job ended, and since when it fails."""

    ended: dict[str, str] = field(default_factory=dict)
    failures: int = 0
    """Since the last success."""
    last_failure: float = 0.0


class Jobs(Controller):
    """Keeps ``parallelism`` pods running until ``completions`` have succeeded."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._records: dict[str, _Record] = {}

    def observe(self, change: Change) -> None:
        """A Job whose spec or whose pods changed is to be looked at."""
        if change.kind is JOB and change.new is not None:
            self.note(change.key)
        elif change.kind is POD:
            key = owner_key(change.object, JOB)
            if key is not None:
                self._count(change, key)
                self.note(key)

    def _count(self, change: Change, key: Key) -> None:
        """Remember how a pod ended: it counts for its Job even when it is gone."""
        pod, job = change.object, self.store.find(JOB, *key)
        phase = pod["status"]["phase"]
        early = is_terminating(pod) and job is not None and not _waits(job["spec"])
        if phase not in FINISHED and (change.new is None or early):
            # Without a policy that waits, a pod counts as failed as soon as it is being deleted.
            phase = "Failed"
        record = self._records.setdefault(pod["metadata"]["ownerReferences"][0]["uid"], _Record())
        uid = pod["metadata"]["uid"]
        if phase not in FINISHED or uid in record.ended:
            return
        record.ended[uid] = phase
        record.failures = record.failures + 1 if phase == "Failed" else 0
        record.last_failure = self.store.clock.now()

    def sync(self, key: Key) -> None:
        """Create or delete pods, and report."""
        found = self.store.find(JOB, *key)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        spec = found["spec"]
        record = self._records.setdefault(found["metadata"]["uid"], _Record())
        ended = list(record.ended.values())
        succeeded, failed = ended.count("Succeeded"), ended.count("Failed")
        owned = self.store.dependents(found["metadata"]["uid"], POD)
        active = [pod for pod in owned if is_active(pod)]
        waiting = sum(is_terminating(pod) for pod in owned) if _waits(spec) else 0
        over = self._over(found, succeeded, failed)
        wanted = 0 if over else min(spec["parallelism"], spec["completions"] - succeeded)
        for pod in active[max(0, wanted) :]:
            delete(self.store, POD, pod, {})
        missing = wanted - len(active) - waiting
        pause = self._pause(record) if missing > 0 else 0.0
        if pause > 0:
            self.engine.after(pause, lambda: self.note(key))
        else:
            for _ in range(missing):
                create_pod(self.store, JOB, found)
        self._report(found, succeeded, failed, over)

    def _pause(self, record: _Record) -> float:
        """Return how long the next pod has to wait (``backoff_utils.go: getRemainingTime``)."""
        if not record.failures:
            return 0.0
        first = self.engine.timings.job_backoff
        pause = min(first * 2 ** (record.failures - 1), first * _LONGEST_BACKOFF)
        return max(0.0, record.last_failure + pause - self.store.clock.now())

    def _over(self, found: Json, succeeded: int, failed: int) -> str:
        if succeeded >= found["spec"]["completions"]:
            return "Complete"
        return "Failed" if failed > found["spec"]["backoffLimit"] else ""

    def _report(self, found: Json, succeeded: int, failed: int, over: str) -> None:
        owned = self.store.dependents(found["metadata"]["uid"], POD)
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

        self.store.modify(JOB, self.store.get(JOB, *_key(found)), report)


def _waits(spec: Json) -> bool:
    return spec.get("podReplacementPolicy") == "Failed" or bool(spec.get("podFailurePolicy"))


def _key(found: Json) -> Key:
    return found["metadata"]["namespace"], found["metadata"]["name"]
