"""The loop of ``serve``: read the cluster once, follow it, and perform run after run on its current state.

Each run does what ``rebalancer run`` does after reading: the same plan, evictions, report and memory.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from rebalancer.base.environment import Environment
from rebalancer.base.errors import (
    ClusterReadError,
    ExitCode,
    PolicyError,
    RebalancerError,
    StoppedError,
)
from rebalancer.base.output import say
from rebalancer.base.stop import Clock, Stop
from rebalancer.kube.access import AUTOSCALER_FOLLOW_RULES, FOLLOW_RULES, require
from rebalancer.kube.cache import ClusterCache, Observer
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import ConfigMapMissingError
from rebalancer.kube.lease import AcquiredLease, Lease, LeaseTaken, is_final
from rebalancer.kube.read import read_cluster
from rebalancer.kube.resources import AccessRule
from rebalancer.machines.capacity import MachineScaler
from rebalancer.planner.rules import room_after
from rebalancer.policy.model import Mode
from rebalancer.registry import Registry
from rebalancer.report.model import RunReport
from rebalancer.run.context import RunContext, identity, run_context
from rebalancer.run.ending import EndedRun, publish_run
from rebalancer.run.memory.store import open_config_map
from rebalancer.run.one_run import run_on
from rebalancer.run.options import PolicyFlags, RunOptions
from rebalancer.run.source import Followed, Source, release, require_rights, usage_of
from rebalancer.serve import triggers
from rebalancer.serve.health import Health
from rebalancer.serve.interruptions import Interruptions
from rebalancer.serve.page import Outlook
from rebalancer.serve.triggers import ClusterTriggers, Schedule, Triggers
from rebalancer.wire.kinds import PODS
from rebalancer.wire.pods import PodRecord

LEASE_SECONDS = 15
"""Another replica acquires the Lease when it was not renewed for this time. A single run's lasts longer, since no other process waits for it."""
_TRY_AGAIN = 2.0
"""Seconds after the Lease could not be read or written."""

Lost = Callable[[], str | None]
"""Returns why this process leads no longer, None while it does."""


class Leading:
    """Waits for the Lease, and releases it."""

    def __init__(
        self,
        lease: tuple[str, str] | None,
        environment: Environment,
        stop: Stop,
        health: Health,
        follows: Callable[[], bool],
    ) -> None:
        """``lease``: (namespace, name); None: this process leads alone.

        ``follows`` returns whether the process has read the cluster before.
        """
        self._lease, self._environment, self._stop = lease, environment, stop
        self._health, self._follows = health, follows
        self._identity = identity(environment)

    @contextmanager
    def term(self, client: Client, waiting: Callable[[], None]) -> Iterator[Lost | None]:
        """Yield a function that returns why the term is over; yield None to try the Lease again, or after a signal.

        ``waiting`` is called while another replica leads.

        Raises:
            ClusterReadError: the Lease is refused or does not exist, and this process has not led yet.
        """
        if self._lease is None:
            yield _never
            return
        acquired = self._acquire(client, *self._lease, waiting)
        if acquired is None:
            yield None
            return
        try:
            yield acquired.explain_loss
        finally:
            self._health.end_term()
            release(self._environment, acquired)

    def _acquire(
        self, client: Client, namespace: str, name: str, waiting: Callable[[], None]
    ) -> AcquiredLease | None:
        health, err, stands_by = self._health, self._environment.err, False

        def note_look() -> None:
            nonlocal stands_by
            health.beat()
            health.lease_flaw = ""
            if not stands_by:
                stands_by = health.stands_by = True
                say(err, "rebalancer: another run has the Lease: standing by")
            waiting()

        lease = Lease(
            client,
            namespace,
            name,
            identity=self._identity,
            duration=LEASE_SECONDS,
            clock=self._environment.clock.unix,
        )
        # What asks for it again and again, since the server fails, does not hang either.
        health.beat()
        try:
            taken = lease.acquire(note_look)
        except ClusterReadError as error:
            if is_final(error) and not self._follows():
                raise
            if self._stop.reason() is None:
                health.lease_flaw = f"the Lease {namespace}/{name} cannot be had: {error.lines[0]}"
                say(err, f"rebalancer: {error}; it is tried again")
            self._stop.wait(_TRY_AGAIN)
            return None
        finally:
            health.stands_by = False
        health.beat()
        health.lease_flaw = ""
        return None if isinstance(taken, LeaseTaken) else taken


