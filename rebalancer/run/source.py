"""The source of the cluster state for a run: the API server, or a snapshot file.

Modules that only a cluster needs, such as the API client, are imported on use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rebalancer.base.environment import Environment, collector_paused
from rebalancer.base.errors import ClusterReadError, PolicyError, StoppedError
from rebalancer.base.output import say
from rebalancer.planner.notices import describe_missing_namespace
from rebalancer.planner.rules import NO_HISTORY, History
from rebalancer.policy.cluster import ConfigMapKey
from rebalancer.policy.namespace import (
    ReadNamespacePolicy,
    may_narrow,
    read_namespace_policy,
)
from rebalancer.run.context import RunContext, identity, instance
from rebalancer.run.options import ClusterFlags, StateFlags
from rebalancer.scheduler.configured import not_followed
from rebalancer.snapshot.buffers import explain_left_out
from rebalancer.snapshot.in_flight import with_requests
from rebalancer.snapshot.load import load_judgeable
from rebalancer.snapshot.model import Snapshot

if TYPE_CHECKING:
    from rebalancer.base.stop import Stop
    from rebalancer.kube.cache import ClusterCache, RunView
    from rebalancer.kube.client import Client
    from rebalancer.kube.lease import AcquiredLease, LeaseTaken
    from rebalancer.kube.metrics import UsageSource
    from rebalancer.kube.read import Kept
    from rebalancer.kube.resources import AccessRule
    from rebalancer.policy.cluster import UsageSettings
    from rebalancer.run.memory.store import MemoryStore
    from rebalancer.wire.objects import ObjectMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a run has read: the state of the cluster, and what earlier runs left."""

    run: RunContext
    """The run, with the scheduler's configuration and the policies of namespaces that its policy names in the cluster."""
    source: Source
    snapshot: Snapshot
    clock_skew: float = 0.0
    """Seconds by which the server's clock is ahead of ours."""
    kept: Kept | RunView | None = None
    """What it takes to follow the cluster from here on, or what follows it already; for a run that acts."""
    history: History = NO_HISTORY
    """What earlier runs left."""
    memory: MemoryStore | None = None
    """Where that is stored, and what this run leaves; None: nothing is remembered, or that was not read."""
    notes: tuple[str, ...] = ()
    """What the reader of the report should know of the reading and the memory."""

    @property
    def client(self) -> Client | None:
        """The client that it was read by; None for a snapshot file."""
        return self.source.client

    def remembering(self, memory: tuple[str, str] | None) -> Reading:
        """Return the reading of a run with this memory."""
        return replace(self, run=replace(self.run, state=replace(self.run.state, memory=memory)))

    def noting(self, *notes: str) -> Reading:
        """Return the reading with more notes."""
        return replace(self, notes=(*self.notes, *notes))


