"""All that a run reports, before it takes a form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from rebalancer.plan.machines import MachineAct
from rebalancer.plan.outcome import Outcome
from rebalancer.plan.plan import Plan, Score
from rebalancer.policy.load import LoadedPolicy
from rebalancer.signals.model import InterruptedMachine
from rebalancer.snapshot.labels import ZONE_KEYS
from rebalancer.snapshot.model import Snapshot

if TYPE_CHECKING:
    from rebalancer.planner.planning import ClusterNow
    from rebalancer.report.plan_file import ReviewedPlan


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """One finished run."""

    dry_run: bool
    """Nothing was to be evicted: ``--dry-run``, a snapshot file, or a policy that only observes."""
    source: str
    """The API server's address, or the snapshot file."""
    snapshot: Snapshot
    loaded: LoadedPolicy
    plan: Plan
    outcomes: tuple[Outcome, ...]
    """One per move of the plan, in its order."""
    standstill: tuple[str, ...] = ()
    """Why the plan must not be executed on this cluster as it is."""
    reviewed: ReviewedPlan | None = None
    """The file that the plan was read from; None for a run that made its plan itself."""
    cut: str | None = None
    """Why the run ended before the plan did."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Phase -> seconds, in order; the only part that differs between two runs on equal input."""
    warnings: tuple[str, ...] = ()
    exit_code: int = 0
    interruptions: tuple[InterruptedMachine, ...] = ()
    """Machines that go: those that serve handles, and those that came to their end since its last run."""
    machines: tuple[MachineAct, ...] = ()
    """What was done to machines, in order, or would be."""
    read_again: ClusterNow | None = None
    """The cluster as the run has left it; None where nothing was tried, or it could not be read again."""

    @property
    def acted(self) -> bool:
        """Whether a pod was moved, or may have been."""
        return any(outcome.status.may_have_evicted for outcome in self.outcomes)

    @property
    def tried(self) -> tuple[Outcome, ...]:
        """The outcomes of a run that was to act; none where it stood still."""
        return () if self.dry_run or self.standstill else self.outcomes

    @cached_property
    def now(self) -> Mapping[str, Score] | None:
        """Strategy -> what it sees in the cluster that is there; None where that is not known."""
        if self.read_again is not None:
            return self.read_again.scores
        return None if self.acted else self.plan.before

    def domain_of(self, node: str) -> str | None:
        """Return the zone of a node, None if it has none, or is not in the snapshot."""
        joined = () if self.read_again is None else (self.read_again.snapshot,)
        for snapshot in (self.snapshot, *joined):
            nodes = snapshot.nodes
            if (index := nodes.index.get(node)) is None:
                continue
            for key in ZONE_KEYS:
                value = int(nodes.labels.column(key)[index])
                if value >= 0:
                    return nodes.labels.values(key)[value]
        return None
