"""The actions of a run on machines, if strategies of its policy add or remove some; and the assessment of machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rebalancer.base.environment import collector_paused
from rebalancer.base.errors import ClusterReadError
from rebalancer.machines.capacity.announcements import (
    Announced,
    announcements,
    group_increases,
)
from rebalancer.machines.capacity.groups import Groups, known_nodes, size_of_cluster
from rebalancer.machines.capacity.packing import pending_pods
from rebalancer.machines.capacity.removal import removals
from rebalancer.machines.capacity.report import CapacityReport, find_missing
from rebalancer.machines.capacity.scale_in import NodeScaleIn, ScaleInMemory
from rebalancer.machines.capacity.scale_out import GroupScaleOut
from rebalancer.machines.capacity.scale_out_plan import ScaleOutInputs, ScaleOutPlan, plan_scale_out
from rebalancer.machines.capacity.scaling import (
    Scaler,
    ScalerContext,
    Scaling,
    scaling_strategies,
    suspension,
)
from rebalancer.machines.capacity.state import (
    GroupState,
    GroupStates,
    GroupStore,
    ScaleOutTimes,
)
from rebalancer.machines.reasons import RemovalCode
from rebalancer.plan.machines import MachineAct
from rebalancer.planner.draft import Draft
from rebalancer.planner.pins import find_pins
from rebalancer.planner.rules import History, RunRules
from rebalancer.policy.cluster import GroupBounds
from rebalancer.policy.model import Mode, Policy
from rebalancer.providers.contract import (
    ClusterProvider,
    Guarded,
    Machines,
    NodeGroup,
    Provider,
    within,
)
from rebalancer.providers.labelled import LabelledGroups
from rebalancer.registry import PlugIns, Registry
from rebalancer.run.context import RunContext, RunNotes, instance
from rebalancer.run.source import Reading
from rebalancer.run.tidying import conditions_of
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.autoscalers import autoscalers
from rebalancer.snapshot.buffers import place_chunks, with_buffers
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.marks import scale_ins, with_scale_ins
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.prices import node_prices
from rebalancer.snapshot.zones import closed_zones
from rebalancer.wire.marks import Phase

if TYPE_CHECKING:
    from rebalancer.kube.client import Client


NONE = "none"
"""The provider of policies that name none."""


def assess(
    rules: RunRules,
    history: History,
    snapshot: Snapshot,
    provider: str,
    machines: Machines,
    inputs: Callable[[Snapshot, Groups, Machines], ScaleOutInputs],
    with_asked: Callable[[NodeGroup, float], NodeGroup] = lambda group, _: group,
    unneeded: Collection[str] = (),
) -> CapacityReport:
    """Return the report on the machines; ``provider`` is the name of ``machines`` in the policy.

    ``with_asked``: returns a group with the size that was requested of it, at a time. ``unneeded``: uids of the nodes
    that could be removed at the previous look.

    A node that scale-in drains is judged as if it were schedulable. If it can no longer be removed, it is room for
    the pending pods.

    Raises:
        ProviderError: the provider cannot be queried.
    """
    settings = rules.loaded.policy.capacity
    if not settings.buffers:
        snapshot = replace(snapshot, buffers=None)
    read = [
        with_asked(within(group, settings.groups.get(group.name)), snapshot.captured_at)
        for group in machines.groups(known_nodes(snapshot))
    ]
    known_zones = {*snapshot.earlier_zones, *(zone for group in read for zone in group.zones)}
    snapshot = replace(snapshot, earlier_zones=tuple(sorted(known_zones)))
    snapshot = with_buffers(snapshot)
    groups = Groups(snapshot, read, settings.startup_taints)
    known = inputs(snapshot, groups, machines)
    profile = rules.scheduler_profile(snapshot)

    def scale_out(of: Snapshot) -> ScaleOutPlan:
        planned = rules.problem(of, history).snapshot
        prices = rules.loaded.policy.prices
        return plan_scale_out(planned, profile, groups, machines.template, settings, known, prices)

    plan, draining = scale_out(snapshot), _at(snapshot, Phase.LEAVING)
    back = with_scale_ins(snapshot, dict.fromkeys(np.flatnonzero(draining).tolist()))
    problem = rules.problem(place_chunks(back, plan.chunks(snapshot)), history)
    nodes = removals(
        problem,
        rules.settings(history),
        groups,
        settings,
        has_provider=provider != NONE,
        needed={**plan.needed, **_find_needed_again(problem.snapshot, profile, plan, draining)},
        draining=draining,
        unneeded=np.array([uid in unneeded for uid in snapshot.nodes.uid], bool),
        candidates=_select(rules.loaded.policy, snapshot),
        prices=node_prices(rules.loaded.policy.prices, problem.snapshot),
    )
    held = [one.node for one in nodes if one.code is RemovalCode.POD_STAYS]
    pins, draft = None, Draft(problem, rules.settings(history))
    if held:
        pins = find_pins(draft, held, node_prices(rules.loaded.policy.prices, problem.snapshot))
    returning = [one.node for one in nodes if draining[one.node] and not one.removable]
    if returning:
        plan = scale_out(with_scale_ins(snapshot, dict.fromkeys(returning)))
    return CapacityReport(
        snapshot=snapshot,
        provider=provider,
        groups=groups,
        autoscalers=tuple(autoscalers(snapshot)),
        nodes=tuple(nodes),
        scale_out=plan,
        inputs=known,
        pins=pins,
        missing=find_missing(draft),
    )


def _select(policy: Policy, snapshot: Snapshot) -> Bools | None:
    """Return the nodes (N,) that the policy's scale-in strategy selects; None for all."""
    for name, scales in scaling_strategies(policy):
        nodes = policy.strategies[name].select.nodes
        if scales == "in" and nodes is not None:
            return snapshot.nodes_matching(nodes)
    return None


