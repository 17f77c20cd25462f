"""Jobs: pods until enough have succeeded.

Source: ``k8s.io/kubernetes/pkg/controller/job``, for NonIndexed Jobs without pod failure policy actions. A
replacement comes at once, or, with ``podReplacementPolicy: Failed`` or a podFailurePolicy (KEP-3939),
when the victim is gone.
"""

from __future__ import annotations

from rebalancer.simulator.apiserver.deletion import delete
from rebalancer.simulator.apiserver.kinds import JOB, POD
from rebalancer.simulator.apiserver.store import Change, Json, Key
from rebalancer.simulator.conditions import condition, is_ready, set_condition
from rebalancer.simulator.controllers.pods import create_pod, is_active, is_terminating, owner_key
from rebalancer.simulator.engine import Controller, Engine


class Jobs(Controller):
    """Keeps ``parallelism`` pods running until ``completions`` have succeeded."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._ended: dict[str, dict[str, str]] = {}

    def observe(self, change: Change) -> None:
        """A Job whose spec or whose pods changed is to be looked at."""
        if change.kind is JOB and change.new is not None:
            self.note(change.key)
        elif change.kind is POD:
            key = owner_key(change.object, JOB)
            if key is not None:
                self._count(change)
                self.note(key)

    def _count(self, change: Change) -> None:
        """Remember how a pod ended: it counts for its Job even when it is gone."""
        pod = change.object
        phase = pod["status"]["phase"]
        if change.new is None and phase not in ("Succeeded", "Failed"):
            phase = "Failed"
        if phase in ("Succeeded", "Failed"):
            job = pod["metadata"]["ownerReferences"][0]["uid"]
            self._ended.setdefault(job, {}).setdefault(pod["metadata"]["uid"], phase)

    def sync(self, key: Key) -> None:
        """Create or delete pods, and report."""
        found = self.store.find(JOB, *key)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        spec = found["spec"]
        ended = list(self._ended.get(found["metadata"]["uid"], {}).values())
        succeeded, failed = ended.count("Succeeded"), ended.count("Failed")
        owned = self.store.dependents(found["metadata"]["uid"], POD)
        active = [pod for pod in owned if is_active(pod)]
        waiting = sum(is_terminating(pod) for pod in owned) if _waits(spec) else 0
        over = self._over(found, succeeded, failed)
        wanted = 0 if over else min(spec["parallelism"], spec["completions"] - succeeded)
        for pod in active[max(0, wanted) :]:
            delete(self.store, POD, pod, {})
        for _ in range(wanted - len(active) - waiting):
            create_pod(self.store, JOB, found)
        self._report(found, succeeded, failed, over)

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
