"""Kubernetes events that show the owner of a pod who moved it, and why."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import EVENTS
from rebalancer.wire.times import rfc3339, unix_seconds

if TYPE_CHECKING:
    # Commands that only read events of a file start without the client.
    from rebalancer.kube.client import Client

REASON = "Rebalanced"
ACTION = "Evict"
CONTROLLER = "kube-rebalancer"
_CREATE = AccessRule.of("create", EVENTS)
_SECONDS = 5.0
"""For one event."""
_JOIN_TIMEOUT = 2.0
"""Seconds for what is not written yet when the run ends."""
_OF_THE_CLUSTER = "default"
"""Namespace of events about objects that have none, as the API demands."""
_MAX_NOTE = 1024
"""The API's own limit, in bytes."""

_API_VERSIONS = {
    "ConfigMap": "v1",
    "Node": "v1",
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
    """The apiVersion of the object; may be empty for kinds that are not built in."""

    def reference(self) -> dict[str, str]:
        """Return the object as a core/v1 ObjectReference."""
        return {
            "apiVersion": self.api_version or _API_VERSIONS.get(self.kind, ""),
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }


@dataclass(frozen=True, slots=True)
class MoveEvent:
    """An event of a moved pod, as it was written."""

    pod: str
    """The pod as ``namespace/name``."""
    at: float
    """Time of the event, in Unix seconds."""
    by: str
    owner: str
    """``Kind/namespace/name``; empty if it has none."""
    note: str


def list_move_events(client: Client, namespace: str, pod: str) -> list[MoveEvent]:
    """Return the events of moves of the pods of this name; of all namespaces if ``namespace`` is empty.

    Raises:
        ClusterReadError: they could not be read.
    """
    selector = f"regarding.kind=Pod,regarding.name={pod},reason={REASON}"
    return [
        MoveEvent(
            f"{one.regarding.namespace}/{one.regarding.name}",
            unix_seconds(one.event_time),
            one.reporting_instance,
            one.related.ref if one.related is not None else "",
            one.note,
        )
        for one in _list(client, namespace, selector)
        if one.reporting_controller == CONTROLLER
    ]


def list_ends(client: Client, namespace: str, pod: str) -> list[str]:
    """Return what events say of the end of the pods of this name by others, oldest first: ``TIME REASON, COMPONENT: NOTE``.

    Raises:
        ClusterReadError: they could not be read.
    """
    of_pod = _list(client, namespace, f"regarding.kind=Pod,regarding.name={pod}")
    said = [one for one in of_pod if one.reason in _ENDS]
    # What deletes it is written about its controller, with its name or that of its ReplicaSet among the words.
    of_controllers = {
        "SuccessfulDelete": {pod},
        "ScalingReplicaSet": {pod.rpartition("-")[0], "down"},
    }
    for reason, words in of_controllers.items():
        of_reason = _list(client, namespace, f"reason={reason}")
        said += [one for one in of_reason if words <= set(one.note.split())]
    return sorted(f"{one.at} {one.reason}, {one.component}: {one.note}" for one in said)


_ENDS = ("Killing", "Preempted", "TaintManagerEviction", "Evicted", "Descheduled", "NodeNotReady")
"""Reasons of events about a pod by the kubelet, the scheduler, the controllers of Kubernetes and the descheduler."""


def _list(client: Client, namespace: str, selector: str) -> Sequence[_Event]:
    response = client.get(EVENTS.path(namespace), query={"fieldSelector": selector})
    rule = AccessRule.of("list", EVENTS, namespace)
    try:
        return msgspec.json.decode(client.expect(response, rule).body, type=_Events).items or ()
    except (ValueError, RecursionError):
        raise ClusterReadError("what was answered for a list of events is none") from None


class _Reference(msgspec.Struct, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def ref(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


class _Component(msgspec.Struct, frozen=True):
    component: str = ""


class _Event(msgspec.Struct, rename="camel", frozen=True):
    regarding: _Reference = _Reference()
    related: _Reference | None = None
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    deprecated_source: _Component | None = None
    reason: str = ""
    reporting_controller: str = ""
    reporting_instance: str = ""
    note: str = ""

    @property
    def at(self) -> str:
        return rfc3339(unix_seconds(self.deprecated_last_timestamp or self.event_time))

    @property
    def component(self) -> str:
        of_core = self.deprecated_source
        return self.reporting_controller or (of_core.component if of_core is not None else "")


class _Events(msgspec.Struct):
    items: list[_Event] | None = None


class EventWriter:
    """Writes the events of moves in its own thread, so that evictions never wait for them.

    Each event is tried once, for a short time. Events not written shortly after the end are dropped.
    """

    def __init__(self, client: Client, *, clock: Callable[[], float], instance: str) -> None:
        """``clock`` returns Unix seconds, ``instance`` is the name of our pod."""
        self._client, self._clock = client, clock
        self._instance = instance[:128] or CONTROLLER
        self._queue: SimpleQueue[tuple[Subject, bytes] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._asked = self._tried = 0
        self._failures: list[str] = []

    def write(self, pod: Subject, owner: Subject | None, note: str) -> None:
        """Queue the event of one move, for the pod and for its owner."""
        self._add(pod, note, owner)
        if owner is not None:
            self._add(owner, f"pod {pod.name}: {note}", pod)

    def announce(
        self, subject: Subject, note: str, *, reason: str, action: str, warning: bool = False
    ) -> None:
        """Queue an event that does not belong to a move."""
        self._add(subject, note, None, reason=reason, action=action, warning=warning)

    def close(self) -> str | None:
        """Wait briefly for queued events; return None, or a message about dropped ones."""
        if self._thread is None:
            return None
        self._queue.put(None)
        self._thread.join(_JOIN_TIMEOUT)
        failures = self._failures + ["there was no time"] * (self._asked - self._tried)
        if not failures:
            return None
        count = "1 event was" if len(failures) == 1 else f"{len(failures)} events were"
        return f"{count} not written: {failures[0]}"

    def _add(
        self,
        subject: Subject,
        note: str,
        related: Subject | None,
        *,
        reason: str = REASON,
        action: str = ACTION,
        warning: bool = False,
    ) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="events", daemon=True)
            self._thread.start()
        body = event_of(subject, note, now=self._clock(), instance=self._instance, related=related)
        body |= {"reason": reason, "action": action, "type": "Warning" if warning else "Normal"}
        self._asked += 1
        self._queue.put((subject, msgspec.json.encode(body)))

    def _run(self) -> None:
        # Connections and places among the requests of its own: events hold up nothing else either.
        client = self._client.beside(self._client.stop.later(_JOIN_TIMEOUT))
        while (event := self._queue.get()) is not None:
            try:
                _create(client, *event)
            except ClusterReadError as error:
                self._failures.append(error.lines[0])
                if isinstance(error, ForbiddenError):
                    return  # none of the others will be allowed
            finally:
                self._tried += 1


def _create(client: Client, subject: Subject, body: bytes) -> None:
    response = client.post(
        EVENTS.path(subject.namespace or _OF_THE_CLUSTER),
        body,
        retry_throttled=False,
        seconds=_SECONDS,
    )
    if response.status != 409:  # by its name the very same event: it is there already
        client.expect(response, _CREATE)


def write_once(
    client: Client, subject: Subject, note: str, *, version: str, now: float, instance: str
) -> None:
    """Write a warning about a version of an object, once for as long as the API server keeps events.

    Raises:
        ClusterReadError: it could not be written.
    """
    body = event_of(subject, note, now=now, instance=instance)
    digest = hashlib.sha256(f"{subject.uid}/{version}/{note}".encode()).hexdigest()[:16]
    meta = {"name": f"{subject.name}.{digest}", "namespace": subject.namespace}
    body |= {"metadata": meta, "reason": "PolicyNotUsed", "action": "Read", "type": "Warning"}
    _create(client, subject, msgspec.json.encode(body))


def event_of(
    subject: Subject, note: str, *, now: float, instance: str, related: Subject | None = None
) -> dict[str, object]:
    """Return a Normal event ``Rebalanced``/``Evict`` about ``subject``.

    ``now`` is Unix seconds, ``instance`` the name of our pod; ``related`` is a second object.
    """
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    body: dict[str, object] = {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {
            "name": _name(subject, note, now),
            "namespace": subject.namespace or _OF_THE_CLUSTER,
        },
        "eventTime": stamp,
        "type": "Normal",
        "reason": REASON,
        "action": ACTION,
        "note": shorten(note),
        "regarding": subject.reference(),
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
    }
    if related is not None:
        body["related"] = related.reference()
    return body


def shorten(note: str) -> str:
    """Return ``note`` cut to the API's limit, at a whole character."""
    encoded = note.encode()
    if len(encoded) <= _MAX_NOTE:
        return note
    return encoded[: _MAX_NOTE - 3].decode("utf-8", "ignore") + "..."


def _name(subject: Subject, note: str, now: float) -> str:
    """Return a valid object name that is equal for equal events."""
    what = f"{subject.kind}/{subject.uid}/{now!r}/{note}"
    digest = hashlib.sha256(what.encode()).hexdigest()[:16]
    return f"{subject.name[:200].rstrip('.-')}.{digest}"
