"""The node agent: polls the instance's metadata and writes interruption notices on its Node.

It writes one annotation of its own Node and nothing else. Other components decide what follows from it.

The metadata service (IMDS) is read by version 2 only. A token is requested by PUT, and sent in a header of every GET; see "Use the Instance Metadata Service" in the user
guide of EC2. There is no fallback to version 1, which has no token: an instance with version 1 only is refused.

The formats are those of the user guides of EC2 ("Spot Instance interruption notices", "EC2 instance rebalance
recommendations", "View scheduled events for your instances") and of EC2 Auto Scaling ("Retrieve the target lifecycle
state through instance metadata").
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.plain_text import quote_value
from rebalancer.base.sending import HttpAnswer, SendingError, exchange
from rebalancer.base.stop import Backoff, Stop
from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeView
from rebalancer.node_record.protocol import Form, NodeTask, Write, change_record
from rebalancer.signals.notice import NOTICE, NodeNotice, encode_notice, read
from rebalancer.wire.times import rfc3339, unix_seconds

ADDRESS = "http://169.254.169.254"

TOKEN_SECONDS = 3600
"""Lifetime of a token in seconds; the service allows 1 to 21600."""
_SPARE = 60.0
"""Seconds before its end at which a token is replaced."""
_TIMEOUT = 2.0
"""Seconds for one answer; the service answers within milliseconds."""
_MAX_BYTES = 1 << 18
"""Bytes of an answer."""


class ImdsError(Exception):
    """The metadata could not be read; the message has the reason, and contains no token."""


class Imds:
    """Reads the metadata of the instance on which this process runs."""

    def __init__(self, address: str, stop: Stop) -> None:
        self._address = address.rstrip("/")
        self._stop = stop
        self._token = ""
        self._ends = 0.0
        """Time of the stop's clock until which the token is used."""

    def read(self, path: str) -> str | None:
        """Return the metadata under ``/latest/`` and ``path``; None if there is none (404).

        Raises:
            ImdsError: no response, or another status.
        """
        answer = self._get(path)
        if answer.status == 401:
            # Expired or no token of this service: a stopped and started instance has another one.
            self._token = ""
            answer = self._get(path)
        if answer.status == 404:
            return None
        if not answer.accepted:
            raise ImdsError(f"the instance metadata service {answer.words} for {path}")
        try:
            return answer.body.decode()
        except UnicodeDecodeError:
            raise ImdsError(f"the instance metadata {path} is no text") from None

    def _get(self, path: str) -> HttpAnswer:
        return self._ask("GET", path, {"X-aws-ec2-metadata-token": self._valid_token()})

    def _valid_token(self) -> str:
        now = self._stop.now()
        if not self._token or now >= self._ends:
            lasting = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
            answer = self._ask("PUT", "api/token", lasting)
            if not answer.accepted:
                raise ImdsError(
                    f"the instance metadata service gives no token of version 2: it {answer.words}"
                )
            # Counted from before it was asked for, so that it never lasts longer here than there.
            self._token, self._ends = answer.body.decode("latin-1"), now + TOKEN_SECONDS - _SPARE
        return self._token

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> HttpAnswer:
        try:
            return exchange(
                method,
                f"{self._address}/latest/{path}",
                headers,
                self._stop,
                seconds=_TIMEOUT,
                most=_MAX_BYTES,
                proxied=False,
            )
        except SendingError as error:
            hint = (
                "; a pod needs hostNetwork, or an instance whose hop limit is 2"
                if method == "PUT"
                else ""
            )
            raise ImdsError(f"the instance metadata service at {error}{hint}") from None


INSTANCE_ID = "meta-data/instance-id"
SPOT = "meta-data/spot/instance-action"
REBALANCE = "meta-data/events/recommendations/rebalance"
MAINTENANCE = "meta-data/events/maintenance/scheduled"
LIFECYCLE = "meta-data/autoscaling/target-lifecycle-state"

_WARMED = "Warmed:"
"""Prefix of the target lifecycle states of machines that are in a warm pool, or enter it."""

OURS = "imds/"
"""Prefix of the ids of these notices."""

_OVER = ("completed", "canceled")
"""States of a scheduled event that calls for nothing any more; EC2 also writes them before its description."""


class _SpotAction(msgspec.Struct):
    action: str
    time: str


