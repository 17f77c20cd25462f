"""The content of a report, computed once; the forms for people only lay it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rebalancer.base.plain_text import and_more, count
from rebalancer.plan.plan import Code, Cost, Move, Outcome, Score, Status, UnmetRule
from rebalancer.policy.model import Mode
from rebalancer.report import skips, words
from rebalancer.report.changes import NO_ZONE, Changes, WorkloadChange, select_outcomes
from rebalancer.report.model import RunReport, UnmetGroup, group_rules, rules_left
from rebalancer.report.skips import next_steps
from rebalancer.snapshot.labels import ZONE_KEYS

LEGEND: Mapping[str, str] = {
    "hard": "pods still to move for rules that the scheduler enforces",
    "soft": "pods still to move for preferences, by weight",
    "imbalance": "how unevenly nodes are filled (squared deviation)",
    "gain": "what a move takes off these",
    "cost": "how much an eviction disturbs, 1 for an ordinary pod",
}
"""Words of a report -> their meanings."""

ZONE_LOSSES = "Lost if a zone goes now"
"""The heading of the workloads that depend on a single zone."""

_WAITING = (Code.BUDGET, Code.NOT_EXAMINED)
"""Of pods that are candidates for the moves of further runs."""


@dataclass(frozen=True, slots=True)
class RuleSummary:
    """The scores of one strategy at each step of the report."""

    strategy: str
    observed: bool
    scores: tuple[Score | None, ...]
    """A score for each of ``Changes.steps``; None if the cluster was not scored again."""

    @property
    def before(self) -> Score:
        """The score before the first move."""
        first = self.scores[0]
        if first is None:
            raise ValueError("a plan has scores")
        return first

    @property
    def last(self) -> Score | None:
        """The score after the plan; after a real run, the score of the current cluster."""
        return self.scores[-1]

    @property
    def _known(self) -> list[Score]:
        return [score for score in self.scores if score is not None]

    @property
    def holds(self) -> bool:
        """Whether no rule is violated at any step."""
        return all(map(words.holds, self._known)) and self.last is not None

    @property
    def unmet(self) -> str:
        """The number of unmet rules over all steps as ``3 -> 1``; ``holds`` or ``not judged``."""
        cells = self.cells
        return cells[0] if len(set(cells)) == 1 else " -> ".join(cells)

    @property
    def cells(self) -> tuple[str, ...]:
        """The number of unmet rules at each step: ``3``, ``holds``, ``not judged``."""
        if self.holds:
            return ("holds",) * len(self.scores)
        return tuple(
            "not judged" if score is None or score.not_judged else words.number(score.violated)
            for score in self.scores
        )

    @property
    def amounts(self) -> tuple[tuple[str, str], ...]:
        """(name, ``4 -> 1``) for each entry of the cost that is not zero, from the first to the last step."""
        if self.holds:
            # The imbalance is never quite zero: without a rule that is unmet it is no concern.
            return ()
        ends = [self._known[0], self._known[-1]] if self.last is not None else self._known[:1]
        of = [dict(words.entries(score.cost)) for score in ends]
        return tuple(
            (name, words.steps_words([entries[name] for entries in of]))
            for name in of[0]
            if any(entries[name] for entries in of)
        )


@dataclass(frozen=True, slots=True)
class Stays:
    """Pods that are not moved for one reason code, or because their moves had one outcome."""

    code: str
    why: str
    groups: Sequence[skips.SkipGroup]

    @property
    def pods(self) -> int:
        """The number of pods."""
        return skips.total(self.groups)


_MAX_NAMED = 3
_SPREADING = frozenset({"topology-spread", "anti-affinity", "duplicates"})
"""The strategies of whose moves a zone with too few pods may be the reason."""


def _zone_sentence(
    workloads: Sequence[WorkloadChange], zones: Sequence[str], others: int, *, past: bool
) -> str:
    """Return a sentence on the zone with too few pods of most moved workloads, or, without such a zone, on all of these.

    ``others``: the number of other workloads that are uneven over zones, and are not moved.
    """
    gains: Counter[str] = Counter()
    empty: Counter[str] = Counter()
    losses: Counter[str] = Counter()
    for change in workloads:
        for zone, was, will in zip(change.domains, *change.counts[:2], strict=True):
            gains[zone] += will > was
            empty[zone] += will > was and not was
            losses[zone] += was > will
    zone, gaining = max(gains.items(), key=lambda item: (item[1], item[0]))
    losing = [name for name, number in losses.items() if number and name != zone]
    has, move = ("had", "moved") if past else ("has", "moves")
    if 2 * gaining <= len(workloads) or not losing:
        named = sum(name != NO_ZONE for name in zones)
        share = f"{len(workloads):,} of {count(len(workloads) + others, 'workload')}"
        stand, are = ("stood", "were") if past else ("stand", "are")
        return f"{share} that {stand} unevenly over {count(named, 'zone')} {are} moved."
    too_many = " and ".join(losing) if len(losing) == 2 else and_more(losing, _MAX_NAMED)
    few = "no pod" if empty[zone] == gaining else "too few pods"
    more = f"; {others:,} more that stand unevenly are not moved" if others else ""
    return (
        f"{zone} {has} {few} of {count(gaining, 'workload')} that this run {move},"
        f" and {too_many} too many{more}."
    )


def _is_open(outcome: Outcome) -> bool:
    """Return whether a pod has an open EvictionRequest, and nothing has replaced it yet."""
    return outcome.status is Status.REQUESTED and outcome.landed is None


def _uneven(rules: Sequence[UnmetRule]) -> set[str]:
    """Return the workloads of unmet rules over zones."""
    over = [f" over {key} " for key in ZONE_KEYS]
    return {one.workload for one in rules if one.workload and any(key in one.rule for key in over)}


def _hard(pairs: Sequence[tuple[Cost, Cost]]) -> str:
    """Return a sentence on the fall of the hard cost; empty if it does not fall. It may fall far although few rules are fixed completely."""
    before, after = (sum(pair[step].hard for pair in pairs) for step in range(2))
    return f" (hard {words.number(before)} -> {words.number(after)})" if before > after else ""


class Summary:
    """A report in words and numbers; ``changes`` has the numbers of its pictures."""

    def __init__(self, report: RunReport) -> None:
        self.report = report
        self.changes = Changes(report)

    @cached_property
    def moves(self) -> Sequence[Move]:
        """The moves of the plan; in a dry run of a reviewed plan, the moves that are still valid."""
        if not self.report.dry_run:
            return self.report.plan.moves
        return [outcome.move for outcome in select_outcomes(self.report)]

    @cached_property
    def headline(self) -> str:
        """The result in one sentence: kind of run, number of evictions, and the lower bound."""
        report, moves = self.report, self.moves
        if report.standstill:
            return words.ending(report)
        if not moves:
            return report.plan.stopped
        if report.dry_run:
            return f"{self._planned}{self._mended}{self._bound}."
        evicted = sum(1 for outcome in report.outcomes if outcome.status.is_carried_out)
        done = "moved" if words.list_other_methods(moves) else "evicted"
        if open_ := sum(1 for one in report.outcomes if _is_open(one)):
            done += f" or asked for ({open_:,} still there)"
        return f"{count(evicted, 'pod')} {done} of {len(moves):,} planned{self._fixed}."

    @property
    def zone_losses(self) -> Sequence[str]:
        """One line for each zone with a notable loss."""
        return [str(loss) for loss in self.report.zones.notable]

    @cached_property
    def why(self) -> str | None:
        """The purpose of the moves in one sentence; None if there are no moves."""
        changes, moves = self.changes, self.moves
        if not moves or len(changes.steps) == 1:
            return None
        by_zone = [change for change in changes.workloads if change.by == "zone"]
        spread = sum(self._spreads(move.strategy) for move in moves)
        if 2 * min(spread, sum(change.moves for change in by_zone)) >= len(moves):
            others = _uneven(self.unmet_rules) - {change.owner for change in by_zone}
            past = not self.report.dry_run
            return _zone_sentence(by_zone, changes.zones, len(others), past=past)
        by_strategy = Counter(move.strategy for move in moves)
        names = [f"{name} ({number:,})" for name, number in by_strategy.most_common()]
        workloads = count(len({move.owner for move in moves}), "workload")
        reason, number = Counter(move.reason for move in moves).most_common(1)[0]
        most = f": {reason}" if 2 * number > len(moves) > 1 else ""
        return f"The moves are of {workloads}, for {and_more(names, _MAX_NAMED)}{most}."

    def _spreads(self, strategy: str) -> bool:
        """Return whether a strategy spreads pods, so that zones may be the reason for moves."""
        policy = self.report.loaded.policy
        return strategy in policy.strategies and policy.strategy_of(strategy) in _SPREADING

    @property
    def _fixed(self) -> str:
        """A phrase on the rules that the run has fixed in the cluster."""
        scores = self.report.now
        if scores is None:
            return "; the cluster was not scored again"
        if emptied := self._emptied:
            return f", {count(emptied, 'node')} emptied"
        if not (was := self.unmet_before):
            return f": {count(now, 'rule')} unmet now" if (now := self.unmet_now) else ""
        pairs = [(rule.before, scores.get(rule.strategy, rule.before)) for rule in self.rules]
        fixed = sum(max(0, before.violated - then.violated) for before, then in pairs)
        more = sum(max(0, then.violated - before.violated) for before, then in pairs)
        others = f", {count(more, 'other')} unmet now" if more else ""
        return f": {fixed:,} of {count(was, 'unmet rule')} fixed{others}"

    @cached_property
    def unmet_before(self) -> int:
        """The number of unmet rules before the run."""
        return sum(rule.before.violated for rule in self.rules)

    @cached_property
    def unmet_planned(self) -> int:
        """The number of unmet rules if every move lands on its most probable node."""
        return sum(score.violated for score in self.report.plan.after.values())

    @cached_property
    def unmet_now(self) -> int | None:
        """The number of unmet rules in the cluster after the run; None if it was not read again."""
        now = self.report.now
        return None if now is None else sum(score.violated for score in now.values())

    @property
    def _planned(self) -> str:
        moves = self.moves
        observed = sum(move.observed for move in moves)
        others = words.list_other_methods(moves)
        line = count(len(moves), "move" if others else "eviction")
        for method, number in others:
            line += f" ({number:,} by {method})"
        if observed:
            line += f" ({observed:,} observed only)"
        waves = max(move.wave for move in moves)
        return f"{line} in {waves} waves" if waves > 1 else line

    @property
    def _mended(self) -> str:
        if emptied := self._emptied:
            return f" to empty {count(emptied, 'node')}"
        was, will = self.unmet_before, self.unmet_planned
        after = self.report.plan.after
        pairs = [
            (rule.before.cost, after.get(rule.strategy, rule.before).cost) for rule in self.rules
        ]
        if was > will:
            least = "all" if not will else f"{was - will:,}"
            return f" to fix {least} of {count(was, 'unmet rule')}{_hard(pairs) if will else ''}"
        if any(before.hard + before.soft > cost.hard + cost.soft for before, cost in pairs):
            return f" to fix a part of {count(was, 'unmet rule')}{_hard(pairs)}"
        evened = any(before.imbalance > cost.imbalance for before, cost in pairs)
        return " to even nodes out" if evened else ""

    @property
    def _emptied(self) -> int:
        """The number of nodes that become empty; 0 unless all moves serve that purpose."""
        of = {rule.strategy: rule for rule in self.rules if rule.before.nodes is not None}
        if any(move.strategy not in of for move in self.report.plan.moves):
            return 0
        counts = [
            (rule.before.nodes, rule.last.nodes) for rule in of.values() if rule.last is not None
        ]
        return sum(was.holding - then.holding for was, then in counts if was and then)

    @property
    def _bound(self) -> str:
        bound = self.report.plan.lower_bound
        # A bound above the moves counts those of further runs, of which the end of the plan speaks.
        if not bound or bound > len(self.moves):
            return ""
        return f"; it cannot be done with fewer than {bound:,}"

    @cached_property
    def rules(self) -> tuple[RuleSummary, ...]:
        """The summary of each strategy, those with unmet rules first."""
        plan, policy, now = self.report.plan, self.report.loaded.policy, self.report.now
        rules = []
        for name, was in plan.before.items():
            by_name = {
                "As planned": plan.after.get(name, was),
                "Before": was,
                "Now": None if now is None else now.get(name),
            }
            scores = tuple(by_name[step] for step in self.changes.names)
            rules.append(RuleSummary(name, policy.mode_of(name) is Mode.OBSERVE, scores))
        return tuple(sorted(rules, key=lambda rule: (rule.holds, rule.strategy)))

    @property
    def unmet_columns(self) -> tuple[str, ...]:
        """Column headers for :meth:`unmet_cells`: one for a plan, one per step after a real run."""
        return ("Before", "Planned", "Now") if len(self.changes.steps) > 2 else ("Unmet",)

    def unmet_cells(self, rule: RuleSummary) -> tuple[str, ...]:
        """Return the numbers of unmet rules of a strategy, one text per column of :attr:`unmet_columns`."""
        return rule.cells if len(self.unmet_columns) > 1 else (rule.unmet,)

    @cached_property
    def impossible(self) -> tuple[str, ...]:
        """Rules that cannot be satisfied, as sentences."""
        return tuple(
            text for rule in self.rules if rule.last is not None for text in rule.last.unsatisfiable
        )

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """For each strategy that empties nodes, a sentence on the number of nodes that need to have pods."""
        lines = [
            (rule.strategy, words.nodes_words(rule.before, rule.last))
            for rule in self.rules
            if rule.last is not None
        ]
        return tuple(f"{name}: {line}" for name, line in lines if line is not None)

    @cached_property
    def unmet(self) -> tuple[UnmetGroup, ...]:
        """The rules that remain unmet, grouped, largest group first; see :attr:`unmet_rules`."""
        return group_rules(self.unmet_rules)

    @property
    def unmet_heading(self) -> str:
        """The title for :attr:`unmet`: ``Unmet as planned: 2 rules``."""
        rules = count(sum(group.rules for group in self.unmet), "rule")
        if self.changes.names[-1] == "As planned":
            return f"Unmet after these moves: {rules}"
        known = self.report.read_again is not None or not self.report.acted
        return f"Unmet now: {rules}" if known else f"Unmet as planned: {rules}"

    @cached_property
    def unmet_rules(self) -> tuple[UnmetRule, ...]:
        """The rules that remain unmet: as planned, or after a real run in the current cluster."""
        return rules_left(self.report)

    @cached_property
    def stays(self) -> tuple[Stays, ...]:
        """Pods that are not moved, grouped by reason, most pods first; includes moves that were planned and not made."""
        return (
            *(Stays(status.value, why, groups) for status, why, groups in self._not_moved()),
            *(
                Stays(code.value, self._why_left(code, skips.total(groups)), groups)
                for code, groups in skips.group_skips(self.report.plan.skips)
            ),
        )

    def _why_left(self, code: Code, pods: int) -> str:
        """Return the meaning of a code; if fewer moves than ``pods`` wait for later runs, also their number."""
        why, backlog = skips.WHY_LEFT[code], self.report.plan.backlog
        if code not in _WAITING or not 0 < backlog.moves < pods:
            return why
        least = "at least " if backlog.more else ""
        return f"{why}; what waits takes {least}{count(backlog.moves, 'move')} in further runs, if all of it can be fixed"

    def _not_moved(self) -> Iterator[tuple[Status, str, list[skips.SkipGroup]]]:
        """Yield (status, meaning, pods) for the planned moves that a run did not make."""
        if self.report.dry_run or self.report.standstill:
            return
        left = [one for one in self.report.outcomes if not one.status.may_have_evicted]
        for status in Status:
            by_message: dict[str, list[str]] = {}
            for one in left:
                if one.status is status and one.status is not Status.OBSERVED:
                    by_message.setdefault(one.message, []).append(one.move.ref)
            if by_message:
                groups = [skips.SkipGroup(text, tuple(pods)) for text, pods in by_message.items()]
                yield status, f"planned, and {words.PAST[status]}", groups

    @cached_property
    def staying_pods(self) -> int:
        """The number of pods that are not moved although a rule requires it."""
        refs = {f"{skip.namespace}/{skip.pod}" for skip in self.report.plan.skips}
        for _, _, groups in self._not_moved():
            refs.update(ref for group in groups for ref in group.pods)
        return len(refs)

    @cached_property
    def next_steps(self) -> tuple[str, ...]:
        """The recommended next steps."""
        return next_steps(self.report)

    @property
    def staying(self) -> str:
        """How many pods are not moved, with the verb."""
        stays = "stays" if self.staying_pods == 1 else "stay"
        return f"{count(self.staying_pods, 'pod')} {stays}"

    @property
    def total(self) -> str | None:
        """One line with the totals, for the end of a long report; None if no pod is to be moved."""
        report = self.report
        if not report.outcomes and not self.stays:
            return None
        if report.standstill:
            return f"Standing still: {count(len(report.outcomes), 'move')} not made."
        now = self.unmet_planned if report.dry_run else self.unmet_now
        unmet = (
            f"unmet rules {words.change(self.unmet_before, now)}"
            if now is not None
            else "not scored again"
        )
        left = f"{count(self.staying_pods, 'pod')} left that should move"
        if report.dry_run:
            return f"Plan: {count(len(self.moves), 'move')}; {unmet}; {left}."
        done = sum(1 for outcome in report.outcomes if outcome.status.is_carried_out)
        return f"Done: {done:,} of {count(len(self.moves), 'move')}; {unmet}; {left}."

    @property
    def closing(self) -> tuple[str, ...]:
        """The outcome of the moves, and why the run ended, unless the headline contains it already."""
        end = words.ending(self.report)
        lines = (
            words.describe_done(self.report),
            words.common_failure(self.report),
            None if end == self.headline else end,
            self.report.plan.elsewhere or None,
            self.report.plan.pinned or None,
            *map(words.interruption_line, self.report.interruptions),
            *map(words.act_line, self.report.machines),
            *(() if (costs := self.report.deletion_costs) is None else costs.lines),
        )
        return tuple(line for line in lines if line is not None)
