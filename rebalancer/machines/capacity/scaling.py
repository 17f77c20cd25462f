"""The only place where a run acts on machines: before it plans, and after it has moved pods.

Each strategy of the policy that ``scales`` (``rebalancer.policy.values.Params``) is a :class:`Scaler` here. All
scalers use one assessment of the machines, made before the plan. Only a resident process acts on them (``serve``):
it remembers since when nodes are unneeded. What must outlast it is stored on the nodes that it has closed, at the
provider, and in the ConfigMap of ``--machine-state``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rebalancer.base.errors import ClusterReadError, ProviderError
from rebalancer.base.stop import Stop
from rebalancer.machines.capacity.report import CapacityReport
from rebalancer.machines.capacity.state import GroupStates
from rebalancer.node_record.tasks import Course, carry_out
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.policy.cluster import Beside
from rebalancer.policy.model import Mode, Policy
from rebalancer.providers.contract import Guarded
from rebalancer.snapshot.model import Snapshot

if TYPE_CHECKING:
    from rebalancer.kube.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerContext:
    """The input of a scaler."""

    strategy: str
    """The strategy's name in the policy."""
    params: Any
    """The strategy's options."""
    report: CapacityReport
    group_states: GroupStates
    """The state of each group; changes by the scaler are kept for later runs."""
    scale_in: Any
    """The memory of scale-in (``rebalancer.machines.capacity.scale_in.ScaleInMemory``)."""
    guarded: Guarded
    client: Client | None
    """None without a cluster; ``suspended`` is set then, too."""
    now: Callable[[], float]
    """Returns the API server's time in Unix seconds."""
    by: str
    """This process, as it is written on nodes."""
    release: str
    """Namespace and name of the Lease held by the run, as written on nodes; empty without one."""
    stop: Stop
    keep_groups: Callable[[], None]
    """Keeps ``group_states`` for later runs before something is requested; raises ClusterReadError."""
    suspended: str | None
    """Why nothing is changed, in words; None where the scaler acts."""
    dry: bool = False
    """Whether that is because of a dry run only, whose plan is that of a run."""
    warn: Callable[[str], None] = lambda _: None
    """Adds a sentence to the report."""
    show: Callable[[str], None] = lambda _: None
    """Sets the conditions of the named node according to its record."""
    gives_back: bool = False
    """Whether nodes may be opened again even if the scaler is suspended: returning capacity removes none."""


class Scaler:
    """Acts on machines for one strategy. The process may be killed after each act.

    If ``ScalerContext.suspended`` gives a reason, only changes that restore capacity are made, and other acts are
    ``planned``.
    """

    def __init__(self, context: ScalerContext) -> None:
        self._context = context

    @property
    def awaits_end(self) -> bool:
        """Whether some node may become empty after the plan."""
        return False

    def before(self) -> Iterable[MachineAct]:
        """Yield each act before the plan once it is done; raises ClusterReadError, ProviderError."""
        return ()

    def with_acts(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot changed by the acts before the plan."""
        return snapshot

    def after(self) -> Iterable[MachineAct]:
        """Yield each act after the moves once it is done; raises ClusterReadError, ProviderError."""
        return ()


@dataclass(slots=True)
class Scaling:
    """All acts of one run on machines."""

    scalers: Sequence[tuple[str, Scaler]]
    """Each with the strategy's name in the policy, in the order in which they act."""
    keep: Callable[[Sequence[MachineAct]], bool]
    """Stores the states for later runs, and writes Events about the acts; returns whether it could."""
    stop: Stop
    """Once it comes, as when the Lease is lost, nothing more is done: another process acts."""
    acts: list[MachineAct] = field(default_factory=list)
    """The acts so far."""
    kept: bool = True

    @property
    def awaits_end(self) -> bool:
        """Whether something remains to be done after the moves."""
        return any(one.awaits_end for _, one in self.scalers)

    @property
    def failed(self) -> bool:
        """Whether an act failed."""
        return not self.kept or any(act.status is ActStatus.FAILED for act in self.acts)

    def before(self) -> None:
        """Act before the plan."""
        for name, scaler in self.scalers:
            self._each(name, scaler.before())

    def with_acts(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot as it is after the acts before the plan. In a dry run these are the acts that a real run would do."""
        for _, scaler in self.scalers:
            snapshot = scaler.with_acts(snapshot)
        return snapshot

    def after(self) -> None:
        """Act after the moves, and store all results."""
        for name, scaler in self.scalers:
            self._each(name, scaler.after())
        self.kept = self.keep(self.acts)

    def _record(self, acts: Iterable[MachineAct]) -> Course[None]:
        each = iter(acts)
        while (yield 0.0) is None and (act := next(each, None)) is not None:
            self.acts.append(act)

    def _each(self, name: str, acts: Iterable[MachineAct]) -> None:
        """Carry out the acts of one scaler. If it fails, pods are still moved and other scalers still act."""
        try:
            carry_out(self._record(acts), self.stop)
        except (ClusterReadError, ProviderError) as error:
            self.acts.append(
                MachineAct(
                    strategy=name,
                    code="Failed",
                    status=ActStatus.FAILED,
                    group="",
                    message=str(error),
                )
            )


def scaling_strategies(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield (strategy, ``in`` or ``out``) for strategies that act on machines, ``out`` first."""
    named = [
        (name, scales)
        for name, strategy in sorted(policy.strategies.items())
        if (scales := strategy.params.scales) is not None and policy.mode_of(name) is not Mode.OFF
    ]
    yield from sorted(named, key=lambda one: one[1] != "out")


def suspension(
    policy: Policy, strategy: str, report: CapacityReport, standstill: Sequence[str]
) -> str | None:
    """Return why a strategy only advises now; None if it may act. ``standstill``: why no pod may be moved."""
    if policy.mode_of(strategy) is Mode.OBSERVE:
        return "it only observes"
    if policy.capacity.beside_autoscaler is Beside.ADVISE and report.autoscalers:
        one = report.autoscalers[0]
        return f"{one.name} runs here ({one.sign}), so that this is advice beside it"
    if standstill:
        return f"standing still: {standstill[0]}"
    if not policy.allows(strategy, report.snapshot.captured_at):
        return "its window is closed"
    return None