class _Recommendation(msgspec.Struct):
    notice_time: str = msgspec.field(default="", name="noticeTime")


class _Scheduled(msgspec.Struct, rename="pascal"):
    event_id: str = ""
    code: str = ""
    state: str = ""
    description: str = ""
    not_before: str = ""
    """``21 Jan 2019 09:00:43 GMT``."""
    not_after: str = ""
    """Often missing."""


class Metadata(Protocol):
    """Reads the metadata of an instance, see :class:`Imds`."""

    def read(self, path: str) -> str | None:
        """Return the metadata under ``path``; None if there is none."""


class InstanceNotices:
    """The notices of one instance, as last read from each path; an unreadable path keeps its notice."""

    def __init__(self, imds: Metadata) -> None:
        self._imds = imds
        self._instance = ""
        self._known: dict[str, tuple[NodeNotice, ...]] = {}

    @property
    def first(self) -> NodeNotice | None:
        """The most urgent notice; None if there is none."""
        return next((notice for path in _PATHS for notice in self._known.get(path, ())), None)

    @property
    def complete(self) -> bool:
        """Whether each path was read at least once."""
        return len(self._known) == len(_PATHS)

    def read(self) -> str:
        """Read all paths; return a message on those that could not be read, empty if all could.

        Raises:
            ImdsError: not even the instance's id can be read.
        """
        if not self._instance:
            self._instance = (self._imds.read(INSTANCE_ID) or "").strip()
            if not self._instance:
                raise ImdsError(f"the instance metadata has no {INSTANCE_ID}")
        troubles = []
        for path, parse in _PATHS.items():
            try:
                text = self._imds.read(path)
                self._known[path] = (
                    () if text is None else _parse(path, text, self._instance, parse)
                )
            except ImdsError as error:
                troubles.append(str(error))
        return "; ".join(dict.fromkeys(troubles))


def _parse(
    path: str, text: str, instance: str, parse: Callable[[str, str], tuple[NodeNotice, ...]]
) -> tuple[NodeNotice, ...]:
    try:
        return parse(text, instance)
    except (ValueError, RecursionError) as error:
        raise ImdsError(
            f"the instance metadata {path} cannot be understood: {quote_value(str(error))}"
        ) from None


def _spot(text: str, instance: str) -> tuple[NodeNotice, ...]:
    said = msgspec.json.decode(text, type=_SpotAction)
    if not unix_seconds(said.time):
        raise ValueError(f"its time is {said.time!r}")
    # Hibernation begins at once: its time is that of the notice.
    return (
        NodeNotice(
            f"{OURS}{instance}/spot/{said.time}", "spot", deadline=said.time, reason=said.action
        ),
    )


def _rebalance(text: str, instance: str) -> tuple[NodeNotice, ...]:
    said = msgspec.json.decode(text, type=_Recommendation)
    return (NodeNotice(f"{OURS}{instance}/rebalance/{said.notice_time}", "rebalance"),)


def _maintenance(text: str, instance: str) -> tuple[NodeNotice, ...]:
    events = msgspec.json.decode(text, type=tuple[_Scheduled, ...])
    notices = (
        NodeNotice(
            f"{OURS}{instance}/{event.event_id}",
            event.code or "maintenance",
            deadline=rfc3339(_seconds(event.not_before)) if event.not_before else "",
            reason=event.code,
            until=rfc3339(_seconds(event.not_after)) if event.not_after else "",
        )
        for event in events
        if event.state.lower() not in _OVER
        and not event.description.lower().startswith(tuple(f"[{state}]" for state in _OVER))
    )
    return tuple(sorted(notices, key=lambda notice: (notice.deadline, notice.id)))


def _lifecycle(text: str, instance: str) -> tuple[NodeNotice, ...]:
    state = text.strip()
    # No time is in it, so that its id is the same at each look.
    if state in ("Terminated", f"{_WARMED}Terminated"):
        return (NodeNotice(f"{OURS}{instance}/terminated", "scale-in", reason="terminate"),)
    if state.startswith(_WARMED):
        # It is in a warm pool, or goes there, until the state is InService again.
        return (NodeNotice(f"{OURS}{instance}/warm-pool", "scale-in", reason=state),)
    return ()


