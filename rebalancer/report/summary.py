"""All that a report says, computed once for the forms that people read: each form only lays it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rebalancer.base.plain_text import count
from rebalancer.plan.plan import Code, Move, Score
from rebalancer.policy.model import Mode
from rebalancer.report import ending, skips, words
from rebalancer.report.advice import next_steps
from rebalancer.report.changes import Changes, left_of_plan
from rebalancer.report.model import RunReport

LEGEND: Mapping[str, str] = {
    "hard": "pods still to move for rules that the scheduler enforces",
    "soft": "pods still to move for preferences, by weight",
    "imbalance": "how unevenly nodes are filled (squared deviation)",
    "gain": "what a move takes off these",
    "cost": "how much an eviction disturbs, 1 for an ordinary pod",
}
"""Words of a report -> what they mean."""


@dataclass(frozen=True, slots=True)
class RuleSummary:
    """What one strategy sees, before and as planned."""

    strategy: str
    observed: bool
    before: Score
    planned: Score

    @property
    def holds(self) -> bool:
        """Whether nothing was left to fix at first, nor is later."""
        return words.holds(self.before) and words.holds(self.planned)

    @property
    def unmet(self) -> str:
        """``3 -> 1``, ``holds`` or ``not judged``."""
        if self.planned.not_judged:
            return "not judged"
        was, will = self.before.violated, self.planned.violated
        return "holds" if not (was or will) else words.change(was, will)

    @property
    def amounts(self) -> tuple[tuple[str, str], ...]:
        """Entries of the cost that are not zero, as ``4 -> 1``, by name."""
        if self.holds:
            # The imbalance is never quite zero: without a rule that is unmet it is no concern.
            return ()
        pairs = zip(words.entries(self.before.cost), words.entries(self.planned.cost), strict=True)
        return tuple((name, words.change(a, b)) for (name, a), (_, b) in pairs if a or b)


@dataclass(frozen=True, slots=True)
class Stays:
    """Pods that stay for one reason code."""

    code: Code
    why: str
    groups: Sequence[skips.SkipGroup]

    @property
    def pods(self) -> int:
        """How many pods."""
        return skips.total(self.groups)


class Summary:
    """A report in words and numbers; ``changes`` are the numbers that its pictures show."""

    def __init__(self, report: RunReport) -> None:
        self.report = report
        self.changes = Changes(report)

    @cached_property
    def moves(self) -> Sequence[Move]:
        """The moves of the plan; in a dry run of a reviewed one, those that are left of it."""
        if not self.report.dry_run:
            return self.report.plan.moves
        return [outcome.move for outcome in left_of_plan(self.report)]

    @cached_property
    def headline(self) -> str:
        """What, how many evictions, and how few could do, in one sentence."""
        report, moves = self.report, self.moves
        if report.standstill:
            return ending.ending(report)
        if not moves:
            return report.plan.stopped
        if report.dry_run:
            return f"{self._planned}{self._mended}{self._bound}."
        evicted = sum(1 for outcome in report.outcomes if outcome.status.is_carried_out)
        done = "moved" if ending.restarts(moves) else "evicted"
        line = f"{count(evicted, 'pod')} {done} of {len(moves):,} planned"
        return f"{line}{self._mended}{self._bound}."

    @property
    def _planned(self) -> str:
        moves = self.moves
        observed = sum(move.observed for move in moves)
        restarts = ending.restarts(moves)
        line = count(len(moves), "move" if restarts else "eviction")
        if restarts:
            line += f" ({restarts:,} by restart)"
        if observed:
            line += f" ({observed:,} observed only)"
        waves = max(move.wave for move in moves)
        return f"{line} in {waves} waves" if waves > 1 else line

    @property
    def _mended(self) -> str:
        if emptied := self._emptied:
            return f" to empty {count(emptied, 'node')}"
        was = sum(rule.before.violated for rule in self.rules)
        will = sum(rule.planned.violated for rule in self.rules)
        if was > will:
            least = "all" if not will else f"{was - will:,}"
            return f" to fix {least} of {count(was, 'unmet rule')}"
        pairs = [(rule.before.cost, rule.planned.cost) for rule in self.rules]
        if any(before.hard + before.soft > cost.hard + cost.soft for before, cost in pairs):
            return f" to fix a part of {count(was, 'unmet rule')}"
        evened = any(before.imbalance > cost.imbalance for before, cost in pairs)
        return " to even nodes out" if evened else ""

    @property
    def _emptied(self) -> int:
        """How many nodes lose their last pods, where all moves are for that."""
        of = {rule.strategy: rule for rule in self.rules if rule.before.nodes is not None}
        if any(move.strategy not in of for move in self.report.plan.moves):
            return 0
        counts = [(rule.before.nodes, rule.planned.nodes) for rule in of.values()]
        return sum(was.holding - will.holding for was, will in counts if was and will)

    @property
    def _bound(self) -> str:
        bound, moves = self.report.plan.lower_bound, len(self.moves)
        return f"; {words.bound_words(bound, moves)}" if bound else ""

    @cached_property
    def rules(self) -> tuple[RuleSummary, ...]:
        """The strategies, those with unmet rules first."""
        plan, policy = self.report.plan, self.report.loaded.policy
        rules = [
            RuleSummary(
                name,
                policy.mode_of(name) is Mode.OBSERVE,
                was,
                plan.after.get(name, was),
            )
            for name, was in plan.before.items()
        ]
        return tuple(sorted(rules, key=lambda rule: (rule.holds, rule.strategy)))

    @cached_property
    def impossible(self) -> tuple[str, ...]:
        """Rules that cannot hold, in words."""
        return tuple(text for rule in self.rules for text in rule.planned.unsatisfiable)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """How few nodes hold pods, for each strategy that empties nodes."""
        lines = [
            (rule.strategy, words.nodes_words(rule.before, rule.planned)) for rule in self.rules
        ]
        return tuple(f"{name}: {line}" for name, line in lines if line is not None)

    @cached_property
    def stays(self) -> tuple[Stays, ...]:
        """What stays and why, most pods first."""
        return tuple(
            Stays(code, skips.WHY_LEFT[code], groups)
            for code, groups in skips.grouped(self.report.plan.skips)
        )

    @cached_property
    def staying_pods(self) -> int:
        """How many pods stay although a rule would have them elsewhere."""
        return len({(skip.namespace, skip.pod) for skip in self.report.plan.skips})

    @cached_property
    def next_steps(self) -> tuple[str, ...]:
        """What the reader can do."""
        return next_steps(self.report)

    @property
    def closing(self) -> tuple[str, ...]:
        """The outcome of the moves, and why the run ends here, as far as the headline does not say it."""
        end = ending.ending(self.report)
        lines = (
            ending.done_line(self.report),
            None if end == self.headline else end,
            *map(ending.interruption_line, self.report.interruptions),
            *map(ending.act_line, self.report.machines),
        )
        return tuple(line for line in lines if line is not None)
