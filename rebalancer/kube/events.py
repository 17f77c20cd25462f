"""Events that tell the owner of a pod who moved it, and why."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from rebalancer.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.resources import EVENTS, Rule

REASON = "Rebalanced"
ACTION = "Evict"
CONTROLLER = "kube-rebalancer"
_CREATE = Rule("create", EVENTS.group, EVENTS.plural)
_LONGEST_NOTE = 1024
"""The API's own limit, in bytes."""

_API_VERSIONS = {
    "Pod": "v1",
    "ReplicationController": "v1",
    "ReplicaSet": "apps/v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an event is about."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = ""
    """Known for the built-in kinds; others may be left empty."""

    def reference(self) -> dict[str, str]:
        """Return it as a core/v1 ObjectReference."""
        return {
            "apiVersion": self.api_version or _API_VERSIONS.get(self.kind, ""),
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }


def write_event(
    client: Client,
    subject: Subject,
    note: str,
    *,
    now: float,
    instance: str,
    related: Subject | None = None,
) -> str | None:
    """Write a Normal event ``Rebalanced``/``Evict`` about ``subject``.

    ``now`` is Unix seconds, ``instance`` who we are (our pod's name); ``related`` is a second object.
    Returns None, or a warning: an event that cannot be written never fails a run.
    """
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    body = {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {"name": _name(subject, note, now), "namespace": subject.namespace},
        "eventTime": stamp,
        "type": "Normal",
        "reason": REASON,
        "action": ACTION,
        "note": shortened(note),
        "regarding": subject.reference(),
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128] or CONTROLLER,
    }
    if related is not None:
        body["related"] = related.reference()
    try:
        response = client.post(EVENTS.path(subject.namespace), msgspec.json.encode(body))
        if response.status != 409:  # by its name the very same event: told already
            client.expect(response, _CREATE)
    except ClusterReadError as error:
        first = str(error).splitlines()[0]
        return f"no event on {subject.kind} {subject.namespace}/{subject.name}: {first}"
    return None


def write_move_events(
    client: Client, pod: Subject, owner: Subject | None, note: str, *, now: float, instance: str
) -> tuple[str, ...]:
    """Write the event of one move on the pod and on its owner; return the warnings."""
    told = [write_event(client, pod, note, now=now, instance=instance, related=owner)]
    if owner is not None:
        text = f"pod {pod.name}: {note}"
        told.append(write_event(client, owner, text, now=now, instance=instance, related=pod))
    return tuple(warning for warning in told if warning is not None)


def shortened(note: str) -> str:
    """Return ``note`` within the API's limit, cut at a whole character."""
    encoded = note.encode()
    if len(encoded) <= _LONGEST_NOTE:
        return note
    return encoded[: _LONGEST_NOTE - 3].decode("utf-8", "ignore") + "..."


def _name(subject: Subject, note: str, now: float) -> str:
    """Return a name that is the same for the same event, and a valid one for long subjects, too."""
    what = f"{subject.kind}/{subject.uid}/{now!r}/{note}"
    digest = hashlib.sha256(what.encode()).hexdigest()[:16]
    return f"{subject.name[:200].rstrip('.-')}.{digest}"
