"""The command that ``drain`` and ``replace`` are: rounds that empty nodes with the planner and executor of every run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rebalancer.base.environment import Environment, Timings
from rebalancer.base.errors import (
    ClusterReadError,
    ExitCode,
    PolicyError,
    RebalancerError,
    StoppedError,
)
from rebalancer.base.plain_text import count
from rebalancer.core import INTERPRETED, is_compiled
from rebalancer.kube.client import Client
from rebalancer.machines.drain.cordon import Choice, as_cordoned, mask_of
from rebalancer.machines.drain.preflight import (
    STRATEGY,
    NodeCheck,
    ask_server,
    check,
    refuses,
    unforeseen,
    warn_of_outage,
    with_refusals,
    without_budgets,
)
from rebalancer.machines.drain.report import DrainReport
from rebalancer.machines.drain.triage import (
    Fate,
    Orders,
    Triaged,
    daemon_sets_on,
    fellows_elsewhere,
    triage_each,
    triage_pods,
)
from rebalancer.node_record.conditions import NodeConditions
from rebalancer.node_record.records import Order
from rebalancer.node_record.tasks import Course, carry_out
from rebalancer.plan.plan import Outcome, Status
from rebalancer.planner.gangs import unit_of
from rebalancer.planner.methods import with_methods
from rebalancer.planner.plan import Callbacks, plan
from rebalancer.planner.planning import Planned
from rebalancer.planner.rules import NO_HISTORY, RunRules
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Eagerness, Methods, Mode, Policy, Protect, StrategyPolicy
from rebalancer.policy.values import Limit, Params
from rebalancer.registry import Registry
from rebalancer.report.document import FORMS
from rebalancer.run.context import (
    RunContext,
    RunNotes,
    instance,
    name_in_marks,
    own_pod,
    refuse_flags,
    say_on,
)
from rebalancer.run.one_run import act, plan_run
from rebalancer.run.options import (
    ClusterFlags,
    Grouped,
    PolicyFlags,
    ProgressFlags,
    StateFlags,
    flag,
)
from rebalancer.run.source import Reading, Source, open_source
from rebalancer.snapshot.columns import Int32s, freeze
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import BY_GANG, BY_ROLLOUT, BY_UNIT, Scope, protect
from rebalancer.wire import objects as o
from rebalancer.wire.times import rfc3339

if TYPE_CHECKING:
    from rebalancer.kube.lease import LeaseTaken
    from rebalancer.kube.resources import AccessRule


_ALL = Limit.parse("100%")


def ordered_policy(
    loaded: LoadedPolicy, known: Mapping[str, type[Params]], nodes: Sequence[str]
) -> LoadedPolicy:
    """Return the policy for emptying ``nodes``: budgets, scheduler and safety of ``loaded``.

    Limits in flight, per owner and in total, apply. Limits per node, run and hour do not, because the user ordered
    the evictions. Windows are ignored. Pods on other nodes, which may have to make room, are protected and selected
    as in any run. Single replicas and pods that cannot be evicted are moved as in any run, too; grace periods
    are the command's.
    """
    given = loaded.policy
    everything: dict[str, Limit | None] = dict.fromkeys(("per_node", "per_run", "per_hour"), _ALL)
    everything |= dict.fromkeys(("per_namespace", "per_node_in_run"))
    params = known[STRATEGY].model_validate(
        {
            "nodes": list(nodes),
            "annotation": False,
            "drains": False,
            "taints": [],
            "conditions": [],
        }
    )
    policy = Policy(
        mode=Mode.ENFORCE,
        eagerness=Eagerness.RELENTLESS,
        budgets=given.budgets.model_copy(update=everything),
        select=given.select,
        protect=given.protect,
        method=Methods(
            single_replicas=given.method.single_replicas, unevictable=given.method.unevictable
        ),
        scheduler=given.scheduler,
        safety=given.safety,
        strategies={STRATEGY: StrategyPolicy(params=params)},
    )
    return replace(loaded, policy=policy)


class OrderedProtections:
    """The protections of a drain: on its nodes, all pods except those that its flags (``orders``) allow it to evict."""

    def __init__(self, nodes: Sequence[str], orders: Orders) -> None:
        self._nodes, self._orders = nodes, orders

    def __call__(self, snapshot: Snapshot, rules: Protect, scope: Scope) -> Int32s:
        """Return the protections (P,) as bits.

        Pods on other nodes are protected as in any run, except those that leave with a rollout or a gang.
        """
        bits = protect(snapshot, rules, scope).copy()
        # A rollout replaces all pods whatever the order says.
        with_gangs = BY_ROLLOUT if self._orders.evict_gangs else BY_UNIT
        for one in self.triage_pods(snapshot) + self.triage_fellows(snapshot):
            goes = (
                one.fate is Fate.EVICT
                and snapshot.classes[int(snapshot.pods.cls[one.pod])].owner >= 0
            )
            # What the order lets go goes with its gang, by the flags of the order on all of its nodes.
            bits[one.pod] = bits[one.pod] & with_gangs if goes else (bits[one.pod] or 1)
        return freeze(bits)

    def triage_fellows(self, snapshot: Snapshot) -> list[Triaged]:
        """Return the fate of each pod on another node that is moved together with pods on the nodes."""
        here, gangs = mask_of(snapshot, self._nodes), not self._orders.evict_gangs
        fellows = fellows_elsewhere(snapshot, here, gangs=gangs)
        return triage_each(snapshot, fellows, self._orders)

    def triage_pods(self, snapshot: Snapshot) -> list[Triaged]:
        """Return the fate of each pod on the nodes."""
        return triage_pods(snapshot, mask_of(snapshot, self._nodes), self._orders)


_NO_PODS = freeze(np.zeros(0, np.int32))


_ROUND = 600.0
"""Seconds for one round of planning and evicting; then the cluster is read again."""
_TURN = 5.0
"""Seconds between two attempts to take the Lease that another run has."""
_LONG = 300.0
"""Seconds after which the holder of the Lease is hardly a single run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyingOptions(Grouped):
    """The flags of both ``drain`` and ``replace``."""

    report_kind: ClassVar[str] = "DrainReport"

    policy: PolicyFlags = field(default_factory=PolicyFlags)
    cluster: ClusterFlags = field(default_factory=ClusterFlags)
    state: StateFlags = field(default_factory=StateFlags)
    progress: ProgressFlags = field(default_factory=ProgressFlags)
    dry_run: str = flag(
        "Only the pre-flight; 'server' also asks the API server about every eviction.",
        default="none",
        choices=("none", "client", "server"),
        shows_default=False,
    )
    force: bool = flag(
        "Also evict pods that nothing recreates: those without a controller, those of a DaemonSet that is gone, and pods that"
        " opted out by an annotation.",
        default=False,
    )
    delete_emptydir_data: bool = flag(
        "Also evict pods whose emptyDir would be lost.", default=False
    )
    ignore_daemonsets: bool = flag("Leave the pods of DaemonSets alone.", default=False)
    without_landing: bool = flag(
        "Also evict pods for which no landing is foreseen: their replacements may stay Pending, as after kubectl drain. Without"
        " it such a pod refuses the whole order.",
        default=False,
    )
    evict_batch: bool = flag(
        "Evict pods whose work comes to an end once --wait-batch is over (0s: at once, as kubectl does).",
        default=False,
    )
    evict_gangs: bool = flag(
        "Evict pods of gangs (PodGroup, LeaderWorkerSet, JobSet ...) one by one, as kubectl does. Without it, all pods of a gang"
        " leave together, on other nodes too, or none: then the order is refused.",
        default=False,
    )
    wait_batch: float = flag(
        "How long to wait for pods whose work comes to an end (Jobs, restartPolicy other than Always), and until the results of"
        " finished ones are read; then give up.",
        default=21_600.0,
        metavar="DURATION",
        parse="duration",
    )
    grace_period: int = flag(
        "Time that each evicted pod has to end; -1: its own.",
        default=-1,
        least=-1,
        metavar="SECONDS",
    )
    timeout: float = flag(
        "Give up after this time, for all nodes together, with the wait for the Lease and the pre-flight: 90s, 5m; 0s: never.",
        default=0.0,
        metavar="DURATION",
        parse="duration",
    )
    skip_wait_for_delete_timeout: int = flag(
        "Do not wait for pods whose deletion is longer overdue, as on a node whose kubelet is gone; 0: wait for every one.",
        default=0,
        least=0,
        metavar="SECONDS",
    )
    reason: str = flag("Why; written on the nodes.", default="", metavar="TEXT")
    node_conditions: bool = flag(
        "Set the conditions DrainInProgress, Drained and the like on the nodes, as the policy's nodeConditions does. Needs patch"
        " on nodes/status; without it a warning is given.",
        default=False,
    )
    exclude_from_load_balancers: bool = flag(
        "Label the nodes node.kubernetes.io/exclude-from-external-load-balancers with the cordon, so that load balancers send"
        " nothing more through them; the label is taken back with it.",
        default=False,
    )
    output: str = flag(
        "Form of the report.",
        "-o",
        "--output",
        default="table",
        choices=FORMS,
    )

    @property
    def dry(self) -> bool:
        """Whether this is a dry run."""
        return self.dry_run != "none" or self.cluster.snapshot_path is not None

    def orders(self, pod_selector: o.LabelSelector | None, own: tuple[str, str] | None) -> Orders:
        """Return the orders about single pods; ``own``: namespace and name of the pod that this process lives in."""
        return Orders(
            skip_wait_for_delete=float(self.skip_wait_for_delete_timeout),
            force=self.force,
            delete_emptydir_data=self.delete_emptydir_data,
            ignore_daemonsets=self.ignore_daemonsets,
            pod_selector=pod_selector,
            # Else once that time is over.
            evict_batch=self.evict_batch and self.wait_batch <= 0,
            evict_gangs=self.evict_gangs,
            own_pod="/".join(own) if own else None,
        )


