"""Pods in states of all kinds, for tests of the strategies that judge single pods."""

from datetime import UTC, datetime, timedelta

from rebalancer.testing.snapshots import NOW


def ago(*, hours):
    """Return a time so many hours before snapshots are taken."""
    at = datetime.fromisoformat(NOW) - timedelta(hours=hours)
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(reason, restarts=0):
    return {"ready": False, "restartCount": restarts, "state": {"waiting": {"reason": reason}}}


def ended(reason, code, restarts=0):
    state = {"terminated": {"reason": reason, "exitCode": code}}
    return {"ready": False, "restartCount": restarts, "state": state}


def running(restarts=0, *, ready=True):
    return {"ready": ready, "restartCount": restarts, "state": {"running": {}}}


def condition(kind, status, *, reason="", hours=1.0):
    since = None if hours is None else ago(hours=hours)
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": since}


_LISTS = {
    "main": "containerStatuses",
    "init": "initContainerStatuses",
    "ephemeral": "ephemeralContainerStatuses",
}


def with_state(
    objects, name, *, phase=None, reason="", conditions=(), ready=True, hours=1.0, **containers
):
    """Return objects with the status of one pod changed; ``hours``: for how long it has not been Ready.

    ``main``, ``init``, ``ephemeral``: the status of one container in that list.
    """
    (pod,) = [
        item for item in objects if item["kind"] == "Pod" and item["metadata"]["name"] == name
    ]
    status = {**pod["status"], "reason": reason}
    status["phase"] = phase or status["phase"]
    if not ready:
        status["conditions"] = [condition("Ready", "False", hours=hours)]
    status["conditions"] = [*status["conditions"], *conditions]
    status |= {_LISTS[kind]: [of] for kind, of in containers.items()}
    return [{**pod, "status": status} if item is pod else item for item in objects]