@dataclass(frozen=True, slots=True)
class Followed:
    """A cluster that is followed over several runs."""

    cache: ClusterCache
    evicted: Collection[str]
    """uids of the pods that the run before has evicted."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source from which a run reads, and on which it acts."""

    run: RunContext
    name: str
    """URL of the API server, or path of the file."""
    client: Client | None = None
    """The client of the cluster; None for a snapshot file."""
    lease_taken: LeaseTaken | None = None
    """The run that holds the Lease, so that this one must not continue."""
    usage: UsageSource | None = None
    """The source of measured usage of nodes and pods; None if no strategy needs it."""
    followed: Followed | None = None
    """None where this run is the first to read the cluster."""
    granted: frozenset[AccessRule] = frozenset()
    """Rights that were checked and are granted."""

    def read(self, jobs: list[ObjectMeta] | None = None) -> Reading:
        """Read the state. ``jobs`` gets the metadata of all Jobs of a cluster that is read for the first time.

        Raises:
            ClusterReadError: the cluster could not be read.
            PolicyError: the file is invalid or has no such namespace, or the reviewed plan is too old, or belongs to another policy.
        """
        with self.run.timings.phase("read"):
            client = self.client
            reading = self._of_file() if client is None else self._of_cluster(client, jobs)
        if self.run.loaded.policy.capacity.buffers:
            reading = reading.noting(*explain_left_out(reading.snapshot))
        return self._check_reviewed(reading)

    def _check_reviewed(self, reading: Reading) -> Reading:
        """Return the reading, noting if the plan to apply was made on another cluster; check that the plan may be applied."""
        run, reviewed = reading.run, reading.run.reviewed
        if reviewed is None:
            return reading
        # Only now it is known what the policy names in the cluster.
        reviewed.check_policy(run.loaded)
        tolerance = run.loaded.policy.safety.max_clock_skew.total_seconds()
        reviewed.check_age(reading.snapshot.captured_at, tolerance)
        if self.client is None or reviewed.source == self.name:
            return reading
        return reading.noting(f"the plan was made on {reviewed.source or 'an unnamed cluster'}")

    def _of_file(self) -> Reading:
        finished = self.run.rules.finished
        notes = (_NO_POLICIES,) if self.run.loaded.policy.namespace_policies else ()
        with collector_paused(for_good=True):
            snapshot = load_judgeable(self.name, stdin=sys.stdin.buffer, finished=finished)
            # It will not come later, as it may in a cluster, where it is the first warning.
            if (
                missing := describe_missing_namespace(snapshot, self.run.rules.namespace)
            ) is not None:
                raise PolicyError([missing])
            # A file holds none; that a pod may name responders shows that its server serves them.
            asks = self.run.requests
            snapshot = with_requests(snapshot, ()) if asks else snapshot
            return Reading(run=self.run, source=self, snapshot=snapshot, notes=notes)

    def _of_cluster(self, client: Client, jobs: list[ObjectMeta] | None) -> Reading:
        run, of_scheduler = self._with_scheduler(client)
        run, of_namespaces = self._with_namespaces(client, run)
        clock = run.environment.clock.unix
        kept: Kept | RunView | None
        if (followed := self.followed) is not None:
            from rebalancer.kube.cache import read_view  # noqa: PLC0415

            view, readings = read_view(
                client, followed.cache, followed.evicted, clock=clock, usage=self.usage
            )
            snapshot, kept = view.first, view
        else:
            from rebalancer.kube.read import read_cluster  # noqa: PLC0415

            reading = read_cluster(
                client,
                clock=clock,
                keep=run.acts,
                usage=self.usage,
                finished=run.rules.finished,
                autoscalers=run.rules.autoscalers,
                jobs=jobs,
            )
            snapshot, readings, kept = reading.snapshot, reading.readings, reading.kept
        snapshot, of_more = self._with_more(client, snapshot)
        return Reading(
            run=run,
            source=self,
            snapshot=snapshot,
            clock_skew=readings.clock_skew or 0.0,
            kept=kept,
            notes=(*of_scheduler, *of_namespaces, *readings.notes, *of_more),
        )

    def _with_more(self, client: Client, snapshot: Snapshot) -> tuple[Snapshot, Sequence[str]]:
        """Return the snapshot with what is not followed from run to run, as far as the policy asks and we may read it; and notes."""
        from rebalancer.kube.seldom_read import (  # noqa: PLC0415
            read_buffers,
            read_devices,
            read_node_claims,
            read_pod_groups,
        )

        snapshot, of_devices = read_devices(client, snapshot)
        if self.run.rules.makes_room:
            from rebalancer.kube.read import read_scale_outs  # noqa: PLC0415

            snapshot = replace(snapshot, machines_coming=read_scale_outs(client, snapshot))
        groups, of_groups = read_pod_groups(client, snapshot)
        claims, of_claims = read_node_claims(client, snapshot)
        snapshot = replace(snapshot, pod_groups=groups, node_claims=claims)
        snapshot, of_requests = self._with_requests(client, snapshot)
        if self.run.loaded.policy.capacity.buffers:
            snapshot = replace(snapshot, buffers=read_buffers(client, snapshot))
        return snapshot, (*of_devices, *of_groups, *of_claims, *of_requests)

    def _with_requests(self, client: Client, snapshot: Snapshot) -> tuple[Snapshot, Sequence[str]]:
        """Return the snapshot with the EvictionRequests, of whatever pods, if runs ask responders; and notes."""
        if not self.run.requests:
            return snapshot, ()
        from rebalancer.kube.eviction_requests import list_requests  # noqa: PLC0415

        requests = list_requests(client)
        if requests is None:
            is_asked = any(of.spec.eviction_responders for of in snapshot.classes)
            return snapshot, (_NOT_SERVED,) if is_asked else ()
        return with_requests(snapshot, requests, self.run.rules.requests_count_for), ()

    def _with_namespaces(self, client: Client, run: RunContext) -> tuple[RunContext, Sequence[str]]:
        """Return the run with the policies of the namespaces that may have one, and notes on what is wrong with others."""
        policy = run.loaded.policy
        if not policy.namespace_policies:
            return run, ()
        from rebalancer.kube.seldom_read import list_namespace_policies  # noqa: PLC0415

        narrowed, unused = {}, []
        for listed in list_namespace_policies(client):
            namespace = listed.metadata.namespace
            if not may_narrow(policy, namespace):
                continue
            read = read_namespace_policy(listed.text, namespace, policy, run.rules.registry)
            if read.policy is not None:
                narrowed[namespace] = read.policy
            if read.problems:
                unused.append((listed.metadata, read))
        notes = self._say_unused(client, run, unused)
        return replace(run, rules=replace(run.rules, narrowed=narrowed)), notes

    def _say_unused(
        self,
        client: Client,
        run: RunContext,
        unused: Sequence[tuple[ObjectMeta, ReadNamespacePolicy]],
    ) -> Sequence[str]:
        """Return notes on which policies of namespaces are not used, and why; if the run acts, say so by an Event there."""
        from rebalancer.kube.events import Subject, write_once  # noqa: PLC0415

        now, by = run.environment.clock.unix(), instance(run.environment)
        notes = []
        for of, read in unused[:_MAX_UNUSED]:
            held = (
                "the cluster's policy holds alone"
                if read.policy is None
                else "the rest of it holds"
            )
            note = f"not used in {of.namespace}, {held}: {read.describe()}"
            notes.append(note)
            subject = Subject("ConfigMap", of.namespace, of.name, of.uid)
            try:
                if run.acts:
                    write_once(
                        client, subject, note, version=of.resource_version, now=now, instance=by
                    )
            except ClusterReadError as error:
                notes.append(f"no Event says so there: {error}")
        if (more := len(unused) - _MAX_UNUSED) > 0:
            notes.append(f"not used, or not whole: policies of {more} more namespaces")
        return notes

    def _with_scheduler(self, client: Client) -> tuple[RunContext, Sequence[str]]:
        """Return the run with the scheduler's configuration, if the policy names a ConfigMap with it; and notes."""
        run, named = self.run, self.run.loaded.policy.scheduler.from_config
        if not isinstance(named, ConfigMapKey):
            return run, ()
        from rebalancer.kube.read import read_scheduler_config  # noqa: PLC0415

        configuration = read_scheduler_config(client, named)
        rules = run.rules.with_scheduler(configuration)
        return replace(run, rules=rules), list(not_followed(configuration))


