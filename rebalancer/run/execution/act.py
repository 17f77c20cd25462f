"""Execute a plan on the cluster: the only part of a run that a dry run omits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from rebalancer.base.environment import collector_paused
from rebalancer.base.errors import ClusterReadError
from rebalancer.base.plain_text import percent
from rebalancer.base.stop import Backoff, Stop
from rebalancer.kube.cache import ClusterCache, RunView
from rebalancer.kube.client import Client
from rebalancer.kube.events import EventWriter, Subject
from rebalancer.kube.evict import (
    AnswerKind,
    EvictionAnswer,
    PodView,
    Restart,
    evict,
    read_disruptions_allowed,
    read_pod,
    recreates_group,
)
from rebalancer.kube.eviction_requests import ask, list_requests, withdraw
from rebalancer.kube.read import Kept
from rebalancer.kube.seldom_read import read_devices
from rebalancer.plan.plan import Method, Move, Outcome
from rebalancer.planner.planning import ClusterNow, Planned
from rebalancer.run.context import RunNotes, instance
from rebalancer.run.execution.executor import Execution, Executor, Recheck, WavePace
from rebalancer.run.execution.landing import NamedController, PodFeed
from rebalancer.run.execution.marks import Marker
from rebalancer.run.source import Reading
from rebalancer.snapshot.membership import LWS
from rebalancer.snapshot.model import PodClass, PodFlag, Snapshot
from rebalancer.snapshot.requests import request_name
from rebalancer.wire.times import rfc3339

_READ = 10.0
"""Seconds for a read before a restart."""
_NEW_REPLICA_SET = 10.0
"""Seconds for the Deployment's controller to create a ReplicaSet: it needs a fraction of one, unless it is behind."""
_FIRST_WAIT, _MAX_WAIT = 0.05, 1.0


