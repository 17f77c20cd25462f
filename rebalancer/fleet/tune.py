"""Search better values for keys of a policy on snapshots, and check the best policy on other snapshots.

The search is Optuna's (the tree-structured Parzen estimator for two objectives: evictions, and what is left); where the bounds
allow no more policies than may be tried, all are. Trials are asked for in batches of one size, so that the same policies are
tried whatever the number of workers. Each policy is played by the tasks and engines of a comparison, all with the same landings.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rebalancer.base.errors import PolicyError, import_extra
from rebalancer.fleet.compare import (
    Inputs,
    Reached,
    TaskJournal,
    list_tasks,
    open_journal,
    play_tasks,
)
from rebalancer.fleet.comparison import Comparison, PairVerdict, compare_rows
from rebalancer.fleet.engines import TaskEngine
from rebalancer.fleet.measures import BY_KEY, Measure, round_value
from rebalancer.fleet.task import Failure, Row, Rules, Task

if TYPE_CHECKING:
    import optuna

GIVEN, TUNED = "given", "tuned"
"""Names of the policy that was given, and of the recommended one."""

WEIGHTS = {"evictions": 0.5, "hardLeft": 10.0, "softLeft": 1.0}
"""What one of each measure counts in the total, unless the user says otherwise."""

_BATCH = 10
"""Trials that are asked for before one is judged: never the number of workers, which must make no difference."""
_SLACK = 1e-9
_TOTAL = Measure("total", "TOTAL", "total of what is left and of evictions", "less")
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)([A-Za-z%]*)\.\.(-?\d+(?:\.\d+)?)([A-Za-z%]*)", re.ASCII)

Settings = tuple[tuple[str, str], ...]
"""Keys of the policy file with values, as of ``--set``."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The values that one key of the policy may take."""

    key: str
    choices: tuple[str, ...] = ()
    """All of them; empty: the numbers from ``low`` to ``high``."""
    low: float = 0.0
    high: float = 0.0
    unit: str = ""
    whole: bool = True

    @classmethod
    def parse(cls, text: str) -> Bounds:
        """Parse ``KEY=LOW..HIGH`` or ``KEY=VALUE,VALUE``.

        Raises:
            PolicyError: it is neither.
        """
        key, _, values = text.partition("=")
        if key and (match := _RANGE.fullmatch(values)):
            low, unit, high, unit_of_high = match.groups()
            if unit_of_high != unit or float(low) >= float(high):
                raise PolicyError([f"--vary {text}: write both bounds with one unit, low to high"])
            return cls(key, (), float(low), float(high), unit, "." not in low + high)
        choices = tuple(dict.fromkeys(value.strip() for value in values.split(",")))
        if not key or len(choices) < 2 or not all(choices):
            raise PolicyError(
                [f"--vary {text}: write KEY=LOW..HIGH, such as budgets.perRun=5%..30%, or KEY=A,B"]
            )
        return cls(key, choices)

    @property
    def ends(self) -> tuple[str, ...]:
        """The lowest and the highest value of a range; all values of a list."""
        return self.choices or (self._text(self.low), self._text(self.high))

    @property
    def values(self) -> tuple[str, ...] | None:
        """All values; None for a continuous range."""
        if self.choices:
            return self.choices
        numbers = range(int(self.low), int(self.high) + 1)
        return tuple(map(self._text, numbers)) if self.whole else None

    def suggest(self, trial: optuna.Trial) -> str:
        """Return the value that a trial takes."""
        if self.choices:
            return str(trial.suggest_categorical(self.key, self.choices))
        if self.whole:
            return self._text(trial.suggest_int(self.key, int(self.low), int(self.high)))
        return self._text(trial.suggest_float(self.key, self.low, self.high))

    def parameter(self, value: str) -> str | int:
        """Convert one of ``values`` into the form that the search uses."""
        return value if self.choices else int(value.removesuffix(self.unit))

    def _text(self, number: float) -> str:
        return f"{int(number) if self.whole else float(f'{number:.3g}')}{self.unit}"


