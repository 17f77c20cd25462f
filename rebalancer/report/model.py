"""The data of a report, independent of its form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from rebalancer.base.plain_text import count
from rebalancer.plan.deletion_costs import DeletionCosts
from rebalancer.plan.machines import InterruptedMachine, MachineAct
from rebalancer.plan.plan import Code, Outcome, Plan, Score, UnmetRule
from rebalancer.policy.load import LoadedPolicy
from rebalancer.report.zone_loss import ZoneReport, report_zones
from rebalancer.snapshot.labels import ZONE_KEYS
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope

if TYPE_CHECKING:
    from rebalancer.planner.planning import ClusterNow
    from rebalancer.report.plan_file import ReviewedPlan

_LANDED = "a pod that this run moved stands so where it landed: the next run plans with that"
_NEW = "it came up while the run acted: the next run looks at it"
_NOT_PLACED = "a replacement has no node yet"


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
    """Machines with an interruption: those that serve handles now, and those that it finished since its last run."""
    machines: tuple[MachineAct, ...] = ()
    """The acts on machines, in order; in a dry run, the planned ones."""
    deletion_costs: DeletionCosts | None = None
    """The costs written on pods so that scale-ins delete the right ones; None: the policy has no strategy for it."""
    asks: bool = False
    """Whether the question follows whether to carry the plan out."""
    read_again: ClusterNow | None = None
    """The cluster as the run has left it; None where nothing was tried, or it could not be read again."""
    scope: Scope = field(default_factory=Scope)
    """The pods that flags (-n, -l, --select) select."""

    @property
    def acted(self) -> bool:
        """Whether a pod was moved, or may have been moved."""
        return any(outcome.status.may_have_evicted for outcome in self.outcomes)

    @property
    def tried(self) -> tuple[Outcome, ...]:
        """The outcomes of the moves of a real run; empty if it stood still."""
        return () if self.dry_run or self.standstill else self.outcomes

    @cached_property
    def now(self) -> Mapping[str, Score] | None:
        """Strategy -> score of the cluster after the run; None if it was not read again."""
        if self.read_again is not None:
            return self.read_again.scores
        return None if self.acted else self.plan.before

    @cached_property
    def zones(self) -> ZoneReport:
        """The zones, and the losses with each: after the run, if the cluster was read again."""
        now = self.read_again
        return report_zones(self.snapshot if now is None else now.snapshot, self.scope)

    def domain_of(self, node: str) -> str | None:
        """Return the zone of a node; None if it has none, or is not in the snapshot."""
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


@dataclass(frozen=True, slots=True)
class UnmetGroup:
    """Unmet rules of one strategy with the same reason."""

    strategy: str
    code: str
    """The reason of most of their pods."""
    why: str
    names: tuple[str, ...]
    """The rules in words, each with its workload or node, and other reasons of its pods."""
    rules: int

    @property
    def heading(self) -> str:
        """The title of the group: ``topology-spread: 2 rules, Unsure``."""
        return (
            f"{self.strategy}: {count(self.rules, 'rule')}{f', {self.code}' if self.code else ''}"
        )


def rules_left(report: RunReport) -> tuple[UnmetRule, ...]:
    """Return the rules that are unmet at the end of the report, with their reasons."""
    plan = report.plan
    if report.read_again is None:
        return plan.unmet
    planned = {_key(rule): rule for rule in plan.unmet}
    by_owner: dict[str, list[Outcome]] = {}
    for outcome in report.outcomes:
        by_owner.setdefault(outcome.move.owner, []).append(outcome)
    return tuple(
        _with_reason(rule, planned, by_owner.get(rule.workload, ()))
        for rule in report.read_again.unmet
    )


def _key(rule: UnmetRule) -> tuple[str, str]:
    return rule.strategy, rule.workload or rule.rule


def _with_reason(
    rule: UnmetRule, planned: Mapping[tuple[str, str], UnmetRule], outcomes: Sequence[Outcome]
) -> UnmetRule:
    """Return an unmet rule with its reason: the outcome of its moves, else the reason in the plan."""
    left = [one for one in outcomes if not one.status.may_have_evicted and one.landed is None]
    if left:
        first = left[0]
        return replace(rule, codes={first.status.value: len(left)}, why=first.message)
    if (of_plan := planned.get(_key(rule))) is not None:
        return replace(rule, codes=of_plan.codes, why=of_plan.why)
    if any(one.landed is None and one.move.has_replacement for one in outcomes):
        return replace(rule, codes={Code.MOVED_NOW.value: 0}, why=_NOT_PLACED)
    code, why = (Code.MOVED_NOW, _LANDED) if outcomes else (Code.CAME_UP, _NEW)
    return replace(rule, codes={code.value: 0}, why=why)


def group_rules(rules: Iterable[UnmetRule]) -> tuple[UnmetGroup, ...]:
    """Group rules by strategy and reason, largest group first."""
    alike: dict[tuple[str, str, str], list[UnmetRule]] = {}
    for rule in rules:
        code = next(iter(rule.codes), "")
        alike.setdefault((rule.strategy, code, rule.why), []).append(rule)
    groups = [
        UnmetGroup(*key, tuple(map(_name_rule, of)), sum(rule.rules for rule in of))
        for key, of in alike.items()
    ]
    return tuple(sorted(groups, key=lambda one: (-one.rules, one.strategy, one.code, one.why)))


def _name_rule(rule: UnmetRule) -> str:
    """Return the text of a rule; if its pods have several reason codes, with these."""
    if len(rule.codes) < 2:
        return rule.rule
    return f"{rule.rule} ({', '.join(f'{pods} {code}' for code, pods in rule.codes.items())})"