def _at(snapshot: Snapshot, phase: Phase) -> Bools:
    """Return the nodes (N,) whose scale-in is in this phase."""
    at = np.zeros(len(snapshot.nodes), bool)
    at[[node for node, state in scale_ins(snapshot.nodes).items() if state.phase is phase]] = True
    return at


def _find_needed_again(
    snapshot: Snapshot, profile: SchedulerProfile, plan: ScaleOutPlan, draining: Bools
) -> dict[str, int]:
    """Return name of a draining node -> a pending pod that fits on no other node.

    In ``snapshot`` these nodes are schedulable.
    """
    stuck = {one.pod for one in plan.pods if one.node is None or one.group is not None}
    if not stuck or not draining.any():
        return {}
    return {
        one.node: one.pod
        for one in pending_pods(snapshot, profile)
        if one.pod in stuck and one.node is not None and draining[snapshot.nodes.index[one.node]]
    }


_SCALERS: Mapping[str, type[Scaler]] = {"in": NodeScaleIn, "out": GroupScaleOut}
"""``Params.scales`` of a strategy -> what acts for it."""


def open_provider(
    run: RunContext, providers: PlugIns[Provider], client: Client | None
) -> tuple[str, Machines]:
    """Return (name, open provider) for the provider that the policy names; ``client``: of the run's cluster, if any.

    Raises:
        ProviderError: a prerequisite is missing.
    """
    for name, options in run.loaded.policy.provider.items():
        provider = providers.load(name)
        text = json.dumps(options or {})
        params: Any = provider.Params.model_validate_json(text, by_alias=True, by_name=False)
        environ = run.environment.environ
        if isinstance(provider, ClusterProvider):
            return name, provider.open_in(params, environ, client)
        return name, provider.open(params, environ)
    return NONE, LabelledGroups()


@dataclass(slots=True)
class MachineMemory:
    """The memory of one process about machines, over its runs."""

    scale_in: ScaleInMemory = field(default_factory=ScaleInMemory)
    groups: Mapping[str, GroupState] | None = None
    """The state of each group; None: the stored states were not read yet."""
    announced: Announced = field(default_factory=Announced)
    """The state about which Events were written."""


