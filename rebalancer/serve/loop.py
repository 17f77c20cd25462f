"""The loop of ``serve``: read the cluster once, follow it, and perform run after run on its current state.

Each run does what ``rebalancer run`` does after reading: the same plan, evictions, report and memory.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
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
from rebalancer.base.stop import Stop
from rebalancer.kube.cache import ClusterCache, Observer
from rebalancer.kube.client import Client
from rebalancer.machines.capacity import scaling_of
from rebalancer.planner.planning import room_after
from rebalancer.registry import Registry
from rebalancer.report.model import RunReport
from rebalancer.run.context import RunContext, run_context
from rebalancer.run.one_run import EndedRun, publish_run, run_on
from rebalancer.run.options import PolicyFlags, RunOptions
from rebalancer.run.source import Followed, Source, usage_of
from rebalancer.serve import triggers
from rebalancer.serve.following import Following, Rights
from rebalancer.serve.health import Health
from rebalancer.serve.interruptions import Interruptions
from rebalancer.serve.leading import Leading, Lost
from rebalancer.serve.triggers import ClusterTriggers, Schedule, Triggers
from rebalancer.wire.pods import PodRecord

_THOROUGH = 20
"""Runs between two looks of the garbage collector at what has outlasted runs."""


class PolicyInForce:
    """The policy, read again before each run; if it became invalid, the last valid one stays in force."""

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
        """Read the policy again; return why the previous one stays in force, or None."""
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
        self._evicted: set[str] = set()
        """uids of the pods that the last run has evicted."""
        self._notes: tuple[str, ...] = ()
        """What was said of the last run."""

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
            self._health.leads = True
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

    def _follow(self, run: RunContext, client: Client, lost: Lost) -> ClusterCache:
        """Follow and listen as the policy of ``run`` says; return the followed cluster.

        Raises:
            ClusterReadError: the cluster could not be read, or a right is missing.
            PolicyError: a signal source cannot be opened.
        """
        cache = self._following.open_cache(run, client)
        self._interruptions.listen_as(run, client, cache, lost)
        return cache

    def _context(self) -> RunContext:
        return run_context(
            self._options,
            self._environment,
            registry=self._policy.registry,
            loaded=self._policy.loaded,
        )

    # -- one run -----------------------------------------------------------------------------------

    def _run(self, client: Client, lost: Lost) -> None:
        """Perform one run and record its outcome. Errors are printed, and the next run tries again."""
        self._health.beat()
        called = self._triggers.begin_run()
        # Until it evicts or reports, a run that is stopped may be cut off.
        self._environment.committed.clear()
        flaw = self._policy.refresh()
        run = self._context()
        run.notes.extend([] if flaw is None else [flaw])
        run.stop.add(lost)
        run.stop.add(called)
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
            self._health.note_failure(error.exit_code, self._environment.clock.unix())
        else:
            if ended.report is not None:
                self._keep(ended.report)
                now = self._environment.clock.unix()
                self._health.note_report(ended.report, ended.remembered, now)
        self._collect_garbage()
        self._environment.committed.set()
        self._runs += 1
        self._health.runs = self._runs
        self._triggers.end_run()
        self._health.beat()

    def _run_once(self, run: RunContext, client: Client, lost: Lost) -> EndedRun:
        self._rights.require(run, client)
        cache = self._follow(run, client, lost)
        run = replace(run, interruptions=self._interruptions.report())
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
            return run_on(run, ending, source, scaling_of)
        except RebalancerError:
            if seen:
                # It failed: what triggered it triggers another.
                self._triggers.add(seen, triggers.GAP, triggers.QUIET)
            raise
        finally:
            of_run.close()

    def _keep(self, report: RunReport) -> None:
        self._evicted = {one.move.uid for one in report.outcomes if one.status.is_carried_out}
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
    """Several observers as one."""

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