def _never() -> None:
    """Return None: without a Lease none can be lost."""


_COMPACT = 60.0
"""Seconds between two times at which what is kept is compacted."""


class Rights:
    """The rights of this process, checked once per policy."""

    def __init__(self, interruptions: Interruptions) -> None:
        self._interruptions = interruptions
        self._allowed = ""
        """Hash of the policy whose runs have all rights."""

    def require(self, run: RunContext, client: Client) -> None:
        """Check all rights that runs under the policy of ``run`` need.

        Raises:
            ForbiddenError: rights are missing; the message names all of them.
            ClusterReadError: no answer at all.
        """
        loaded = run.loaded
        if self._allowed == loaded.policy_hash:
            return
        autoscalers = AUTOSCALER_FOLLOW_RULES if run.rules.autoscalers else ()
        watch = AccessRule.of("watch", PODS)
        follows = (*FOLLOW_RULES, *autoscalers, watch)
        if run.acts:
            steps = self._interruptions.rules(loaded.policy)
            require_rights(run, client, usage_of(run, client), (*follows, *steps))
        else:
            require(client, follows)
        self._allowed = loaded.policy_hash


class Following:
    """Reads the cluster once and follows it; reads it again if the policy needs more lists than are followed."""

    def __init__(self, clock: Clock, health: Health, rights: Rights, observer: Observer) -> None:
        self._clock = clock
        self._health, self._rights, self._observer = health, rights, observer
        self._cache: ClusterCache | None = None
        self._at_end = ExitStack()
        self._finished: frozenset[str] = frozenset()
        """The phases of the pods that have ended and are followed, too."""
        self._autoscalers = False
        """Whether HorizontalPodAutoscalers are followed, too."""
        self._compacted = -math.inf

    def open_cache(self, run: RunContext, client: Client) -> ClusterCache:
        """Return a cache of all lists that the policy of ``run`` needs.

        Raises:
            ClusterReadError: the cluster could not be read, or must not be; or the memory does not exist.
        """
        rules = run.rules
        follows = rules.finished <= self._finished and rules.autoscalers <= self._autoscalers
        if self._cache is None or not follows:
            self._cache = self._health.cache = None
            self.close()
            self._cache = self._at_end.enter_context(self._read(run, client))
            self._health.cache = self._cache
            self._finished, self._autoscalers = rules.finished, rules.autoscalers
        return self._cache

    def has_begun(self) -> bool:
        """Return whether a cluster is being followed."""
        return self._cache is not None

    def _read(self, run: RunContext, client: Client) -> ClusterCache:
        self._rights.require(run, client)
        _require_memory(run, client)
        kept = read_cluster(
            client,
            clock=run.environment.clock.unix,
            keep=True,
            finished=run.rules.finished,
            autoscalers=run.rules.autoscalers,
            progress=self._health.beat,
        ).kept
        if kept is None:
            raise ValueError("what was read to be followed is kept")
        return ClusterCache(client, kept, seconds=math.inf, observer=self._observer)

    def compact(self, evicted: set[str]) -> None:
        """Compact the stored data once a minute; ``evicted``: uids of the pods that the last run evicted."""
        now = self._clock.now()
        if self._cache is not None and now - self._compacted >= _COMPACT:
            self._compacted = now
            self._cache.compact(evicted)

    def close(self) -> None:
        """Stop following."""
        self._at_end.close()


def _require_memory(run: RunContext, client: Client) -> None:
    """Raise ClusterReadError if the memory's ConfigMap does not exist. If it is unreadable now, runs evict nothing."""
    if run.state.memory is None:
        return
    try:
        open_config_map(client, run.state.memory).require()
    except ConfigMapMissingError:
        raise
    except ClusterReadError:
        return


def _refuse_scale_out(run: RunContext) -> None:
    """Raise PolicyError if the policy scales groups up: after a restart, back-offs and requested sizes would be lost."""
    policy = run.loaded.policy
    for name, strategy in policy.strategies.items():
        if strategy.params.scales == "out" and policy.mode_of(name) is Mode.ENFORCE:
            message = (
                f"{name} needs --machine-state NAMESPACE/NAME: a ConfigMap, made before, that keeps which groups failed"
                f" to grow. Or set strategies.{name}.mode to observe."
            )
            raise PolicyError([message])


