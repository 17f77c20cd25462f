"""The rules that stay unmet, with their reasons: as planned, or after a run in the cluster that is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rebalancer.base.plain_text import count
from rebalancer.plan.outcome import Outcome
from rebalancer.plan.plan import Code, UnmetRule
from rebalancer.report.model import RunReport

_LANDED = "a pod that this run moved stands so where it landed: the next run plans with that"
_NEW = "it came up while the run acted: the next run looks at it"
_NOT_PLACED = "a replacement has no node yet"


@dataclass(frozen=True, slots=True)
class UnmetGroup:
    """Unmet rules of one strategy that stay so for the same reason."""

    strategy: str
    code: str
    """The reason of most of their pods."""
    why: str
    names: tuple[str, ...]
    """The rules in words, each with its workload or node, and other reasons of its pods."""
    rules: int

    @property
    def heading(self) -> str:
        """``topology-spread: 2 rules, Unsure``."""
        return (
            f"{self.strategy}: {count(self.rules, 'rule')}{f', {self.code}' if self.code else ''}"
        )


def rules_left(report: RunReport) -> tuple[UnmetRule, ...]:
    """Return the unmet rules that the end of the report is about, each with its reasons."""
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
    """Return a rule of the cluster that is there with why it stays: the outcome of its moves, or the plan's reason."""
    left = [one for one in outcomes if not one.status.may_have_evicted]
    if left:
        first = left[0]
        return replace(rule, codes={first.status.value: len(left)}, why=first.message)
    if (of_plan := planned.get(_key(rule))) is not None:
        return replace(rule, codes=of_plan.codes, why=of_plan.why)
    if any(one.landed is None and one.move.has_replacement for one in outcomes):
        return replace(rule, codes={Code.MOVED_NOW.value: 0}, why=_NOT_PLACED)
    code, why = (Code.MOVED_NOW, _LANDED) if outcomes else (Code.NOT_EXAMINED, _NEW)
    return replace(rule, codes={code.value: 0}, why=why)


def grouped(rules: Iterable[UnmetRule]) -> tuple[UnmetGroup, ...]:
    """Return the rules of one strategy with one reason together, most rules first."""
    alike: dict[tuple[str, str, str], list[UnmetRule]] = {}
    for rule in rules:
        code = next(iter(rule.codes), "")
        alike.setdefault((rule.strategy, code, rule.why), []).append(rule)
    groups = [
        UnmetGroup(*key, tuple(map(_named, of)), sum(rule.rules for rule in of))
        for key, of in alike.items()
    ]
    return tuple(sorted(groups, key=lambda one: (-one.rules, one.strategy, one.code, one.why)))


def _named(rule: UnmetRule) -> str:
    """Return a rule in words; where its pods stay for more than one reason, with these."""
    if len(rule.codes) < 2:
        return rule.rule
    return f"{rule.rule} ({', '.join(f'{pods} {code}' for code, pods in rule.codes.items())})"