class ClusterActor:
    """Evicts and restarts pods through a client, or creates EvictionRequests for them, and writes Events about it."""

    def __init__(
        self,
        client: Client,
        snapshot: Snapshot,
        *,
        clock: Callable[[], float],
        instance: str,
        warn: Callable[[str], None],
        grace: Callable[[str], int | None] = lambda _: None,
        succeed: Callable[[str, str], None] = lambda _uid, _controller: None,
        ordered: bool = False,
    ) -> None:
        """``grace``: uid of a pod -> its grace period in seconds; None keeps its own.

        ``succeed`` is called with the uid of a pod and the uid of the ReplicaSet that a restart created for it;
        ``ordered``: see Acting.
        """
        self._ordered = ordered
        self._clock, self._succeed = clock, succeed
        self._restarts: dict[str, Restart] = {}
        self._asked: dict[str, str] = {}
        """uid of a pod -> time of its EvictionRequest."""
        self._client, self._warn, self._grace = client, warn, grace
        self._events = EventWriter(client, clock=clock, instance=instance)
        self._owners = {owner.ref: owner for owner in snapshot.owners}

    def evict(
        self, namespace: str, name: str, uid: str, *, finishing: bool = False
    ) -> EvictionAnswer:
        """Send the eviction once, with the pod's grace period, see :meth:`Actor.evict`."""
        client = self._client.finishing if finishing else self._client
        return evict(client, namespace, name, uid, grace_period_seconds=self._grace(uid))

    def rehearse(self, namespace: str, name: str, uid: str) -> EvictionAnswer:
        """Return the API server's answer to a dry run of the eviction."""
        return evict(self._client, namespace, name, uid, dry_run=True)

    def read_disruptions_allowed(self, budget: str) -> int | None:
        """Return the disruptions that a PodDisruptionBudget allows now, see :meth:`Actor.read_disruptions_allowed`."""
        return read_disruptions_allowed(self._client, budget, seconds=_READ)

    def recreates_group(self, namespace: str, name: str) -> bool:
        """Return whether the LeaderWorkerSet starts whole groups again, see :meth:`Actor.recreates_group`."""
        return recreates_group(self._client, namespace, name, seconds=_READ)

    def restart(self, moves: Sequence[Move]) -> EvictionAnswer:
        """Request the restart of the pods' rollout, and wait for the new ReplicaSet."""
        move = moves[0]
        owner = self._owners.get(move.owner)
        one = self._restarts.setdefault(
            move.uid,
            Restart(
                self._client,
                move.namespace,
                move.pod,
                move.uid,
                deployment=owner.uid if owner is not None else "",
                at=rfc3339(int(self._clock())),
                seconds=_READ,
                replicas=owner.replicas if owner is not None else 1,
                ordered=self._ordered,
            ),
        )
        answer = one.ask()
        if answer.kind is AnswerKind.RESTARTED:
            self._await_replica_set(moves, one)
        return answer

    def _await_replica_set(self, moves: Sequence[Move], one: Restart) -> None:
        """Wait until the ReplicaSet exists whose pods replace those of ``moves``."""
        stop, backoff = self._client.stop, Backoff(_FIRST_WAIT, _MAX_WAIT)
        until = stop.now() + _NEW_REPLICA_SET
        try:
            while (controller := one.replica_set()) is None:
                if stop.now() + backoff.pause > until or backoff.wait(stop) is not None:
                    return
        except ClusterReadError as error:
            self._warn(f"{moves[0].owner}: its new ReplicaSet could not be read: {error}")
            return
        for move in moves:
            self._succeed(move.uid, controller)

    def ask(self, move: Move) -> EvictionAnswer:
        """Ask the responders of the pod to end it, see :meth:`Actor.ask`."""
        at = self._asked.setdefault(move.uid, rfc3339(int(self._clock())))
        return ask(self._client, move.namespace, move.pod, move.uid, at)

    def find_refusal(self, move: Move) -> str | None:
        """Return why the request for the pod came to nothing, see :meth:`Actor.find_refusal`."""
        with suppress(ClusterReadError):
            listed = list_requests(self._client, move.namespace, request_name(move.uid)) or ()
            return next((one.failed or None for one in listed), None)
        return None

    def withdraw(self, move: Move, *, in_vain: bool) -> str | None:
        """Withdraw the request for the pod, see :meth:`Actor.withdraw`."""
        at = self._asked.get(move.uid) if in_vain else None
        said = withdraw(self._client.finishing, move.namespace, move.pod, move.uid, at)
        return None if said.kind is AnswerKind.REQUESTED else said.message

    def read_pod(
        self, namespace: str, name: str, *, seconds: float, after_stop: bool = False
    ) -> PodView | None:
        """Return the current pod of this name, see :meth:`Actor.read_pod`."""
        client = self._client.last_words if after_stop else self._client
        return read_pod(client, namespace, name, seconds=seconds)

    def announce(self, move: Move) -> None:
        """Write one event for the pod and one for its owner."""
        owner = self._owners.get(move.owner)
        how = " by a restart of its rollout" if move.method is Method.RESTART else ""
        asked = move.method is Method.REQUEST
        done = "its responders are asked to end it, to move it" if asked else "moved"
        note = f"{done} off {move.node} by {move.strategy}{how}: {move.reason}"
        if move.landings:
            landing = move.landings[0]
            note += f"; expected on {landing.node} ({percent(landing.probability)})"
        self._events.write(
            Subject("Pod", move.namespace, move.pod, move.uid),
            Subject(owner.kind, owner.namespace, owner.name, owner.uid) if owner else None,
            note,
        )

    def close(self) -> None:
        """Finish writing events."""
        if (warning := self._events.close()) is not None:
            self._warn(warning)


def open_feed(snapshot: Snapshot, moves: Sequence[Move], *, ordered: bool = False) -> PodFeed:
    """Return a feed of the pods that will replace those of ``moves``.

    ``ordered``: people wait for nodes to be empty, and for what Jobs make again later only where it is of a gang.
    """
    controllers, known = _controllers(snapshot, moves)
    restarted = {move.namespace for move in moves if move.method is Method.RESTART}
    return PodFeed(
        controllers=controllers,
        known=known,
        restarted_in=frozenset(restarted),
        unready=_unready(snapshot, known),
        waiting=_waiting(snapshot, moves),
        named=_controllers_of_gangs(snapshot, controllers),
        pauses=_pauses(snapshot, {move.uid for move in moves if move.gang or not ordered}),
    )


def _controllers_of_gangs(snapshot: Snapshot, uids: Collection[str]) -> dict[NamedController, str]:
    """Return the controllers of the pods that belong to gangs: the owner of a gang may recreate them with it."""
    return {
        (
            of.namespace,
            of.controller_kind,
            of.controller_group,
            of.controller_name,
        ): of.controller_uid
        for of in _classes_of(snapshot, uids)
        if of.gang and not of.membership.surge
    }


def _pauses(snapshot: Snapshot, uids: Collection[str]) -> dict[str, float]:
    """Return for how many seconds at most the Job of each of the pods makes none again, once they have been evicted."""
    victims = snapshot.pods.uid.rows_of(uids).tolist()
    classes = [snapshot.classes[cls] for cls in snapshot.pods.cls[victims].tolist()]
    evicted = Counter(of.controller_uid for of in classes)
    return {
        snapshot.pods.uid[pod]: of.job.pause(evicted[of.controller_uid])
        for pod, of in zip(victims, classes, strict=True)
        if of.job is not None
    }