def judge_machines(reading: Reading, *, asks: bool = True) -> tuple[CapacityReport, Sequence[str]]:
    """Return the report on machines without acting, including the back-offs of groups if they are stored; and notes.

    ``asks``: whether to query the provider; else groups come from labels.

    Raises:
        ProviderError: the provider cannot be queried.
        ClusterReadError: the stored state could not be read.
    """
    group_states, flaw = GroupStates(), None
    if (store := _store(reading)) is not None:
        group_states.earlier, flaw = store.load()
        group_states.times = _scale_out_times(reading.run.loaded.policy)
    report, _, notes = _assess(reading, MachineMemory(), group_states, asks=asks)
    return report, [*([] if flaw is None else [flaw]), *notes]


def _assess(
    reading: Reading, memory: MachineMemory, group_states: GroupStates, *, asks: bool = True
) -> tuple[CapacityReport, Machines, Sequence[str]]:
    run, providers = reading.run, Registry.installed().providers
    name: str = NONE
    machines: Machines = LabelledGroups()
    if asks:
        name, machines = open_provider(run, providers, reading.client)
    with collector_paused():
        report = assess(
            run.rules,
            reading.history,
            reading.snapshot,
            name,
            machines,
            group_states.inputs,
            group_states.with_asked,
            memory.scale_in.unneeded.keys(),
        )
    bounds = run.loaded.policy.capacity.groups
    unheld = explain_bounds(bounds, report.groups.groups) if asks else ()
    return report, machines, (*report.inputs.notes, *unheld)


def explain_bounds(bounds: Mapping[str, GroupBounds], groups: Sequence[NodeGroup]) -> Iterator[str]:
    """Yield which bounds of the policy do not apply, and why not; ``groups``: with the bounds that apply."""
    known = {group.name: group for group in groups}
    for name, of in sorted(bounds.items()):
        group = known.get(name)
        if group is None:
            yield f"capacity.groups.{name}: the provider has no such group"
        elif not group.is_sized:
            yield f"capacity.groups.{name}: the sizes of the group are not known, so that nothing is changed"
        else:
            for key, asked, holds in (
                ("min", of.min, group.minimum),
                ("max", of.max, group.maximum),
            ):
                if asked not in (None, holds):
                    yield f"capacity.groups.{name}.{key} is {asked}, and {holds} holds: the provider refuses more than its own sizes"


def scaling_of(memory: MachineMemory, reading: Reading, notes: RunNotes) -> Scaling | None:
    """Return what the run does to machines; see :class:`rebalancer.machines.capacity.MachineScaler`."""
    if not any(scaling_strategies(reading.run.loaded.policy)):
        return None
    of_run = _MachinesOfRun(memory, reading, notes)
    return Scaling(list(of_run.scalers()), of_run.keep, stop=reading.run.stop)