@dataclass
class NodeCommand:
    """A user's command to empty nodes: its orders, and its course from the pre-flight to the report.

    What is done in between differs: nodes are drained, or replaced one after the other. Pods leave in rounds of the
    planner and the executor of every run.
    """

    options: EmptyingOptions
    orders: Orders
    base: RunContext
    """Of the whole command; every round is a copy of it, with a time and a policy of its own."""
    notes: list[str]
    """What the report says beside the pods, so far: a command acts for hours, in rounds and courses."""
    granted: frozenset[AccessRule] = frozenset()
    """Rights that were checked and are granted."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """Uid -> the outcome of the last attempt to evict the pod."""
    ordered: frozenset[str] = frozenset()
    """All nodes of the order, once they are chosen."""
    waited_for: tuple[str, bool] | None = None
    """The last holder of the Lease that was reported, and whether it had held it for long; None: it was free at once."""

    @classmethod
    def of(
        cls,
        options: EmptyingOptions,
        environment: Environment,
        pod_selector: o.LabelSelector | None = None,
    ) -> NodeCommand:
        """Return the command of these flags; ``pod_selector``: of the pods that are to leave; None: all.

        Raises:
            PolicyError: a flag or the policy is invalid.
        """
        if options.dry_run == "server" and options.cluster.snapshot_path is not None:
            raise PolicyError(
                ["--dry-run=server asks the API server; leave it out with a snapshot file"]
            )
        refuse_flags(options.policy, options.cluster, options.state)
        registry = Registry.installed()
        loaded = options.policy.load(registry)
        # From here on: the Lease may be held by others for long, and the pre-flight reads all.
        stop = environment.until_signal().sooner(options.timeout or math.inf, environment.stop)
        timings, progress = say_on(environment, options.progress)
        base = RunContext(
            # The nodes are named on the command line: that is the order, as with kubectl.
            acts=not options.dry,
            environment=environment,
            rules=RunRules(loaded, registry, Scope()),
            reviewed=None,
            state=options.state,
            stop=stop,
            name_in_marks=name_in_marks(options.state.lease, environment),
            timings=timings,
            progress=progress,
            # What is said of strategies is left out: these rounds have one of their own.
            notes=(*loaded.warnings, *([] if is_compiled() else [INTERPRETED])),
        )
        return cls(
            options=options,
            orders=options.orders(pod_selector, own_pod(environment)),
            base=base,
            notes=list(base.notes),
        )

    def note(self, *texts: str) -> None:
        """Add notes to the report, each once: a round may say again what an earlier one has said."""
        self.notes += [text for text in dict.fromkeys(texts) if text not in self.notes]

    def run_for(
        self, names: Sequence[str], policy: LoadedPolicy | None = None
    ) -> tuple[RunContext, OrderedProtections]:
        """Return a run that moves only pods off these nodes, and its protections.

        ``policy``: the policy of an earlier run, with configuration read from the cluster; None: the command's.
        """
        registry = Registry.installed()
        loaded = ordered_policy(policy or self.base.loaded, registry, names)
        protections = OrderedProtections(names, self.orders)
        from rebalancer.kube.access import DRAIN_RULES  # noqa: PLC0415

        run = replace(
            self.base,
            rules=RunRules(
                loaded,
                registry,
                Scope(),
                lifted=True,
                seconds=_ROUND,
                protections=protections,
                ordered=self.ordered,
            ),
            stop=self.base.stop.sooner(_ROUND, self.base.environment.stop),
            timings=Timings(self.base.environment.clock, shown=self.base.timings.shown),
            rights=DRAIN_RULES,
            granted=self.granted,
        )
        return run, protections

    @contextmanager
    def source(self, names: Sequence[str]) -> Iterator[Source]:
        """Yield the source of a run; wait if another run holds the Lease."""
        held = ""
        while True:
            run, _ = self.run_for(names)
            with ExitStack() as stack:
                try:
                    source = stack.enter_context(
                        open_source(run, self.options.cluster, lambda: self.client)
                    )
                except ClusterReadError:
                    if held and (why := self.base.stop.reason()) is not None:
                        raise self._end_of_wait(names, why, held) from None
                    raise
                self.granted = source.granted
                if source.lease_taken is None:
                    yield source
                    return
            held = self._wait_for(source.lease_taken)
            if (why := self.base.stop.wait(_TURN)) is not None:
                raise self._end_of_wait(names, why, held)

    def _end_of_wait(self, names: Sequence[str], why: str, held: str) -> RebalancerError:
        """Return the error that ends the wait for the Lease; ``names``: nodes that are emptied, none in the pre-flight."""
        if not names and self.base.environment.stop.is_set():
            return StoppedError()  # the pre-flight changes nothing
        return ClusterReadError(f"{why}, while {held}")

    def _wait_for(self, taken: LeaseTaken) -> str:
        """Report who holds the Lease, once per holder and again after a long time; return that text."""
        lease, until = "/".join(self.options.state.lease or ()), rfc3339(taken.expires_at)
        is_long = 0 < taken.since < self.base.environment.clock.unix() - _LONG
        held = f"{taken.holder} held the Lease {lease}"
        hint = ""
        if is_long:
            hint = f", since {rfc3339(taken.since)}; a serve keeps it until it ends"
        if self.waited_for != (taken.holder, is_long):
            self.waited_for = taken.holder, is_long
            said = f"waiting  for {taken.holder}, which holds the Lease {lease} until {until} unless renewed{hint}"
            self.base.progress.note("lease", said, holder=taken.holder, until=until)
        return held + hint

    # -- the whole ---------------------------------------------------------------------------------

    def carry_out(
        self,
        preflight: Preflight,
        course: Callable[[], Course[str | None]],
        left: str | None = None,
    ) -> ExitCode:
        """Carry the course out, unless the pre-flight refuses it or this is a dry run; report, and return the exit code.

        The course's result is None when done, else why not. ``left``: what is left undone in any case, in words.
        """
        refused = refuses(preflight.checks)
        if self.options.dry or refused:
            self.note(*[] if left is None else [left])
            return self._report(preflight, ExitCode.UNREADABLE if refused else ExitCode.DONE)
        self.base.environment.committed.set()
        why = carry_out(course(), self.base.stop) or left
        missing = [] if why is not None else self._find_missing(preflight.snapshot)
        self.note(*missing)
        done = why is None and not missing
        return self._report(preflight, ExitCode.DONE if done else ExitCode.PARTIAL, why)

    def _report(self, preflight: Preflight, code: ExitCode, why: str | None = None) -> ExitCode:
        report = DrainReport(
            source=preflight.source,
            dry_run=self.options.dry,
            snapshot=preflight.snapshot,
            checks=preflight.checks,
            exit_code=int(code),
            outcomes=self.outcomes,
            ended=why,
            warnings=self.notes,
            kind=self.options.report_kind,
        )
        report.document.print_to(self.base.environment, self.options.output)
        return code

    # -- before anything is changed ----------------------------------------------------------------

    def preflight(self, choice: Choice) -> Preflight:
        """Read the cluster and check the chosen nodes.

        Raises:
            RebalancerError: nothing was changed.
        """
        with self.source(()) as source:
            reading = source.read()
            run = reading.run
            names = self._choose(choice, reading.snapshot)
            self.ordered = frozenset(names)
            if source.client is not None:
                self._look_up_daemon_sets(source.client, reading.snapshot, names)
            snapshot = choice.expect(reading.snapshot)
            checks = self._checks(run, snapshot, names)
            self.note(*warn_of_outage(snapshot, names), *reading.notes)
            if self.options.dry_run == "server" and source.client is not None:
                checks = ask_server(source.client, snapshot, checks)
            return Preflight(source.name, snapshot, names, checks)

    def look(self) -> tuple[Snapshot, float]:
        """Return the state of the cluster, and the seconds by which its clock is ahead of ours.

        Raises:
            ClusterReadError: the cluster could not be read.
        """
        with self.source(()) as source:
            reading = source.read()
            self.note(*reading.notes)
            return reading.snapshot, reading.clock_skew

    def _choose(self, choice: Choice, snapshot: Snapshot) -> Sequence[str]:
        try:
            return choice.of(snapshot)
        except PolicyError:
            if choice.names or self.waited_for is None:
                raise
            # What had the Lease may have removed the nodes with these labels.
            return ()

    def _checks(self, run: RunContext, snapshot: Snapshot, names: Sequence[str]) -> list[NodeCheck]:
        """Return the checks of these nodes, emptied together; ``run`` has read them."""
        of_nodes, protections = self.run_for(names, run.loaded)
        snapshot = of_nodes.rules.with_zones(snapshot, NO_HISTORY)
        moved = with_methods(of_nodes.loaded.policy, snapshot)
        cordoned = as_cordoned(moved, mask_of(moved, names))
        problem = of_nodes.rules.problem(without_budgets(cordoned))
        room = plan(problem, of_nodes.rules.settings(), Callbacks()).plan
        checks = check(
            cordoned,
            names,
            protections.triage_pods(cordoned),
            room,
            without_landing=self.options.without_landing,
            together=(problem.protected & BY_GANG) != 0,
            fellows=protections.triage_fellows(cordoned),
        )
        return with_refusals(checks, problem, room.moves, ~mask_of(snapshot, names))

    def _look_up_daemon_sets(
        self, client: Client, snapshot: Snapshot, names: Sequence[str]
    ) -> None:
        from rebalancer.kube.node_pods import is_missing  # noqa: PLC0415

        named = sorted(daemon_sets_on(snapshot, mask_of(snapshot, names)))
        missing = frozenset(ref for ref in named if is_missing(client, *ref))
        self.orders = replace(self.orders, missing=missing)

    def evict_batch(self) -> None:
        """Stop waiting for batch work."""
        self.orders = replace(self.orders, evict_batch=True)

    # -- rounds ------------------------------------------------------------------------------------

    def evict(self, uids: Mapping[str, str]) -> str | None:
        """Plan and evict once; return what prevents progress, or None.

        ``uids``: name of each node -> its uid. If another Node has one of the names now, its pods are not touched.
        """
        names = list(uids)
        with self.source(names) as source:
            reading = source.read()
            self.note(*reading.notes)
            there = reading.snapshot.nodes
            if others := [
                n for n in names if n in there.index and there.uid[there.index[n]] != uids[n]
            ]:
                return f"another node has come under the name {others[0]}"
            planned, notes = plan_run(reading)
            self.note(*notes)
            if planned.standstill:
                return planned.standstill[0]
            if not planned.plan.moves:
                planned, why = self._without_plan(reading.run, planned, names)
                if why is not None:
                    return why
            return self._act(reading, planned)

    def _without_plan(
        self, run: RunContext, planned: Planned, names: Sequence[str]
    ) -> tuple[Planned, str | None]:
        """Return a plan for the pods that leave without a landing, or why none can leave now."""
        checks = self._checks(run, planned.snapshot, names)
        snapshot = with_methods(run.loaded.policy, planned.snapshot)
        moves = tuple(unforeseen(snapshot, checks))
        if moves:
            return replace(planned, plan=replace(planned.plan, moves=moves)), None
        said = [one.message for of in checks for one in of.pods if one.message]
        return planned, said[0] if said else planned.plan.stopped

    def _act(self, reading: Reading, planned: Planned) -> str | None:
        given, notes = self.options.grace_period, RunNotes()
        seconds = None if given < 0 else given
        try:
            execution = act(reading, planned, notes, ordered=True, grace=lambda _: seconds)
        finally:
            self.note(*notes)
        if execution is None:
            return None
        self.outcomes.update({outcome.move.uid: outcome for outcome in execution.outcomes})
        if execution.stopped is not None:
            return execution.stopped
        failed = [one for one in execution.outcomes if not one.status.may_have_evicted]
        return failed[0].message if failed else None

    def _find_missing(self, before: Snapshot) -> list[str]:
        """Return a sentence for each gang that has left and has fewer pods now than ``before``."""
        left = {
            outcome.move.gang
            for outcome in self.outcomes.values()
            if outcome.move.of_gang and outcome.move.landings and outcome.landed is None
            if outcome.status.may_have_evicted or outcome.status is Status.GONE
        }
        gangs = [gang for gang in before.gangs if unit_of(gang) in left]
        if not gangs:
            return []
        try:
            now, _ = self.look()
        except ClusterReadError as error:
            return [f"whether the gangs that left are back is not known: {error}"]
        living = now.pods.living
        missing = {gang: int(living[now.gangs.get(gang, _NO_PODS)].sum()) for gang in gangs}
        return [
            f"{gang[0]}: {there} of {count(len(before.gangs[gang]), 'pod')} of {gang[1]} have a node again"
            for gang, there in missing.items()
            if there < len(before.gangs[gang])
        ]

    # -- the nodes themselves ----------------------------------------------------------------------

    @cached_property
    def client(self) -> Client:
        """The client of the command; each round uses it until its own stop. Raises ClusterReadError without a cluster."""
        return self.options.cluster.client(self.base.environment, self.base.stop)

    @cached_property
    def conditions(self) -> NodeConditions:
        """The writer of the nodes' conditions."""
        on = self.options.node_conditions or self.base.loaded.policy.node_conditions
        return NodeConditions(on, self.base.environment.clock.unix, self.note)

    def order(self, *, replaces: bool = False) -> Order:
        """Return the record to write on nodes: the process that empties them, reason and deadline.

        ``replaces``: whether their machines are to be replaced then.
        """
        now, left = self.base.environment.clock.unix(), self.base.stop.seconds_left()
        return Order(
            by=instance(self.base.environment),
            why=self.options.reason or "ordered on the command line",
            at=rfc3339(now),
            until="" if left == float("inf") else rfc3339(now + left),
            replaces=replaces,
            excludes=self.options.exclude_from_load_balancers,
        )


@dataclass(frozen=True, slots=True)
class Preflight:
    """The result of checking the nodes before anything is changed."""

    source: str
    snapshot: Snapshot
    names: Sequence[str]
    checks: Sequence[NodeCheck]

    @property
    def uids(self) -> dict[str, str]:
        """Name of each node -> its uid; the order applies to these Nodes only."""
        nodes = self.snapshot.nodes
        return {name: nodes.uid[nodes.index[name]] for name in self.names}