def _seconds(text: str) -> float:
    """Parse ``21 Jan 2019 09:00:43 GMT`` as Unix seconds, in any locale."""
    day, month, year, clock, zone = text.split()
    if zone != "GMT" or month not in _MONTHS:
        raise ValueError(f"{text!r} is no time such as 21 Jan 2019 09:00:43 GMT")
    number = _MONTHS.index(month) + 1
    at = datetime.fromisoformat(f"{year}-{number:02}-{int(day):02}T{clock}").replace(tzinfo=UTC)
    return at.timestamp()


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_PATHS: dict[str, Callable[[str, str], tuple[NodeNotice, ...]]] = {
    SPOT: _spot,
    LIFECYCLE: _lifecycle,
    MAINTENANCE: _maintenance,
    REBALANCE: _rebalance,
}
"""The most urgent first."""


_MAX_WAIT = 30.0
"""Seconds between two attempts, however often they failed: a notice may leave two minutes in all."""
_LOOK_AGAIN = 60.0
"""Seconds between checks that the annotation of a valid notice still exists."""


class Agent:
    """Keeps the notice annotation of one Node equal to the notice in the instance metadata, until ``stop``."""

    def __init__(
        self, node: str, imds: Imds, client: Client, stop: Stop, say: Callable[[str], None]
    ) -> None:
        self._node, self._client = node, client
        self._stop, self._say = stop, say
        self._notices = InstanceNotices(imds)
        self._written: NodeNotice | None = None
        """The notice on the node, as far as is known."""
        self._looked: float | None = None
        """Time of the clock at which the node was seen to be so; None: never."""
        self._trouble = ""

    def live(self, every: float) -> None:
        """Poll every ``every`` seconds; after failures with growing pauses."""
        longest = max(_MAX_WAIT, every)
        backoff = Backoff(min(2 * every, longest), longest)
        while self._stop.reason() is None:
            why = self._failure()
            # Said once, not every five seconds.
            if why != self._trouble:
                self._say(why or "the instance metadata and the API server answer again")
                self._trouble = why
            if why:
                backoff.wait(self._stop)
            else:
                backoff.reset()
                self._stop.wait(every)

    def look(self) -> None:
        """Read the metadata once, and write the annotation if it has changed.

        Raises:
            ImdsError: not all metadata could be read; a notice from an unreadable path is kept.
            ClusterReadError: the Node could not be read or written.
        """
        unread = self._notices.read()
        wanted = self._notices.first
        if wanted is not None or self._notices.complete:
            self._write(wanted)
        if unread:
            raise ImdsError(unread)

    def _write(self, wanted: NodeNotice | None) -> None:
        if wanted == self._written and not self._is_due(wanted):
            return
        write_notice(self._client, self._node, wanted)
        if wanted != self._written:
            self._say(f"node {self._node}: {_words(wanted)}")
        self._written, self._looked = wanted, self._stop.now()

    def _failure(self) -> str:
        try:
            self.look()
        except (ImdsError, ClusterReadError) as error:
            return "" if self._stop.reason() else str(error)
        return ""

    def _is_due(self, wanted: NodeNotice | None) -> bool:
        if self._looked is None:
            return True
        return wanted is not None and self._stop.now() - self._looked >= _LOOK_AGAIN


def _task_of(notice: NodeNotice) -> NodeTask:
    return NodeTask(by=notice.id, why=notice.reason or notice.kind, until=notice.deadline)


NOTICES = Form(NOTICE, read, encode_notice, _task_of, lambda notice, _: notice)


def write_notice(client: Client, name: str, notice: NodeNotice | None) -> None:
    """Write ``notice`` on the Node ``name``; None removes a notice that an agent has written.

    Raises:
        ClusterReadError: the Node could not be read or written, or does not exist.
    """

    def decide(_: NodeView, standing: NodeNotice | None) -> Write[NodeNotice] | None:
        if notice is not None:
            return None if standing == notice else Write(notice)
        is_ours = standing is not None and standing.id.startswith(OURS)
        return Write(None) if is_ours else None

    if change_record(client, name, NOTICES, decide) is None:
        raise ClusterReadError(
            f"there is no node {name}; NODE_NAME must be the name of the agent's own node"
        )


def _words(notice: NodeNotice | None) -> str:
    if notice is None:
        return "nothing calls for its end any more"
    until = f" at {notice.deadline}" if notice.deadline else ""
    return f"{notice.kind} ({notice.reason or notice.id}){until}"