def find_leaders(snapshot: Snapshot, moves: Sequence[Move]) -> dict[str, str]:
    """Return the uids of the pods that lead their groups -> the names of their LeaderWorkerSets, empty for others."""
    uids = {move.uid for move in moves if move.gang}
    pods = snapshot.pods
    leaders = (
        (pods.uid[pod], snapshot.classes[int(pods.cls[pod])])
        for pod in (pods.uid.rows_of(uids).tolist() if uids else ())
    )
    return {uid: of.labels.get(LWS, "") for uid, of in leaders if of.membership.leads}


def _classes_of(snapshot: Snapshot, uids: Collection[str]) -> list[PodClass]:
    pods = snapshot.pods.uid.rows_of(uids)
    return [snapshot.classes[cls] for cls in np.unique(snapshot.pods.cls[pods]).tolist()]


def _waiting(snapshot: Snapshot, moves: Sequence[Move]) -> dict[str, str]:
    """Return uid -> ``namespace/name`` of the pods without a node for which some of ``moves`` make room."""
    uids = {move.makes_way_for for move in moves if move.room is not None}
    pods = snapshot.pods
    return {
        pods.uid[pod]: snapshot.pod_ref(pod)
        for pod in (pods.uid.rows_of(uids).tolist() if uids else ())
        if pods.node[pod] < 0
    }


def _unready(snapshot: Snapshot, uids: frozenset[str]) -> dict[str, tuple[str, str]]:
    """Return uid -> (controller uid, name) of the pods that alone keep their owners unsettled.

    Some of them may be moved for their bad state; once such a pod is Ready, the others count.
    """
    unready: dict[str, tuple[str, str]] = {}
    pods = snapshot.pods
    for pod in pods.uid.rows_of(uids).tolist():
        cls = int(pods.cls[pod])
        owner = snapshot.owner_of(cls)
        going = int(pods.flags[pod]) & PodFlag.TERMINATING
        if owner is not None and owner.lacks_ready_only and not (going or pods.is_ready(pod)):
            unready[pods.uid[pod]] = (snapshot.classes[cls].controller_uid, pods.name[pod])
    return unready


def _controllers(
    snapshot: Snapshot, moves: Sequence[Move]
) -> tuple[dict[str, str], frozenset[str]]:
    """Return victim uid -> controller uid, and the uids of all pods of those controllers."""
    victims = {move.uid for move in moves}
    uids, cls = snapshot.pods.uid, snapshot.pods.cls
    owners = {move.owner for move in moves}
    concerned = np.array(
        [c.owner >= 0 and snapshot.owners[c.owner].ref in owners for c in snapshot.classes], bool
    )
    controllers: dict[str, str] = {}
    known: set[str] = set()
    for pod in np.flatnonzero(concerned[cls]).tolist() if len(cls) else ():
        uid = uids[pod]
        known.add(uid)
        if uid in victims:
            controllers[uid] = snapshot.classes[cls[pod]].controller_uid
    return controllers, frozenset(known)


