"""The web page of ``serve``: the last report, earlier runs, and the current state.

It is read-only and sets no cookies. The pages of runs are kept compressed, the oldest are dropped first.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rebalancer.base.plain_text import count, printable
from rebalancer.wire.times import rfc3339

if TYPE_CHECKING:
    from rebalancer.base.errors import ExitCode
    from rebalancer.report.model import RunReport

MAX_RUNS = 50
MAX_BYTES = 16 << 20
"""Of all kept pages together, compressed."""
_MAX_STEPS = 12
_TALLEST = 32
"""Pixels of the tallest bar."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """One past run, with its HTML page unless that was dropped to save memory."""

    number: int
    words: str
    evictions: int = 0
    unmet: int = 0
    stands: bool = False
    """Whether it stood still."""
    failed: bool = False
    page: bytes = b""


class LivePage:
    """The past runs that are kept, and the current state of the process.

    One thread writes and others read; values that they read are replaced, never changed in place.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        """``max_bytes``: of all kept pages together."""
        self._max_bytes = max_bytes
        self._runs: tuple[KeptRun, ...] = ()
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

    def keep(self, report: RunReport, now: float) -> None:
        """Keep the page of a run that ended with a report at ``now`` (Unix seconds)."""
        from rebalancer.report.as_html import as_html  # noqa: PLC0415
        from rebalancer.report.summary import Summary  # noqa: PLC0415

        summary = Summary(report)
        evictions = sum(1 for outcome in report.outcomes if outcome.status.is_carried_out)
        unmet = sum(rule.rules for rule in summary.unmet_rules)
        what = "standing still" if report.standstill else f"{evictions:,} evicted"
        page = zlib.compress("".join(as_html(report, live=True)).encode())
        self._add(
            KeptRun(
                self._number + 1,
                f"Run {self._number + 1}, {rfc3339(now)}: {what}, {count(unmet, 'rule')} unmet",
                evictions,
                unmet,
                stands=bool(report.standstill),
                page=page,
            )
        )

    def keep_failure(self, code: ExitCode, now: float) -> None:
        """Record a run that ended without a report at ``now`` (Unix seconds)."""
        words = f"Run {self._number + 1}, {rfc3339(now)}: failed, exit code {int(code)}"
        self._add(KeptRun(self._number + 1, words, failed=True))

    def _add(self, run: KeptRun) -> None:
        runs = [*self._runs, run][-MAX_RUNS:]
        room = self._max_bytes
        for place in range(len(runs) - 1, -1, -1):
            room -= len(runs[place].page)
            if room < 0:
                runs[place] = replace(runs[place], page=b"")
        self._runs = tuple(runs)

    # -- what is answered --------------------------------------------------------------------------

    def state(self, *, stands_by: bool) -> bytes:
        """Return the current state as JSON. ``stands_by``: another process is the leader."""
        state = {
            "last": self._number,
            "now": self._now(stands_by=stands_by),
            "steps": self._steps,
        }
        return json.dumps(state).encode()

    def _now(self, *, stands_by: bool) -> str:
        if self._under_way:
            return f"Run {self._number + 1} is under way."
        return "Another process leads; this one stands by." if stands_by else "No run is under way."

    def last_page(self, *, stands_by: bool) -> bytes:
        """Return the page of the last run that has one."""
        now = self._now(stands_by=stands_by)
        pages = [run for run in self._runs if run.page]
        if pages:
            return self._whole(pages[-1], "", now)
        from rebalancer.report.as_html import waiting_page  # noqa: PLC0415

        return self._with_runs(waiting_page(), None, "", now)

    def page_of(self, name: str, *, stands_by: bool) -> bytes | None:
        """Return the page of the run with this number; None if it is not kept."""
        for run in self._runs:
            if str(run.number) == name and run.page:
                return self._whole(run, "../", self._now(stands_by=stands_by))
        return None

    def _whole(self, run: KeptRun, root: str, now: str) -> bytes:
        text = zlib.decompress(run.page).decode()
        return self._with_runs(text, run.number, root, now)

    def _with_runs(self, page: str, shown: int | None, root: str, now: str) -> bytes:
        """Return a page with the list of runs. ``root``: from the page to that of the last run."""
        from rebalancer.report.as_html import RUNS  # noqa: PLC0415
        from rebalancer.report.html_parts import page_environment  # noqa: PLC0415

        runs = self._runs
        most = max((max(run.evictions, run.unmet) for run in runs), default=0)
        listed = page_environment().get_template("live.html.j2")
        text = listed.render(
            runs=[_bar(run, most) for run in runs],
            shown=shown,
            root=root,
            last=self._number,
            fixed=bool(root),
            now=now,
        )
        return page.replace(RUNS, text, 1).encode()


def _bar(run: KeptRun, most: int) -> Mapping[str, Any]:
    def height(number: int) -> int:
        return max(2, round(_TALLEST * number / most)) if number else 0

    return {
        "number": run.number,
        "words": run.words,
        "kept": bool(run.page),
        "stands": run.stands,
        "failed": run.failed,
        "evictions": height(run.evictions),
        "left": height(run.unmet),
    }
