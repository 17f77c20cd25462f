"""Progress of a real run, line by line, on a stream apart from the report.

Forms: text for people and log files (no carriage returns, no colour), JSON lines for machines, or none. Several
threads may call the methods. They never raise: a run must not end in the middle of a wave because its log is full or
closed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TextIO

from rebalancer.base.environment import Environment
from rebalancer.base.output import OutputError, write
from rebalancer.base.plain_text import count, printable, printable_json
from rebalancer.plan.plan import Method, Move, Outcome
from rebalancer.wire.times import rfc3339

if TYPE_CHECKING:
    from rebalancer.report.bars import Bars

Form = Literal["text", "json", "quiet"]

# Replacements take seconds to minutes: often enough to see that it goes on, without filling a log.
_WAITING_EVERY = 10.0
_HOW = {Method.EVICT: "evicted", Method.RESTART: "restarted", Method.REQUEST: "requested"}


def bars_on(environment: Environment, *, form: str = "text", color: str = "auto") -> Bars | None:
    """Return progress bars on standard error; None without a suitable terminal, or if ``form`` is not text."""
    environ = environment.environ
    drawn = environment.err.isatty() and environ.get("TERM") != "dumb"
    if form != "text" or not drawn:
        return None
    from rebalancer.report.bars import Bars  # noqa: PLC0415

    colored = color != "never" and not environ.get("NO_COLOR")
    return Bars(environment.err, color=colored)


class Progress:
    """Reports the events of a run as they happen; the executor calls it."""

    def __init__(
        self,
        stream: TextIO,
        *,
        clock: Callable[[], float],
        form: str = "text",
        bars: Bars | None = None,
        unix: Callable[[], float] | None = None,
    ) -> None:
        """Write to ``stream``. ``clock`` returns seconds; times are relative to its first value.

        ``unix``: Unix seconds, for JSON lines: where runs follow each other, their times alone tell them apart.

        ``bars``: progress bars on the same stream.
        """
        if form not in ("text", "json", "quiet"):
            raise ValueError(f"{form!r} is none of text, json, quiet")
        self._stream, self._clock, self._form = stream, clock, form
        self._bars = bars
        self._started, self._unix = clock(), unix
        self._lock = threading.Lock()
        self._waited = ((0, 0, 0), self._started)
        self._heard: Callable[[str], None] | None = None
        self._number: int | None = None

    def number_run(self, number: int) -> None:
        """Begin each line with the time of day and the run's number, where one process makes many runs."""
        self._number = number

    def tell_also(self, heard: Callable[[str], None]) -> None:
        """Pass the text of each event to ``heard``, too, whatever the form is."""
        self._heard = heard

    def wave_started(self, wave: int, waves: int, moves: int) -> None:
        """Report the start of wave ``wave`` of ``waves``, with its number of moves."""
        text = f"wave {wave} of {waves}: {count(moves, 'move')}"
        if self._bars is not None:
            self._bars.wave(f"wave {wave} of {waves}", moves)
        self._tell("wave", text, wave=wave, waves=waves, moves=moves)

    def evicted(self, move: Move) -> None:
        """Report that the API server accepted an eviction, or a restart."""
        how = _HOW[move.method]
        self._tell(how, f"{how:<8} {move.ref} from {move.node}", pod=move.ref, node=move.node)

    def not_evicted(self, outcome: Outcome) -> None:
        """Report a move that ended without an eviction."""
        move, status = outcome.move, outcome.status.value
        self._count()
        self._tell(
            status,
            f"{status:<8} {move.ref}" + (f": {outcome.message}" if outcome.message else ""),
            pod=move.ref,
            node=move.node,
            message=outcome.message,
        )

    def landed(self, move: Move, node: str, *, predicted: bool, seconds: float) -> None:
        """Report that the replacement of a moved pod was bound to a node."""
        self._count()
        how = "as predicted" if predicted else "not as predicted"
        self._tell(
            "landed",
            f"landed   {move.ref} -> {node}, {how}",
            pod=move.ref,
            node=node,
            predicted=predicted,
            seconds=round(seconds, 3),
        )

    def waiting(self, wave: int, pending: int, unready: int) -> None:
        """Report the replacements that a wave waits for: ``pending`` have no node, ``unready`` are not Ready.

        Written when a number changes, and every ten seconds.
        """
        now = self._clock()
        what = (wave, pending, unready)
        with self._lock:
            said, at = self._waited
            if said == what and now - at < _WAITING_EVERY:
                return
            self._waited = (what, now)
        text = f"waiting  for {count(unready, 'replacement')} to be Ready"
        text += f", {pending:,} without a node" if pending else ""
        self._tell("waiting", text, wave=wave, pending=pending, unready=unready)

    def note(self, event: str, text: str, **fields: Any) -> None:
        """Report another event of a command."""
        self._tell(event, text, **fields)

    def course(self, text: str, of: str) -> AbstractContextManager[Callable[[int, int], None]]:
        """Show a bar for a whole command, if bars are enabled; yield a function to call with (done, total)."""
        if self._bars is None:
            return nullcontext(lambda _done, _total: None)
        return self._bars.course(text, of)

    def _count(self) -> None:
        if self._bars is not None:
            self._bars.count_ended()

    def _tell(self, event: str, text: str, **fields: Any) -> None:
        if self._heard is not None:
            self._heard(text)
        if self._form == "quiet":
            return
        at = self._clock() - self._started
        if self._form == "json":
            time = {} if self._unix is None else {"time": rfc3339(self._unix())}
            number = {} if self._number is None else {"run": self._number}
            said = {**time, **number, "event": event, "at": round(at, 3), **fields}
            line = json.dumps(said, ensure_ascii=False)
            line = printable_json(line)
        else:
            line = f"{at:7.1f} s  {printable(text)}"
            if self._number is not None:
                day = "" if self._unix is None else f"{rfc3339(self._unix())}  "
                line = f"{day}run {self._number}{line}"
        with self._lock:
            if self._bars is not None and self._bars.line(line):
                return
            try:
                write(self._stream, [f"{line}\n"])
            except OutputError:
                self._form = "quiet"