class Remember(Protocol):
    """Stores the outcomes of the moves so far."""

    def __call__(
        self, outcomes: Iterable[Outcome], *, cut: bool = False, reserved: int = 0
    ) -> str | None:
        """Store the outcomes; return why that failed, or None.

        ``cut``: the last wave was not awaited completely. ``reserved``: the number of evictions that follow at once;
        they count already.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """Executes the plan of one run."""

    reading: Reading
    notes: RunNotes
    """Gets what is to be said of the execution."""
    stop: Stop
    """When moves end, at the latest with the run."""
    started: float
    """When it began, by the clock of the run's environment."""
    marker: Marker | None
    """Writes the marks that choose landings; None if the policy does not steer."""
    ordered: bool
    """A user has ordered the evictions (see Attempt): the cluster is not scored again at the end."""
    grace: Callable[[str], int | None]
    """Uid of an evicted pod -> the seconds that it has to end; None leaves it its own."""

    def execute(self, planned: Planned) -> Execution | None:
        """Execute the plan; return None if there is nothing to do.

        A cluster that is already followed continues to be followed afterwards.
        """
        run, kept = self.reading.run, self.reading.kept
        if kept is None:
            raise ValueError("a run that acts keeps what it has read")
        moves = [move for move in planned.left if not move.observed]
        if not moves:
            self.remember(())
            return None
        feed = open_feed(planned.snapshot, moves, ordered=self.ordered)
        cache, view = (None, kept) if isinstance(kept, RunView) else self._follow(kept, moves)
        feed.read_all = view.list_pods
        actor = self._actor(planned.snapshot, feed)
        executor = Executor(
            actor,
            feed,
            self.stop,
            WavePace.of(run.loaded.policy.safety),
            run.progress,
            domains=planned.snapshot.nodes.labels_of,
            marks=self.marker,
            ordered=self.ordered,
            leaders=find_leaders(planned.snapshot, moves),
        )
        check = WaveCheck(
            planned,
            self.remember,
            executor,
            self._recount(executor, view),
        )
        with run.timings.phase("act"), _listening(view, feed, cache):
            try:
                execution = carry_out(
                    executor,
                    planned.left,
                    lambda left: check.recheck(left, self.reading.clock_skew),
                    self.remember,
                    self._clear_marks,
                )
                return replace(execution, now=self._now(executor, view, planned))
            finally:
                actor.close()
                self.notes.add(*view.notes)

    def remember(
        self, outcomes: Iterable[Outcome], *, cut: bool = False, reserved: int = 0
    ) -> str | None:
        """Store the outcomes in the run's memory, see :class:`Remember`."""
        memory, clock = self.reading.memory, self.reading.run.environment.clock
        if memory is None:
            return None
        seconds = clock.now() - self.started
        why = memory.save(outcomes, clock.unix(), seconds, cut=cut, reserved=reserved)
        self.notes.add(why)
        return why

    def _now(self, executor: Executor, view: RunView, planned: Planned) -> ClusterNow | None:
        """Return the scored current cluster; None after a signal, or if it cannot be read.

        At the deadline no request is sent: the state known by the watches is used.
        """
        ended = self.stop.reason() is not None
        if self.ordered or (ended and self.stop.since != self.stop.deadline):
            return None
        # What the plan was made of need not be kept beside this picture.
        with suppress(Exception):
            planned.plan.explanation.make()
        evicted = _list_evicted(executor.outcomes)
        try:
            snapshot = view.peek(evicted) if ended else self._look(view, evicted)
        except ClusterReadError as error:
            self.notes.add(f"the cluster could not be read again after the moves: {error}")
            return None
        if snapshot is None:
            return None
        with collector_paused():
            return planned.score(snapshot)

    def _look(self, view: RunView, evicted: Collection[str]) -> Snapshot:
        """Return the current cluster, with the devices that pods have now."""
        return read_devices(self._client, view.snapshot(evicted))[0]

    def _clear_marks(self) -> bool:
        """Remove the run's marks; return whether some are left, with a warning for each."""
        left = self.marker.clear() if self.marker is not None else []
        self.notes.add(*left)
        return bool(left)

    @property
    def _client(self) -> Client:
        if (client := self.reading.client) is None:
            raise ValueError("a run that acts has a client")
        return client

    def _actor(self, snapshot: Snapshot, feed: PodFeed) -> ClusterActor:
        environment = self.reading.run.environment
        return ClusterActor(
            self._client,
            snapshot,
            clock=environment.clock.unix,
            instance=instance(environment),
            warn=self.notes.add,
            grace=self.grace,
            succeed=feed.succeed,
            ordered=self.ordered,
        )

    def _follow(self, kept: Kept, moves: Sequence[Move]) -> tuple[ClusterCache, RunView]:
        everything, namespace = choose_followed(moves) if self.ordered else (True, "")
        followed = kept if everything else replace(kept, listings=kept.listings[:1])
        seconds = max(1.0, self.stop.seconds_left())
        cache = ClusterCache(self._client, followed, seconds=seconds, namespace=namespace)
        return cache, cache.view_first(kept.snapshot, kept.at)

    def _recount(self, executor: Executor, view: RunView) -> Recount:
        return Recount(
            lambda: self._look(view, _list_evicted(executor.outcomes)),
            lambda: view.list_exhausted_budgets(_list_evicted(executor.outcomes)),
            self.stop,
        )


