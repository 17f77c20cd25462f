"""The node agent: polls the instance's metadata and writes interruption notices on its Node.

It writes one annotation of its own Node and nothing else. Other components decide what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Backoff, Stop
from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeView
from rebalancer.machines.aws.imds import Imds, ImdsError
from rebalancer.machines.aws.instance_notices import OURS, InstanceNotices
from rebalancer.node_record.protocol import Entry, Form, Write, change_record
from rebalancer.signals.notice import NOTICE, NodeNotice, read, written

_LONGEST_WAIT = 30.0
"""Seconds between two attempts, however often they failed: a notice may leave two minutes in all."""
_LOOK_AGAIN = 60.0
"""Seconds after which it is looked whether the annotation of a standing notice is still there."""


class Agent:
    """Keeps the annotation of one Node equal to the metadata, until ``stop``."""

    def __init__(
        self, node: str, imds: Imds, client: Client, stop: Stop, say: Callable[[str], None]
    ) -> None:
        self._node, self._client = node, client
        self._stop, self._say = stop, say
        self._notices = InstanceNotices(imds)
        self._written: NodeNotice | None = None
        """What stands on the node, as far as is known."""
        self._looked: float | None = None
        """Time of the clock at which the node was seen to be so; None: never."""
        self._trouble = ""

    def live(self, every: float) -> None:
        """Poll every ``every`` seconds; after failures with growing pauses."""
        longest = max(_LONGEST_WAIT, every)
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
            ImdsError: not all metadata could be read; a notice from an unreadable path stays.
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


def _entry(notice: NodeNotice) -> Entry:
    return Entry(by=notice.id, why=notice.reason or notice.kind, until=notice.deadline)


NOTICES = Form(NOTICE, read, written, _entry, lambda notice, _: notice)


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
