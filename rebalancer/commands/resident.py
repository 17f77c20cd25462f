"""``serve``: one process that reads the cluster once, follows it, and makes run after run of what it knows.

Each run is what ``rebalancer run`` does after its lists: the same plan, evictions, report and memory.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

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
from rebalancer.commands.context import RunContext, run_context
from rebalancer.commands.early import SOON, Early
from rebalancer.commands.identity import identity
from rebalancer.commands.interrupted import Both, Interruptions
from rebalancer.commands.options import RunOptions
from rebalancer.commands.run import EndedRun, published, run_on
from rebalancer.commands.schedule import Schedule
from rebalancer.commands.source import Followed, Source, release, require_rights, usage_source
from rebalancer.commands.vitals import Vitals
from rebalancer.policy.load import LoadedPolicy
from rebalancer.registry import Registry

if TYPE_CHECKING:
    from rebalancer.kube.client import Client
    from rebalancer.kube.follow import Follower
    from rebalancer.kube.lease import AcquiredLease
    from rebalancer.kube.metrics import UsageSource
    from rebalancer.planner.planning import Planning
    from rebalancer.report.model import RunReport

LEASE_SECONDS = 15
"""Of the Lease: another replica takes it when it was not renewed for so long. A single run's lasts longer, since
no other process waits for it."""
_TRY_AGAIN = 2.0
"""Seconds after the Lease could not be read or written."""
_LOOK = 0.25
_COMPACT = 60.0
"""Seconds between two times at which what is kept is compacted."""


_THOROUGH = 20
"""Runs between two looks of the garbage collector at what has outlasted runs."""


@dataclass(slots=True)
class PolicyInForce:
    """The policy, read again before each run; one that became wrong leaves the last right one in force.

    Raises:
        RebalancerError: it is wrong from the beginning.
    """

    options: RunOptions
    registry: Registry
    loaded: LoadedPolicy = field(init=False)

    def __post_init__(self) -> None:
        if self.options.policy_path == "-":
            raise PolicyError(["--policy -: standard input cannot be read again; name a file"])
        self.loaded = self.options.load(self.registry)

    def refresh(self) -> str | None:
        """Read it again; return why the policy that was read before stays in force, None if it does not."""
        try:
            self.loaded = self.options.load(self.registry)
        except RebalancerError as error:
            return f"the policy is wrong, and the one that was read before stays in force: {error}"
        return None


class Resident:
    """Leads, follows and runs, until a signal comes."""

    def __init__(
        self, options: RunOptions, environment: Environment, schedule: Schedule, vitals: Vitals
    ) -> None:
        """Read the policy.

        Raises:
            RebalancerError: the policy or a flag is wrong.
        """
        self.vitals = vitals
        self._options, self._environment, self._schedule = options, environment, schedule
        self._stop = Stop(environment.clock, signalled=environment.stop)
        self._policy = PolicyInForce(options, Registry.installed())
        self._lease = options.lease
        self._identity = identity(environment)
        self._early = Early(environment.clock)
        self._interruptions = Interruptions(environment, self._policy.registry)
        vitals.interruptions = self._interruptions
        self._allowed = ""
        """Hash of the policy for whose runs all rights are there."""
        self._evicted: set[str] = set()
        """uids of the pods that the last run has evicted."""
        self._ended_at = self._compacted = -math.inf
        self._due = -math.inf
        """When the next run is due by the schedule: from the beginning of the last one, as a CronJob's."""
        self._following = ExitStack()
        """Ends the following of the cluster."""
        self._finished: frozenset[str] = frozenset()
        """The phases of the pods that have ended and are followed, too."""
        self._autoscalers = False
        """Whether HorizontalPodAutoscalers are followed, too."""
        self._notes: tuple[str, ...] = ()
        """What was said of the last run."""

    def live(self) -> ExitCode:
        """Run again and again until a signal comes.

        Raises:
            ClusterReadError: the cluster could not be read at first, or refuses us; later it is tried again.
        """
        try:
            client = self._options.access().client(self._environment, self._stop)
            with ExitStack() as at_end:
                at_end.callback(client.close)
                at_end.callback(self._following.close)
                while self._stop.reason() is None:
                    self._lead(client)
        except (ClusterReadError, StoppedError, KeyboardInterrupt):
            if not self._environment.stop.is_set():
                raise
        return ExitCode.DONE

    # -- leading -----------------------------------------------------------------------------------

    def _lead(self, client: Client) -> None:
        """Wait for the Lease, then run again and again while it is ours."""
        lost: Callable[[], str | None] = _never
        with ExitStack() as led:
            if self._lease is not None:
                lease = self._acquired(client, *self._lease)
                if lease is None:
                    return
                led.callback(release, self._environment, lease)
                led.callback(self._yield_lead)
                lost = lease.lost
            led.callback(self._interruptions.close)
            follower = self._follower(client)
            self._interruptions.listen_as(self._context(), client, follower, lost)
            self.vitals.leads = True
            while self._stop.reason() is None and lost() is None:
                self._run(client, lost)
                self._await_next(lost)

    def _yield_lead(self) -> None:
        self.vitals.leads = False

    def _acquired(self, client: Client, namespace: str, name: str) -> AcquiredLease | None:
        """Return the Lease once it is ours, None if it is to be tried again, or a signal came.

        Raises:
            ClusterReadError: it is refused, or not there, and nothing was led yet.
        """
        from rebalancer.kube.lease import Lease, LeaseTaken, is_final  # noqa: PLC0415

        # What asks for it again and again, since the server fails, does not hang either.
        self._seen()

        def looked() -> None:
            self._seen()
            if not self.vitals.stands_by:
                self.vitals.stands_by = True
                say(self._environment.err, "rebalancer: another run has the Lease: standing by")
            self._compact()

        lease = Lease(
            client,
            namespace,
            name,
            identity=self._identity,
            duration=LEASE_SECONDS,
            clock=self._environment.clock.unix,
        )
        try:
            taken = lease.acquire(looked)
        except ClusterReadError as error:
            if is_final(error) and self.vitals.follower is None:
                raise
            say(self._environment.err, f"rebalancer: {error}; it is tried again")
            self._stop.wait(_TRY_AGAIN)
            return None
        finally:
            self.vitals.stands_by = False
        self._seen()
        return None if isinstance(taken, LeaseTaken) else taken

    # -- following ---------------------------------------------------------------------------------

    def _follower(self, client: Client) -> Follower:
        """Return what follows the cluster; it is read first, and again where the policy asks for more than is followed.

        Raises:
            ClusterReadError: it could not be read, or we may not.
        """
        planning = self._context().planning
        follows = planning.finished <= self._finished and planning.autoscalers <= self._autoscalers
        if self.vitals.follower is None or not follows:
            self.vitals.follower = None
            self._following.close()
            self.vitals.follower = self._following.enter_context(self._read(client, planning))
            self._finished, self._autoscalers = planning.finished, planning.autoscalers
        return self.vitals.follower

    def _read(self, client: Client, planning: Planning) -> Follower:
        from rebalancer.kube.follow import Follower  # noqa: PLC0415
        from rebalancer.kube.read import read_cluster  # noqa: PLC0415

        self._require_rights(client)
        clock = self._environment.clock.unix
        kept = read_cluster(
            client,
            clock=clock,
            keep=True,
            finished=planning.finished,
            autoscalers=planning.autoscalers,
            progress=self._seen,
        ).kept
        if kept is None:
            raise ValueError("what was read to be followed is kept")
        return Follower(
            client, kept, None, seconds=math.inf, observer=Both(self._early, self._interruptions)
        )

    def _require_rights(self, client: Client) -> None:
        from rebalancer.kube.access import (  # noqa: PLC0415
            AUTOSCALER_FOLLOW_RULES,
            FOLLOW_RULES,
            require,
        )
        from rebalancer.kube.resources import PODS, AccessRule  # noqa: PLC0415

        loaded = self._policy.loaded
        if self._allowed == loaded.policy_hash:
            return
        run = self._context()
        also = AUTOSCALER_FOLLOW_RULES if run.planning.autoscalers else ()
        follows = (*FOLLOW_RULES, *also, AccessRule("watch", PODS.group, PODS.plural))
        if run.acts:
            also = self._interruptions.rules(loaded.policy)
            require_rights(run, client, self._usage(run, client), (*follows, *also))
        else:
            require(client, follows)
        self._allowed = loaded.policy_hash

    # -- one run -----------------------------------------------------------------------------------

    def _context(self) -> RunContext:
        return run_context(
            self._options,
            self._environment,
            registry=self._policy.registry,
            loaded=self._policy.loaded,
        )

    def _run(self, client: Client, lost: Callable[[], str | None]) -> None:
        """Make one run, and keep the outcome of it; what goes wrong is said, and the next run tries again."""
        self._seen()
        clock = self._environment.clock
        self._due = clock.now() + self._schedule(clock.unix())
        # Until it evicts or reports, a run that is stopped may be cut off.
        self._environment.committed.clear()
        flaw = self._policy.refresh()
        run = self._context()
        run.notes.extend([] if flaw is None else [flaw])
        run.stop.add(lost)
        run.stop.add(self._interruptions.begin_run())
        try:
            ended = published(
                self._options.publishing(),
                self._environment,
                lambda: self._ended(run, client, lost),
            )
        except RebalancerError as error:
            if self._stop.reason() is not None:
                raise
            self._say_new((str(error),))
            self.vitals.failed_run(error.exit_code, self._environment.clock.unix())
        else:
            if ended.report is not None:
                self._keep(ended.report)
                now = self._environment.clock.unix()
                self.vitals.reported(ended.report, ended.remembered, now)
        self._collect()
        self._environment.committed.set()
        self.vitals.runs += 1
        self._ended_at = self._environment.clock.now()
        self._seen()

    def _collect(self) -> None:
        """Free what a run leaves: few objects with large arrays, in circles, for which the collector would wait long.

        What outlasts a run is looked at once in so many runs: it is much, and nearly all of it stays.
        """
        if self.vitals.runs % _THOROUGH == 0:
            gc.unfreeze()
        gc.collect()
        gc.freeze()

    def _ended(self, run: RunContext, client: Client, lost: Callable[[], str | None]) -> EndedRun:
        self._require_rights(client)
        follower = self._follower(client)
        self._interruptions.listen_as(run, client, follower, lost)
        run = replace(run, interruptions=self._interruptions.report())
        of_run = client.beside(run.stop)
        self._early.begin()
        try:
            source = Source(
                run,
                client.server,
                of_run,
                usage=self._usage(run, of_run),
                followed=Followed(follower, self._evicted),
            )
            return run_on(run, replace(self._options.ending(), prints_idle=False), source)
        except RebalancerError:
            self._early.again()
            raise
        finally:
            of_run.close()

    def _usage(self, run: RunContext, client: Client) -> UsageSource | None:
        if not run.planning.needs_usage:
            return None
        return usage_source(run.loaded.policy.usage, client, run.stop)

    def _keep(self, report: RunReport) -> None:
        self._evicted = {one.move.uid for one in report.outcomes if one.status.is_carried_out}
        self._say_new(report.warnings)

    def _say_new(self, notes: tuple[str, ...]) -> None:
        """Say what was not said of the run before: an idle run prints no report."""
        for note in notes:
            if note not in self._notes:
                say(self._environment.err, f"rebalancer: {note}")
        self._notes = notes

    # -- between two runs --------------------------------------------------------------------------

    def _await_next(self, lost: Callable[[], str | None]) -> None:
        """Wait until a run is due, by the schedule or since something has changed; at once where the last took longer."""
        clock = self._environment.clock
        due = self._due
        while self._stop.reason() is None and lost() is None:
            self._seen()
            now = clock.now()
            early = self._early.due(self._ended_at)
            due = min(due, self._interruptions.due(self._ended_at))
            if now >= min(due, early):
                if early < due:
                    say(self._environment.err, f"rebalancer: {self._early.why}: planning now")
                return
            self._compact()
            if self._early.news.is_set():
                # Other news may call for a plan sooner.
                self._stop.wait(min(due, early, now + SOON) - now)
            else:
                self._early.news.wait(min(due, now + _LOOK) - now)

    def _compact(self) -> None:
        now = self._environment.clock.now()
        if self.vitals.follower is not None and now - self._compacted >= _COMPACT:
            self._compacted = now
            self.vitals.follower.compact(self._evicted)

    def _seen(self) -> None:
        self.vitals.seen = self.vitals.clock.now()


def _never() -> None:
    """No Lease is lost where there is none."""