@dataclass(frozen=True, slots=True)
class WaveCheck:
    """Judges the remaining moves of the plan before each further wave."""

    planned: Planned
    """The plan of the run; its explanation is made after the first wave, so that its data need not be kept beside the next snapshot."""
    remember: Remember
    executor: Executor
    recount: Recount

    def recheck(
        self, moves: Sequence[Move], clock_skew: float
    ) -> Sequence[tuple[Move, str | None]]:
        """Store the outcomes, then return each move with the reason why it is dropped, or None.

        Raises:
            ClusterReadError: the outcomes could not be stored, and the budget per hour needs them.
        """
        # A run that is killed in a later wave has used up its part of the hour anyway.
        why = self.remember(self.executor.outcomes, reserved=of_next_wave(moves))
        if why is not None and self.planned.rules.counts_the_hour:
            raise ClusterReadError(why)
        # What is wrong with it is said where the report asks for it: moves need it not.
        with suppress(Exception):
            self.planned.plan.explanation.make()
        with collector_paused():
            asked = [one.move for one in self.executor.outcomes if one.may_be_asked_for]
            now = self.recount.snapshot(moves)
            return self.planned.revalidate(now, moves, clock_skew, asked)


def of_next_wave(moves: Sequence[Move]) -> int:
    """Return the maximum number of evictions in the next wave of ``moves``."""
    acting = [move.wave for move in moves if not move.observed]
    return acting.count(acting[0]) if acting else 0


def carry_out(
    executor: Executor,
    moves: Sequence[Move],
    recheck: Recheck,
    remember: Remember,
    clear_marks: Callable[[], bool],
) -> Execution:
    """Execute ``moves``, remove marks from nodes and store the outcomes.

    The run has failed if marks are left, or if an eviction could not be stored.
    """
    whole = False
    try:
        execution = executor.run(moves, recheck)
        whole = execution.stopped is None
    finally:
        # Also after a signal, and when the cluster cannot be read any more: what was done was done.
        marked = clear_marks()
        why = remember(executor.outcomes, cut=not whole)
    forgotten = why is not None and any(o.status.may_have_evicted for o in execution.outcomes)
    return replace(execution, failed=execution.failed or forgotten or marked, marks_left=marked)


def choose_followed(moves: Sequence[Move]) -> tuple[bool, str]:
    """Return whether all lists must be followed, and the namespace of the pods to follow ("": all).

    If no score is needed at the end, a plan of one wave is not judged again: then only the replacements are
    followed.
    """
    if any(move.room for move in moves):
        return True, ""  # the pod that the room is for may be in another namespace
    namespaces = {move.namespace for move in moves}
    waves = {move.wave for move in moves}
    return len(waves) > 1, namespaces.pop() if len(waves) == len(namespaces) == 1 else ""


@contextmanager
def _listening(view: RunView, feed: PodFeed, cache: ClusterCache | None) -> Iterator[None]:
    """Report pods to the feed; follow the cluster by ``cache`` meanwhile, None if it is followed already."""
    with view.listen(feed) as whole, cache or nullcontext():
        if not whole:
            feed.list_again()
        yield


def _list_evicted(outcomes: Iterable[Outcome]) -> set[str]:
    return {done.move.uid for done in outcomes if done.status.ends_pod}


_TIMEOUT = 5.0
"""The disruption controller counts within a fraction of a second, unless it is under pressure."""


class Recount:
    """Takes a snapshot between waves, again while budgets are about to be updated.

    The replacements of a wave are Ready before the controller has counted them, so a budget may allow no disruption
    for a moment. If the plan were judged in that moment, the budget's pods would count as immovable. A budget that
    remained at 0 once is not awaited again: other clients use it up.
    """

    def __init__(
        self,
        look: Callable[[], Snapshot],
        exhausted: Callable[[], Collection[str]],
        stop: Stop,
    ) -> None:
        """``look`` returns the current cluster, ``exhausted`` the budgets that allow no disruption.

        ``exhausted`` is called many times, and reads no snapshot.
        """
        self._look, self._exhausted = look, exhausted
        self._stop = stop
        self._given_up: set[str] = set()

    def snapshot(self, moves: Sequence[Move]) -> Snapshot:
        """Wait until the budgets for the next wave of ``moves`` allow disruptions again; return the cluster then.

        After five seconds, or when the run must end, stop waiting.
        """
        next_wave = {ref for m in moves if m.wave == moves[0].wave for ref in m.budgets}
        until = self._stop.now() + _TIMEOUT
        backoff = Backoff(_FIRST_WAIT, _MAX_WAIT)
        # Where nothing is waited for, nothing is asked: a list that cannot be watched would be read for it.
        while (waited := next_wave - self._given_up) and (
            missing := waited & set(self._exhausted())
        ):
            if self._stop.now() + backoff.pause > until:
                self._given_up |= missing
                break
            if backoff.wait(self._stop) is not None:
                break
        return self._look()