_NOT_SERVED = (
    "the API server serves no EvictionRequests (lifecycle.k8s.io/v1alpha1): pods with responders are evicted,"
    " whatever method.evictionRequests says"
)
_MAX_UNUSED = 20
"""Unused policies of namespaces that a run reports, at most: each needs a request."""
_NO_POLICIES = (
    "a file holds no policies of namespaces (namespacePolicies): all pods go by this one alone"
)


@contextmanager
def open_source(
    run: RunContext, flags: ClusterFlags, connected: Callable[[], Client] | None = None
) -> Iterator[Source]:
    """Yield the snapshot file or the cluster. If the run acts and has a Lease, acquire it first.

    ``connected`` returns the client of a command of which the run is a part; None: one is made from ``flags``.

    Raises:
        ClusterReadError: the cluster is unreachable, or a right is missing.
        StoppedError: a signal came before anything was evicted.
    """
    if (path := flags.snapshot_path) is not None:
        yield Source(run, path)
        return
    environment = run.environment
    try:
        client = (
            flags.client(environment, run.stop)
            if connected is None
            else connected().until(run.stop)
        )
        with ExitStack() as at_end:
            usage = usage_of(run, client)
            taken, granted = None, run.granted
            if run.acts:
                granted |= require_rights(run, client, usage)
                taken = _take_lease(run, client, at_end)
            yield Source(run, client.server, client, taken, usage, granted=granted)
    except ClusterReadError:
        if environment.stop.is_set() and not environment.committed.is_set():
            raise StoppedError from None
        raise


def usage_of(run: RunContext, client: Client) -> UsageSource | None:
    """Return the source of measured usage; None if no strategy of the run's policy needs it."""
    if not run.rules.needs_usage:
        return None
    return usage_source(run.loaded.policy.usage, client, run.stop)


def usage_source(settings: UsageSettings, client: Client, stop: Stop) -> UsageSource:
    """Return the source of measured usage."""
    if settings.prometheus is None:
        from rebalancer.kube.metrics import MetricsApi  # noqa: PLC0415

        return MetricsApi(client)
    from rebalancer.kube.metrics import PrometheusSource  # noqa: PLC0415

    return PrometheusSource(settings.prometheus, stop)


