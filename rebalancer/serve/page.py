"""The web page of ``serve``: the current state, the last moves, earlier runs as bars, and the last report.

It is read-only and sets no cookies.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from rebalancer.base.plain_text import count, printable
from rebalancer.wire.times import rfc3339

if TYPE_CHECKING:
    from rebalancer.base.errors import ExitCode
    from rebalancer.plan.plan import Outcome
    from rebalancer.report.model import RunReport
    from rebalancer.run.memory.document import Document

MAX_RUNS = 50
_MAX_STEPS = 12
_MAX_MOVES = 5
_LABELLED = 10
"""Of so many bars one has its time below it."""
_TALLEST = 32
"""Pixels of the tallest bar."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """One past run."""

    number: int
    at: float
    """The end of the run, in Unix seconds."""
    words: str
    evictions: int = 0
    unmet: int = 0
    stands: bool = False
    """Whether it stood still."""
    failure: str = ""
    """Why it failed; empty if it did not."""


@dataclass(frozen=True, slots=True)
class KeptMove:
    """One of the last moves."""

    at: str
    """When the run ended, or was last heard of: date and time in UTC."""
    pod: str
    source: str
    target: str
    """The node of its replacement, and whether that was predicted."""
    why: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """The next run, in the words of the page."""

    mode: str = ""
    next_at: float = math.inf
    """The start of the next scheduled run, in Unix seconds."""


class LivePage:
    """The page with the report of the last run, the list of earlier runs, and the current state of the process.

    One thread writes and others read; values that they read are replaced, never changed in place.
    """

    def __init__(self, stop_command: str = "") -> None:
        """``stop_command``: what a person types to stop the process."""
        self._stop_command = stop_command
        self._page: tuple[int, str] | None = None
        """The last report as a page, and the number of its run."""
        self._runs: tuple[KeptRun, ...] = ()
        self._moves: tuple[KeptMove, ...] = ()
        """Newest first."""
        self._knows_memory = False
        self._failed, self._failing_since = 0, 0.0
        """How many runs have failed in a row, and when the first of them has, Unix seconds."""
        self.outlook = Outlook()
        self._steps: tuple[str, ...] = ()
        self._under_way = False

    @property
    def _number(self) -> int:
        """The number of the last run; 0 before the first."""
        return self._runs[-1].number if self._runs else 0

    # -- what happens ------------------------------------------------------------------------------

    def begin_run(self) -> None:
        """Note that a run begins."""
        self._steps = ()
        self._under_way = True

    def note_step(self, text: str) -> None:
        """Record the current step of the run."""
        self._steps = (*self._steps, printable(text))[-_MAX_STEPS:]

    def end_run(self) -> None:
        """Note that the run is over."""
        self._under_way = False

    def keep(self, report: RunReport, now: float, memory: Document | None = None) -> None:
        """Keep the page of a run that ended with a report at ``now`` (Unix seconds).

        ``memory``: the document before it. The moves in it are those before this process.
        """
        self._failed = 0
        if memory is not None and not self._knows_memory:
            self._knows_memory = True
            self._moves = tuple(islice(_list_moves(memory), _MAX_MOVES))
        moved = [
            _describe_move(report, one, now) for one in report.tried if one.status.may_have_evicted
        ]
        self._moves = (*reversed(moved), *self._moves)[:_MAX_MOVES]
        from rebalancer.report.as_html import as_html  # noqa: PLC0415
        from rebalancer.report.summary import Summary  # noqa: PLC0415

        summary = Summary(report)
        evictions = sum(1 for outcome in report.outcomes if outcome.status.is_carried_out)
        unmet = sum(rule.rules for rule in summary.unmet_rules)
        what = "standing still" if report.standstill else f"{evictions:,} evicted"
        number = self._number + 1
        self._page = number, "".join(as_html(report, live=True))
        self._add(
            KeptRun(
                number,
                now,
                f"Run {number}, {rfc3339(now)}: {what}, {count(unmet, 'rule')} unmet",
                evictions,
                unmet,
                stands=bool(report.standstill),
            )
        )

    def keep_failure(self, code: ExitCode, why: str, now: float) -> None:
        """Record a run that ended without a report at ``now`` (Unix seconds), and why."""
        if not self._failed:
            self._failing_since = now
        self._failed += 1
        failure = printable(why)
        words = f"Run {self._number + 1}, {rfc3339(now)}: failed, exit code {int(code)}: {failure}"
        self._add(KeptRun(self._number + 1, now, words, failure=failure))

    def _add(self, run: KeptRun) -> None:
        self._runs = (*self._runs, run)[-MAX_RUNS:]

    # -- what is answered --------------------------------------------------------------------------

    def state(self, *, stands_by: bool, troubles: tuple[str, ...] = ()) -> bytes:
        """Return the current state as JSON.

        ``stands_by``: another process is the leader. ``troubles``: what is wrong beside failed runs.
        """
        return json.dumps({"last": self._number, **self._current(stands_by, troubles)}).encode()

    def _current(self, stands_by: bool, troubles: tuple[str, ...]) -> dict[str, Any]:
        return {
            "now": self._now(stands_by=stands_by),
            "steps": self._steps,
            "troubles": [text for text in (self._failing(), *map(_sentence, troubles)) if text],
            "mode": self.outlook.mode,
            "next": self._next(stands_by=stands_by),
        }

    def _now(self, *, stands_by: bool) -> str:
        if self._under_way:
            return f"Run {self._number + 1} is under way."
        return "Another process leads; this one stands by." if stands_by else "No run is under way."

    def _next(self, *, stands_by: bool) -> str:
        if self._under_way or stands_by or not math.isfinite(self.outlook.next_at):
            return ""
        return f"{rfc3339(self.outlook.next_at)}, or when the cluster changes"

    def _failing(self) -> str:
        """Return since when and why the last runs have failed; empty if the last one has not failed."""
        if not self._failed:
            return ""
        which = "The last run" if self._failed == 1 else f"The last {self._failed:,} runs"
        return f"{which} failed, since {rfc3339(self._failing_since)}: {self._runs[-1].failure}"

    def last_page(self, *, stands_by: bool, troubles: tuple[str, ...] = ()) -> bytes:
        """Return the page of the last run with a report."""
        from rebalancer.report.as_html import RUNS, plain_page  # noqa: PLC0415
        from rebalancer.report.html_parts import page_environment  # noqa: PLC0415

        shown, page = self._page or (0, plain_page("No run has a report yet."))
        runs = self._runs
        most = max((max(run.evictions, run.unmet) for run in runs), default=0)
        listed = page_environment().get_template("live.html.j2")
        text = listed.render(
            runs=[_bar(run, most, last=run is runs[-1]) for run in runs],
            moves=self._moves,
            stop_command=self._stop_command,
            shown=shown,
            last=self._number,
            **self._current(stands_by, troubles),
        )
        return page.replace(RUNS, text, 1).encode()


def _describe_move(report: RunReport, outcome: Outcome, now: float) -> KeptMove:
    from rebalancer.report import words  # noqa: PLC0415

    move = outcome.move
    return KeptMove(
        at=_time(now),
        pod=move.ref,
        source=words.place(report, move.node),
        target=words.outcome_words(report, outcome),
        why=f"{move.strategy}: {words.reason_words(move)}",
    )


def _list_moves(memory: Document) -> Iterator[KeptMove]:
    """Yield the moves of earlier runs, newest first."""
    from rebalancer.run.memory.remember import describe_result  # noqa: PLC0415

    for run in reversed(memory.history):
        for move in reversed(run.moves):
            if move.moved:
                why = f"{move.strategy}: {move.reason}"
                yield KeptMove(_time(run.at), move.pod, move.node, describe_result(move), why)


def _time(at: float) -> str:
    return rfc3339(at)[:19].replace("T", " ")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _bar(run: KeptRun, most: int, *, last: bool) -> Mapping[str, Any]:
    def height(number: int) -> int:
        return max(2, round(_TALLEST * number / most)) if number else 0

    return {
        "number": run.number,
        "words": run.words,
        "time": rfc3339(run.at)[11:16] if last or run.number % _LABELLED == 1 else "",
        "stands": run.stands,
        "failed": bool(run.failure),
        "evictions": height(run.evictions),
        "left": height(run.unmet),
    }