@dataclass(frozen=True, slots=True)
class Goal:
    """The objective of the search, which is minimised: evictions, and the weighted sum of the other measures."""

    weights: Mapping[str, float] = field(default_factory=lambda: WEIGHTS)
    """Measure -> what one of it counts."""

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Goal:
        """Return the default goal with the weights ``MEASURE=NUMBER``.

        Raises:
            PolicyError: a measure does not exist, or a weight is no number from 0 on.
        """
        weights = dict(WEIGHTS)
        for text in texts:
            key, _, number = text.partition("=")
            if key not in BY_KEY:
                raise PolicyError(
                    [f"--weigh {text}: there is no measure {key!r}, but {', '.join(BY_KEY)}"]
                )
            if not re.fullmatch(r"\d+(\.\d+)?", number, re.ASCII):
                raise PolicyError([f"--weigh {text}: write a number from 0 on: {key}=2.5"])
            weights[key] = float(number)
        return cls(weights)

    def remainder(self, measures: Mapping[str, float]) -> float:
        """Return the sum of all weighted measures but evictions."""
        return sum(
            (-weight if BY_KEY[key].more_is_better else weight) * measures[key]
            for key, weight in self.weights.items()
            if key != "evictions"
        )

    def total(self, measures: Mapping[str, float]) -> float:
        """Return the remainder plus the weighted evictions."""
        return self.remainder(measures) + self.weights["evictions"] * measures["evictions"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy that the search has tried, with its mean measures over all snapshots."""

    settings: Settings
    """What differs from the given policy."""
    evictions: float
    left: float
    total: float
    hard: float
    """Pods left to move for hard rules."""

    def dominates(self, other: Candidate) -> bool:
        """Whether this policy is better in evictions or in the remainder, and worse in neither."""
        return (
            self.evictions <= other.evictions
            and self.left <= other.left
            and (self.evictions, self.left) != (other.evictions, other.left)
        )


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a key was changed: the measures of the tuned policy if that key had the original value."""

    key: str
    value: str
    without: Candidate


@dataclass(frozen=True, slots=True)
class UnseenCheck:
    """Compares the original policy and the recommended one on snapshots that the search did not use."""

    total: PairVerdict
    """``given`` minus ``tuned``."""
    comparison: Comparison

    @property
    def result(self) -> str:
        """``confirmed``, ``not shown``, or ``not better``: the total is no smaller there."""
        if self.total.better == TUNED:
            return "confirmed"
        return "not shown" if self.total.difference.mean > 0 else "not better"


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result of a search."""

    given: Candidate
    tried: tuple[Candidate, ...]
    """All policies that were judged, without the given one, in the order of the search."""
    invalid: int
    """Settings that make no valid policy, or lack results."""
    best: Candidate | None
    """What the search recommends; None: nothing is better than the given policy."""
    reasons: tuple[Reason, ...]
    check: UnseenCheck | None
    searched: tuple[str, ...]
    """Snapshots of the search."""
    unseen: tuple[str, ...]
    failures: tuple[Failure, ...]
    played: int
    """Simulations."""

    @property
    def frontier(self) -> list[Candidate]:
        """The policies that no other policy dominates, in order of evictions."""
        every = {(one.evictions, one.left): one for one in reversed((self.given, *self.tried))}
        front = [one for one in every.values() if not any(o.dominates(one) for o in every.values())]
        return sorted(front, key=lambda one: one.evictions)

    @property
    def recommended(self) -> Candidate | None:
        """The best policy, if it is better on the unseen snapshots, too."""
        is_better = self.check is not None and self.check.result != "not better"
        return self.best if is_better else None


@dataclass(frozen=True, slots=True)
class Search:
    """The inputs of a search: keys and bounds, snapshots, and the number of trials."""

    space: tuple[Bounds, ...]
    goal: Goal
    inputs: Inputs
    """The given policy, and the snapshots of the search."""
    unseen: tuple[str, ...]
    trials: int


LoadRules = Callable[[Settings, str], Rules]
"""Returns the given policy with settings, under a name; raises PolicyError if that is no valid policy."""


def tune(
    search: Search,
    load: LoadRules,
    engine: TaskEngine,
    *,
    journal_path: str | None,
    reached: Reached,
) -> Tuning:
    """Search, recommend, and check the recommendation.

    Raises:
        PolicyError: a bound is no valid value, no snapshot could be played, or see :func:`list_tasks` and :func:`open_journal`.
    """
    _check_bounds(search.space, load)
    tasks = list_tasks(search.inputs)
    checks = list_tasks(replace(search.inputs, snapshots=search.unseen))
    context = nullcontext(None) if journal_path is None else open_journal(journal_path)
    with context as journal:
        player = _Player(load, engine, search, journal, reached)
        player.expected = (search.trials + 1) * len(tasks) + 2 * len(checks)
        trials = _Trials(player, tasks)
        given = trials.judge([()])[0]
        if given is None:
            raise PolicyError([f"no snapshot could be played: {player.first_error}"])
        _run_search(search, trials)
        best = trials.best(given)
        if best is not None:
            best = trials.simplify(best)
        reasons = () if best is None else tuple(trials.explain(best))
        check = None if best is None else _check(player, checks, best.settings)
    return Tuning(
        given=given,
        tried=tuple(one for at, one in trials.judged.items() if at and one is not None),
        invalid=sum(one is None for one in trials.judged.values()),
        best=best,
        reasons=reasons,
        check=check,
        searched=search.inputs.snapshots,
        unseen=search.unseen,
        failures=tuple(player.failures),
        played=player.played,
    )


def _check_bounds(space: Sequence[Bounds], load: LoadRules) -> None:
    """Load the policy with each end of all bounds.

    Raises:
        PolicyError: a key is there twice, or a value is none of its key.
    """
    keys = [bounds.key for bounds in space]
    if len(set(keys)) < len(keys):
        raise PolicyError(["--vary: one key is there twice; name all of its values once"])
    for bounds in space:
        for value in bounds.ends:
            load(((bounds.key, value),), TUNED)


class _Player:
    """Plays policies on the tasks of a list, and numbers all tasks in the order of the search."""

    def __init__(
        self,
        load: LoadRules,
        engine: TaskEngine,
        search: Search,
        journal: TaskJournal | None,
        reached: Reached,
    ) -> None:
        self.goal = search.goal
        self.failures: list[Failure] = []
        self.expected = 0
        """Tasks that are to be played at most, for the progress."""
        self._load, self._engine, self._journal, self._reached = load, engine, journal, reached
        self.played = 0
        """Tasks so far."""
        self.states: set[str] = set()
        """Of the snapshots of the search, as far as they are known."""

    @property
    def first_error(self) -> str:
        return self.failures[0].error if self.failures else "there are none"

    def play(self, rules: Sequence[Rules], tasks: Sequence[Task]) -> list[list[Row]]:
        """Return the rows of each policy on the tasks, whose own policy does not count."""
        made = list(self._assign(rules, tasks))
        before = self.played
        rows, failures = play_tasks(
            made,
            self._engine,
            self._journal,
            lambda done, _: self._reached(before + done, max(self.expected, before + len(made))),
        )
        self.played += len(made)
        self.failures += failures
        named: dict[str, list[Row]] = {policy.name: [] for policy in rules}
        for number in sorted(rows):
            named[rows[number].policy].append(rows[number])
        return list(named.values())

    def _assign(self, rules: Sequence[Rules], tasks: Sequence[Task]) -> Iterator[Task]:
        """Yield the tasks of all policies, snapshot by snapshot, so that a worker reads each only once."""
        number = self.played
        for _, of_snapshot in itertools.groupby(tasks, key=lambda task: task.source):
            group = list(of_snapshot)
            for policy in rules:
                for task in group:
                    yield msgspec.structs.replace(task, policy=policy, number=number)
                    number += 1

    def rules(self, settings: Settings, name: str) -> Rules | None:
        """Return the policy with settings, or None if it is not valid: two values may exclude each other."""
        try:
            return self._load(settings, name)
        except PolicyError:
            return None


class _Trials:
    """What came of all policies that the search has tried, each played once."""

    def __init__(self, player: _Player, tasks: Sequence[Task]) -> None:
        self.judged: dict[Settings, Candidate | None] = {}
        """In the order of the search; None: no valid policy, or without all results."""
        self._player, self._tasks = player, tasks

    def judge(self, batch: Sequence[Settings]) -> list[Candidate | None]:
        """Return the result of each policy. Policies without a result are played first."""
        new = [settings for settings in dict.fromkeys(batch) if settings not in self.judged]
        self.judged |= dict.fromkeys(new)
        first = len(self.judged) - len(new)
        names = [f"trial {first + at}" if settings else GIVEN for at, settings in enumerate(new)]
        rules = [self._player.rules(*pair) for pair in zip(new, names, strict=True)]
        valid = [(one, policy) for one, policy in zip(new, rules, strict=True) if policy]
        played = self._player.play([policy for _, policy in valid], self._tasks)
        for (settings, _), rows in zip(valid, played, strict=True):
            if not settings:
                self._player.states = {row.origin.state for row in rows} - {""}
                # The given policy is the first: what it has no result on is played with no other.
                results = {(row.snapshot, row.draw) for row in rows}
                self._tasks = [of for of in self._tasks if (of.snapshot, of.draw) in results]
            if rows and len(rows) == len(self._tasks):
                self.judged[settings] = _summarise(settings, rows, self._player.goal)
        return [self.judged[settings] for settings in batch]

    def best(self, given: Candidate) -> Candidate | None:
        """Return the policy with the least total that leaves no more hard rules than the given one."""
        allowed = [
            one
            for one in self.judged.values()
            if one is not None and one.hard <= given.hard + _SLACK
        ]
        best = min(allowed, key=lambda one: (one.total, len(one.settings)))
        return best if best.total < given.total - _SLACK else None

    def simplify(self, best: Candidate) -> Candidate:
        """Return the policy with no more changes than it needs: none whose absence makes nothing worse."""
        for key, _ in best.settings:
            without = self.judge([_without(best.settings, key)])[0]
            if (
                without is not None
                and without.settings
                and without.hard <= best.hard + _SLACK
                and without.total <= best.total + _SLACK
            ):
                best = without
        return best

    def explain(self, best: Candidate) -> Iterator[Reason]:
        """Yield for each change what comes without it."""
        every = self.judge([_without(best.settings, key) for key, _ in best.settings])
        for (key, value), without in zip(best.settings, every, strict=True):
            if without is not None:
                yield Reason(key, value, without)


def _without(settings: Settings, key: str) -> Settings:
    return tuple(one for one in settings if one[0] != key)


def _summarise(settings: Settings, rows: Sequence[Row], goal: Goal) -> Candidate:
    """Return the means over all snapshots of their means over the draws."""

    def mean(value: Callable[[Row], float]) -> float:
        groups: dict[str, list[float]] = {}
        for row in rows:
            groups.setdefault(row.snapshot, []).append(value(row))
        return round_value(float(np.mean([np.mean(group) for group in groups.values()])))

    return Candidate(
        settings=settings,
        evictions=mean(lambda row: row.measures["evictions"]),
        left=mean(lambda row: goal.remainder(row.measures)),
        total=mean(lambda row: goal.total(row.measures)),
        hard=mean(lambda row: row.measures["hardLeft"]),
    )


def _run_search(search: Search, trials: _Trials) -> None:
    """Try as many policies as the search has trials."""
    optuna = _import_optuna()
    sampler = optuna.samplers.TPESampler(seed=search.inputs.seed)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    left = _enqueue_all(study, search) or search.trials
    while left > 0:
        asked = [study.ask() for _ in range(min(_BATCH, left))]
        left -= len(asked)
        batch = [
            tuple((bounds.key, bounds.suggest(trial)) for bounds in search.space) for trial in asked
        ]
        for trial, result in zip(asked, trials.judge(batch), strict=True):
            if result is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, [result.evictions, result.left])


def _enqueue_all(study: optuna.Study, search: Search) -> int:
    """Let the study try all policies if they are few enough; return their number, or 0."""
    values = [bounds.values for bounds in search.space]
    number = 1
    for of in values:
        number *= search.trials + 1 if of is None else len(of)
    if number > search.trials:
        return 0
    for chosen in itertools.product(*(of or () for of in values)):
        pairs = zip(search.space, chosen, strict=True)
        study.enqueue_trial({bounds.key: bounds.parameter(value) for bounds, value in pairs})
    return number


def _import_optuna() -> Any:
    """Return the module ``optuna``.

    Raises:
        PolicyError: it is not installed.
    """
    optuna = import_extra("optuna", "tune", "tune")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _check(player: _Player, tasks: Sequence[Task], settings: Settings) -> UnseenCheck | None:
    """Play the given and the tuned policy on the unseen snapshots; None if there are no results of both."""
    rules = [player.rules((), GIVEN), player.rules(settings, TUNED)]
    failed = len(player.failures)
    rows = [row for of in player.play([one for one in rules if one], tasks) for row in of]
    # A state that the search has seen, recorded once more, is not another one.
    rows = [row for row in rows if row.origin.state not in player.states]
    failures = player.failures[failed:]
    totals = [
        msgspec.structs.replace(
            row,
            measures={**row.measures, _TOTAL.key: round_value(player.goal.total(row.measures))},
        )
        for row in rows
    ]
    names = [GIVEN, TUNED]
    # One question, asked alone: not one of many whose p would have to be corrected.
    total = compare_rows(names, totals, failures, measures=(_TOTAL,)).verdicts[0]
    comparison = compare_rows(names, rows, failures)
    return UnseenCheck(total, comparison) if comparison.snapshots else None