class _MachinesOfRun:
    """The machines as one run has read them, and what outlasts the run."""

    def __init__(self, memory: MachineMemory, reading: Reading, notes: RunNotes) -> None:
        self._memory, self._reading, self._notes = memory, reading, notes
        self._run, self._policy = reading.run, reading.run.loaded.policy
        with reading.run.timings.phase("machines"):
            self._store = store = _store(reading)
            self._states = GroupStates(times=_scale_out_times(self._policy))
            if memory.groups is None:
                memory.groups, flaw = ({}, None) if store is None else store.load()
                memory.announced = Announced(groups=memory.groups)
                notes.add(flaw)
            self._states.earlier = memory.groups
            self._seen, self._machines, said = _assess(reading, memory, self._states)
            notes.add(*said)
            # What is noted from here on counts for the next run, also if this one fails.
            memory.groups = self._states.groups

    def scalers(self) -> Iterator[tuple[str, Scaler]]:
        """Yield each strategy that acts on machines, with what acts for it."""
        run, client, policy = self._run, self._reading.client, self._policy
        guarded = Guarded(
            self._machines,
            known_nodes(self._reading.snapshot),
            policy.capacity.groups,
            self._states.asked,
            _find_ending(self._reading.snapshot),
        )
        conditions = conditions_of(run, self._note_once)
        for name, scales in scaling_strategies(policy):
            asked = run.acts and policy.mode_of(name) is Mode.ENFORCE
            suspended = self._why_suspended(name, scales)
            if asked and suspended is not None and self._seen.autoscalers:
                self._notes.add(f"{name} does nothing to machines: {suspended}")
            dry = suspended is None and not run.acts
            context = ScalerContext(
                strategy=name,
                params=policy.strategies[name].params,
                report=self._seen,
                group_states=self._states,
                scale_in=self._memory.scale_in,
                guarded=guarded,
                client=client,
                now=self._server_time,
                by=instance(run.environment),
                release="/".join(run.state.lease or ()),
                stop=run.stop,
                keep_groups=self._keep_groups,
                suspended="a dry run changes nothing" if dry else suspended,
                dry=dry,
                warn=self._note_once,
                show=lambda node: None if client is None else conditions.show(client, node),
                gives_back=asked,
            )
            yield name, _SCALERS[scales](context)

    def _note_once(self, text: str) -> None:
        self._notes.add(None if text in self._notes else text)

    def _why_suspended(self, name: str, scales: str) -> str | None:
        """Return why a strategy only advises now; None if it may act, or would in a real run."""
        run, snapshot, seen = self._run, self._reading.snapshot, self._seen
        # Nodes that are not Ready, and pending pods in numbers, are what groups are increased for.
        skew = self._reading.clock_skew
        standstill = run.rules.standstill(
            snapshot, skew, self._reading.history, moves=scales != "out"
        )
        if scales != "out" and (closed := closed_zones(snapshot)):
            standstill.append(closed)
        whole = size_of_cluster(seen.snapshot, seen.groups)
        if scales == "out" and not whole.are_healthy:
            standstill.append(whole.unhealthy())
        return suspension(self._policy, name, seen, standstill)

    def _server_time(self) -> float:
        """Return the API server's time; for a snapshot file, the time of the file."""
        if self._reading.client is None:
            return self._reading.snapshot.captured_at
        return self._run.environment.clock.unix() + self._reading.clock_skew

    # -- what outlasts the run -----------------------------------------------------------------------

    def _keep_groups(self) -> None:
        if self._store is not None:
            self._store.keep(self._states.groups, always=True)

    def keep(self, acts: Sequence[MachineAct]) -> bool:
        """Store the states of groups after a run that acts, and write its Events; return whether they could be stored."""
        run, client, store, memory = self._run, self._reading.client, self._store, self._memory
        self._states.note_plan(self._seen.scale_out, self._seen.snapshot, group_increases(acts))
        earlier, memory.announced = memory.announced, Announced.of(self._seen, self._states.groups)
        if store is None or client is None or not run.acts:
            return True
        from rebalancer.kube.events import EventWriter, Subject  # noqa: PLC0415

        try:
            uid = store.keep(memory.announced.groups)
        except ClusterReadError as error:
            self._notes.add(f"the state of machines could not be stored: {error}")
            return False
        subject = Subject("ConfigMap", *(run.state.machine_state or ("", "")), uid)
        clock, by = run.environment.clock.unix, instance(run.environment)
        writer = EventWriter(client, clock=clock, instance=by)
        for one in announcements(earlier, memory.announced, self._seen, acts, subject):
            writer.announce(
                one.about, one.note, reason=one.reason, action=one.action, warning=one.warning
            )
        self._notes.add(writer.close())
        return True


def _scale_out_times(policy: Policy) -> ScaleOutTimes | None:
    for name, scales in scaling_strategies(policy):
        if scales == "out":
            return ScaleOutTimes.of(policy.strategies[name].params)
    return None


def _find_ending(snapshot: Snapshot) -> frozenset[str]:
    """Return the machines whose end was requested by an earlier run."""
    nodes = snapshot.nodes
    return frozenset(
        nodes.provider_id[node] or nodes.names[node]
        for node, state in scale_ins(nodes).items()
        if state.phase is Phase.ENDING
    )


def _store(reading: Reading) -> GroupStore | None:
    run, client = reading.run, reading.client
    if client is None or run.state.machine_state is None:
        return None
    from rebalancer.kube.config_map import ConfigMapStore  # noqa: PLC0415

    store = ConfigMapStore(client, *run.state.machine_state, advice="or leave out --machine-state")
    return GroupStore(store)