_THOROUGH = 20
"""Runs between two looks of the garbage collector at what has outlasted runs."""


class PolicyInForce:
    """The policy, read again before each run; if it became invalid, the last valid one remains in force."""

    def __init__(self, flags: PolicyFlags, registry: Registry) -> None:
        """Read the policy.

        Raises:
            RebalancerError: it is invalid.
        """
        if flags.policy_path == "-":
            raise PolicyError(["--policy -: standard input cannot be read again; name a file"])
        self._flags, self.registry = flags, registry
        self.loaded = flags.load(registry)

    def refresh(self) -> str | None:
        """Read the policy again; return why the previous one remains in force, or None."""
        try:
            self.loaded = self._flags.load(self.registry)
        except RebalancerError as error:
            return f"the policy is wrong, and the one that was read before stays in force: {error}"
        return None


class ServeLoop:
    """Leads, follows and runs until a signal comes."""

    def __init__(
        self, options: RunOptions, environment: Environment, schedule: Schedule, health: Health
    ) -> None:
        """Read the policy.

        Raises:
            RebalancerError: the policy or a flag is invalid.
        """
        self._health = health
        self._runs = 0
        self._options, self._environment = options, environment
        self._stop = Stop(environment.clock, signalled=environment.stop)
        self._policy = PolicyInForce(options.policy, Registry.installed())
        self._triggers = Triggers(environment.clock, schedule)
        self._interruptions = Interruptions(
            environment, self._policy.registry, self._triggers.end_run_early
        )
        health.interruptions = self._interruptions
        self._rights = Rights(self._interruptions)
        observer = _All(ClusterTriggers(self._triggers), self._interruptions)
        self._following = Following(environment.clock, health, self._rights, observer)
        self._leading = Leading(
            options.state.lease, environment, self._stop, health, self._following.has_begun
        )
        self._scale = MachineScaler()
        """What runs do to machines; each term begins without memories of an earlier one."""
        self._evicted: set[str] = set()
        """uids of the pods that the last run has evicted."""
        self._notes: tuple[str, ...] = ()
        """The notes of the last run."""

    def run(self) -> ExitCode:
        """Perform runs until a signal comes.

        Raises:
            ClusterReadError: the cluster could not be read at first, or refuses access; later errors are retried.
        """
        try:
            client = self._options.cluster.client(self._environment, self._stop)
            with ExitStack() as at_end:
                at_end.callback(client.close)
                at_end.callback(self._following.close)
                while self._stop.reason() is None:
                    self._lead(client)
        except (ClusterReadError, StoppedError, KeyboardInterrupt):
            if not self._environment.stop.is_set():
                raise
        return ExitCode.DONE

    def _lead(self, client: Client) -> None:
        """Wait for the Lease, then perform runs while it is held."""
        with self._leading.term(client, self._compact) as lost, ExitStack() as at_end:
            if lost is None:
                return
            at_end.callback(self._interruptions.close)
            self._follow(self._context(), client, lost)
            self._health.leads, self._scale = True, MachineScaler()
            self._triggers.begin_term()
            for why in self._due(lost):
                if why:
                    say(self._environment.err, f"rebalancer: {why}: planning now")
                self._run(client, lost)

    def _due(self, lost: Lost) -> Iterator[str]:
        """Yield why each run is due (empty: the schedule), until the term is over.

        If the last run took longer than the interval, the next one is due at once.
        """
        while self._stop.reason() is None and lost() is None:
            self._health.beat()
            must_leave = self._interruptions.pods_must_leave
            why = self._triggers.await_next(self._stop, pods_must_leave=must_leave)
            if why is None:
                self._compact()
            else:
                yield why

    def _follow(
        self, run: RunContext, client: Client, lost: Lost
    ) -> tuple[ClusterCache, str | None]:
        """Follow and listen as the policy of ``run`` says; return the followed cluster, and a note or None.

        Raises:
            ClusterReadError: the cluster could not be read, or a right is missing.
            PolicyError: a signal source cannot be opened.
        """
        cache = self._following.open_cache(run, client)
        return cache, self._interruptions.listen_as(run, client, cache, lost)

    def _context(self, *notes: str | None) -> RunContext:
        """Return what a run is given; ``notes``: on its policy."""
        run = run_context(
            self._options,
            self._environment,
            registry=self._policy.registry,
            loaded=self._policy.loaded,
        )
        if run.acts and run.state.machine_state is None:
            _refuse_scale_out(run)
        return replace(run, notes=(*run.notes, *filter(None, notes)))

    # -- one run -----------------------------------------------------------------------------------

    def _run(self, client: Client, lost: Lost) -> None:
        """Perform one run and record its outcome. Errors are printed, and the next run tries again."""
        self._health.beat()
        called = self._triggers.begin_run()
        # Until it evicts or reports, a run that is stopped may be cut off.
        self._environment.committed.clear()
        flaw = self._policy.refresh()
        self._health.policy_flaw = flaw or ""
        run = self._context(flaw)
        run.progress.number_run(self._runs + 1)
        run.stop.add(lost, final=True)
        run.stop.add(called)
        if (page := self._health.page) is not None:
            next_at = self._environment.clock.unix() + self._triggers.seconds_left()
            page.outlook = Outlook(run.loaded.policy.mode.value, next_at)
            page.begin_run()
            run.progress.tell_also(page.note_step)
        try:
            ended = publish_run(
                self._options.publishing,
                self._options.deadline,
                self._environment,
                lambda: self._run_once(run, client, lost),
            )
        except RebalancerError as error:
            if self._stop.reason() is not None:
                raise
            self._say_new((str(error),))
            self._health.note_failure(error, self._environment.clock.unix())
        else:
            if ended.report is not None:
                self._keep(ended.report)
                now = self._environment.clock.unix()
                self._health.note_report(ended.report, ended.remembered, now)
        if page is not None:
            page.end_run()
        self._collect_garbage()
        self._environment.committed.set()
        self._runs += 1
        self._health.runs = self._runs
        self._triggers.end_run()
        self._health.beat()

    def _run_once(self, run: RunContext, client: Client, lost: Lost) -> EndedRun:
        self._rights.require(run, client)
        cache, unheard = self._follow(run, client, lost)
        notes = run.notes if unheard is None else (*run.notes, unheard)
        machines = self._interruptions.report()
        going = {one.node: one.goes_at for one in machines if one.goes_at is not None}
        rules = replace(run.rules, going=going)
        run = replace(run, interruptions=machines, rules=rules, notes=notes)
        of_run = client.beside(run.stop)
        self._triggers.room_after = room_after(run.loaded.policy, self._policy.registry)
        seen = self._triggers.take()
        try:
            source = Source(
                run,
                client.server,
                of_run,
                usage=usage_of(run, of_run),
                followed=Followed(cache, self._evicted),
            )
            ending = replace(self._options.ending, prints_idle=False)
            return run_on(source, ending, self._scale)
        except RebalancerError:
            if seen:
                # It failed: what triggered it triggers another.
                self._triggers.add(seen, triggers.GAP, triggers.QUIET)
            raise
        finally:
            of_run.close()

    def _keep(self, report: RunReport) -> None:
        self._evicted = {one.move.uid for one in report.outcomes if one.status.ends_pod}
        self._say_new(report.warnings)

    def _say_new(self, notes: tuple[str, ...]) -> None:
        """Print the notes that the previous run did not have: an idle run prints no report."""
        for note in notes:
            if note not in self._notes:
                say(self._environment.err, f"rebalancer: {note}")
        self._notes = notes

    def _collect_garbage(self) -> None:
        """Free the memory of a run: few objects with large arrays in reference cycles.

        The collector itself would wait long for these. Long-lived objects are examined only once in many runs.
        """
        if self._runs % _THOROUGH == 0:
            gc.unfreeze()
        gc.collect()
        gc.freeze()

    def _compact(self) -> None:
        self._following.compact(self._evicted)


class _All:
    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def pod_changed(self, pod: PodRecord) -> None:
        """Forward a change of a pod to all observers."""
        for one in self._observers:
            one.pod_changed(pod)

    def object_changed(self, kind: str, before: Any | None, after: Any | None) -> None:
        """Forward a change of another object to all observers."""
        for one in self._observers:
            one.object_changed(kind, before, after)

    def watch_failed(self, plural: str, why: str) -> None:
        """Forward that a list is not followed to all observers."""
        for one in self._observers:
            one.watch_failed(plural, why)