def require_rights(
    run: RunContext, client: Client, usage: UsageSource | None, also: Iterable[AccessRule] = ()
) -> frozenset[AccessRule]:
    """Check all rights of a run that acts, and those in ``also``, except those known as granted; return what was checked.

    Raises:
        ForbiddenError: rights are missing; the message names all of them.
        ClusterReadError: no answer at all.
    """
    from rebalancer.kube.access import (  # noqa: PLC0415
        MARK_RULES,
        READ_RULES,
        SCALE_OUT_RULES,
        act_rules,
        config_map_rules,
        lease_rules,
        require,
    )
    from rebalancer.kube.eviction_requests import LIST_REQUESTS  # noqa: PLC0415
    from rebalancer.kube.seldom_read import BUFFER_RULES, NAMESPACE_POLICY_RULES  # noqa: PLC0415

    with run.timings.phase("access"):
        lease = () if run.state.lease is None else lease_rules(*run.state.lease)
        kept = [one for one in (run.state.memory, run.state.machine_state) if one is not None]
        maps = [rule for one in kept for rule in config_map_rules(*one)]
        marks = MARK_RULES if run.steers or run.closes else ()
        moves = act_rules(
            run.rules.namespace,
            restarts=run.restarts,
            requests=run.requests,
            writes_costs=run.writes_costs,
        )
        acts = (*moves, *marks, *_scheduler_rules(run), *run.rights)
        events = SCALE_OUT_RULES if run.rules.makes_room else ()
        buffers = BUFFER_RULES if run.loaded.policy.capacity.buffers else ()
        narrowed = NAMESPACE_POLICY_RULES if run.loaded.policy.namespace_policies else ()
        asked_for = LIST_REQUESTS if run.requests else ()
        more = (*events, *buffers, *narrowed, *asked_for, *(usage.rules if usage else ()))
        reads = (*READ_RULES, *more, *also)
        asked = [one for one in (*reads, *acts, *lease, *maps) if one not in run.granted]
        require(client, asked)
        return frozenset(asked)


def _scheduler_rules(run: RunContext) -> tuple[AccessRule, ...]:
    from rebalancer.kube.read import scheduler_rules  # noqa: PLC0415

    named = run.loaded.policy.scheduler.from_config
    return scheduler_rules(named) if isinstance(named, ConfigMapKey) else ()


def _take_lease(run: RunContext, client: Client, at_end: ExitStack) -> LeaseTaken | None:
    from rebalancer.kube.lease import Lease, LeaseTaken  # noqa: PLC0415

    if run.state.lease is None:
        return None
    clock = run.environment.clock.unix
    lease = Lease(
        client,
        *run.state.lease,
        identity=identity(run.environment),
        clock=clock,
    )
    taken = lease.acquire()
    if isinstance(taken, LeaseTaken):
        return taken
    run.stop.add(taken.explain_loss, final=True)
    at_end.callback(release, run.environment, taken)
    return None


@dataclass(frozen=True, slots=True)
class UnknownState:
    """Why the memory and the Lease of a release are not known."""

    why: str
    cause: str = ""
    """What several checks have in common: the error, or that there are several releases."""
    installed: bool = True
    """False: no release is installed."""

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.why, self.cause)))


def explain_several(memories: Sequence[tuple[str, str]]) -> UnknownState:
    """Return why nothing is known where there are several releases."""
    from rebalancer.kube.config_map import list_flags  # noqa: PLC0415

    known = "there are several releases, which do not know of each other (`sharedState` of the chart lets them)"
    return UnknownState("", f"{known}; choose with {list_flags(memories)}")


def find_state(state: StateFlags, client: Client) -> tuple[StateFlags, UnknownState | None]:
    """Return ``state`` with the memory and the Lease of the release in this cluster, where no flag names any.

    With it comes why they are not known; None if they are.
    """
    from rebalancer.kube.config_map import is_memory, lease_of, list_memories  # noqa: PLC0415

    if (named := state.memory) is not None:
        lease = lease_of(named) if is_memory(named) else None
        return replace(state, lease=state.lease or lease), None
    try:
        memories = list_memories(client)
    except ClusterReadError as error:
        return state, UnknownState("the release was not looked for", error.lines[0])
    if not memories:
        return state, UnknownState("no release is installed", installed=False)
    if len(memories) > 1:
        return state, explain_several(memories)
    (memory,) = memories
    return replace(state, memory=memory, lease=state.lease or lease_of(memory)), None


def release(environment: Environment, lease: AcquiredLease) -> None:
    """Release the Lease; print a warning if that failed."""
    if (warning := lease.release()) is not None:
        say(environment.err, f"rebalancer: {warning}")
