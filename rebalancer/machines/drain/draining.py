"""The course of a drain: read, evict, wait, until the nodes are empty or no progress is possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace as replace_record

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.output import say_error
from rebalancer.base.plain_text import count
from rebalancer.base.stop import Stop, pause_after
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.node_pods import read_node_pods
from rebalancer.kube.nodes import read_node
from rebalancer.machines.drain.command import NodeCommand
from rebalancer.machines.drain.cordon import cordon, finish, give_up, let_go
from rebalancer.machines.drain.remaining import RemainingPods, list_remaining, name_few
from rebalancer.node_record.records import DRAINS
from rebalancer.node_record.tasks import Course
from rebalancer.wire.times import unix_seconds

_PAUSE = 5.0
"""Seconds between two looks, as kubectl waits after a 429."""
_MAX_PAUSE = 30.0
"""Seconds between rounds in which no pod could be evicted: each reads the whole cluster."""
_FAILURES = 10
"""Number of looks or rounds that may fail in a row: an API server that is restarted comes back."""


class Drain:
    """A drain in progress: the steps of :func:`empty`. The process may be killed after each."""

    def __init__(
        self,
        command: NodeCommand,
        uids: Mapping[str, str],
        *,
        uncordon_on_failure: bool,
        keeps_record: bool = False,
        replaces: bool = False,
    ) -> None:
        """``uids``: name of each node -> its uid. Another Node with the same name is not touched.

        ``keeps_record``: nodes that are empty keep the record, until their machines are gone. ``replaces``: that they
        are to be replaced is recorded, too.
        """
        self._command, self._uids, self._names = command, uids, list(uids)
        self._uncordon, self._keeps, self._replaces = uncordon_on_failure, keeps_record, replaces
        self._client = command.client
        self._order = command.order(replaces=replaces)
        self._reported: object = None
        self._most = 0
        """Pods that were in the way at once, at most."""
        self._version = (0, 0)
        self._reached: Callable[[int, int], None] = lambda _done, _total: None

    def run(self, wait_batch: float) -> Course[str | None]:
        """Cordon all nodes, then empty them; the result is None once they are empty, else why they are not.

        Raises:
            ClusterReadError: the cluster can no longer be read or written.
        """
        names = self._names
        text = names[0] if len(names) == 1 else count(len(names), "node")
        why: str | None = "it was cut off"
        try:
            with self._command.base.progress.course(f"emptying {text}", "pods") as self._reached:
                batch_until = self.cordon_all() + wait_batch
                why = yield from empty(self, self._command.base.stop, batch_until)
        except ClusterReadError as error:
            why = str(error)
        finally:
            left = self.end(empty=why is None)
        return why or left

    def of(self, names: Sequence[str]) -> Drain:
        """Return a drain of only the nodes ``names``."""
        uids = {name: self._uids[name] for name in names}
        return Drain(
            self._command, uids, uncordon_on_failure=self._uncordon, replaces=self._replaces
        )

    def cordon_all(self) -> float:
        """Cordon all nodes; return the latest start of a node's drain, as a time of the stop's clock.

        Raises:
            ClusterReadError: a node could not be read or written.
        """
        newest = 0.0
        for name in self._names:
            node = cordon(self._client, name, replace_record(self._order, uid=self._uids[name]))
            if node is None:
                self._command.base.progress.note("gone", f"gone     {name}", node=name)
                continue
            self._command.conditions.show(self._client, name)
            order = DRAINS.read(node)
            newest = max(newest, unix_seconds(order.at) if order else 0.0)
            self._command.base.progress.note("cordoned", f"cordoned {name}", node=name)
        clock = self._command.base.environment.clock
        return clock.now() - max(0.0, clock.unix() - newest)

    def end(self, *, empty: bool) -> str | None:
        """Remove our records from nodes that are empty or given back; mark the others as given up.

        Return a message on records that could not be written, or None.
        """
        if empty and self._keeps:
            return None
        client, by = self._client.last_words, self._order.by
        conditions = self._command.conditions

        def write(name: str) -> str | None:
            try:
                if empty:
                    # First: without the record nobody would know that it is empty.
                    conditions.show(client, name, emptied_by=by)
                    finish(client, name, by)
                    return None
                if self._uncordon:
                    let_go(client, name, by)
                else:
                    give_up(client, name, by)
                conditions.show(client, name)
            except ClusterReadError as error:
                say_error(self._command.base.environment.err, error)
                return f"what the drain wrote on node {name} could not be changed: {error}"
            return None

        # Some at once: the last words of a command have seconds.
        with ThreadPoolExecutor(self._command.options.cluster.max_requests, "end") as pool:
            return next((why for why in pool.map(write, self._names) if why is not None), None)

    # -- steps -------------------------------------------------------------------------------------

    def look(self) -> RemainingPods:
        """Return the pods still on the nodes."""
        pods = read_node_pods(
            self._client,
            self._there(),
            clock=self._command.base.environment.clock.unix,
            version=self._version,
        )
        left = list_remaining(pods, self._command.orders)
        self._most = max(self._most, left.pods)
        self._reached(self._most - left.pods, self._most)
        return left

    def evict(self) -> str | None:
        """Plan and evict once; return what prevents progress, or None."""
        there = self._there()
        for name in there:
            self._command.conditions.show(self._client, name)
        return self._command.evict({name: self._uids[name] for name in there})

    def _there(self) -> list[str]:
        """Return the nodes, without names that another Node has now, whose pods must not be touched.

        The pods of a deleted Node count until their objects are gone.
        """
        there = ((name, read_node(self._client, name)) for name in self._names)
        return [name for name, node in there if node is None or node.uid == self._uids[name]]

    def end_of_batch(self) -> bool:
        """End the wait for batch work; return whether it is evicted from now on."""
        if not self._command.options.evict_batch:
            return False
        self._command.evict_batch()
        return True

    def report_remaining(self, left: RemainingPods, why: str | None) -> None:
        """Report the remaining pods when they change."""
        if (left, why) != self._reported:
            self._reported = (left, why)
            text = left.text() + (f" ({why})" if why else "")
            self._command.base.progress.note("left", f"left     {text}")


def empty(steps: Drain, stop: Stop, batch_until: float) -> Course[str | None]:
    """Empty the nodes; the result is None once they are empty, else why they are not.

    Batch work is awaited until ``batch_until``, a time of the stop's clock.

    Raises:
        ClusterReadError: the cluster could not be read, repeatedly, or refuses access.
    """
    failures = idle = 0
    why: str | None = None
    held: str | None = None
    """What has prevented progress in the last round that was made."""
    while True:
        left = RemainingPods()
        try:
            # Twice: a node whose pods one wrong answer leaves out is not empty.
            if not (left := steps.look()) and not (left := steps.look()):
                return None
            if (ended := stop.reason()) is not None:
                return _end(ended, held)
            if (ended := _name_refused(left)) is not None:
                return ended
            steps.report_remaining(left, why)
            why = held = steps.evict() if left.to_evict else None
            failures = 0
        except ClusterReadError as error:
            failures += 1
            if isinstance(error, ForbiddenError) or failures > _FAILURES:
                raise
            why = str(error)
        idle = 0 if why is None and left.to_evict else idle + 1
        waits = (*left.batch, *left.unread)
        if waits and stop.now() >= batch_until and not steps.end_of_batch() and not left.to_evict:
            return f"work did not end in time: {name_few(waits)}"
        if (ended := (yield _pause(idle, left, why))) is not None:
            return _end(ended, held)


def _end(ended: str, held: str | None) -> str:
    """Return why it ended, with what was waited for then."""
    return ended if held is None or held == ended else f"{ended}; {held}"


def _name_refused(left: RemainingPods) -> str | None:
    if left.refused and not left.to_evict:
        return f"pods came that are not evicted without a flag: {name_few(left.refused)}"
    return None


def _pause(idle: int, left: RemainingPods, why: str | None) -> float:
    """Return the seconds until the next look; longer after rounds without progress."""
    if idle == 0:
        return 1.0
    if left.to_evict or why is not None:
        return pause_after(idle, _PAUSE, _MAX_PAUSE)
    return _PAUSE
