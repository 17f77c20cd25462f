"""Progress of a real run, line by line, on a stream apart from the report.

Forms: text for people and log files (no carriage returns, no colour), JSON lines for machines, or none. Several
threads may call the methods. They never raise: a run must not end in the middle of a wave because its log is full or
closed. On a terminal there are bars with the current phase, its duration and the completed share of a wave. They are
erased at the end; lines written in the meantime appear above them.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

from rebalancer.base.durations import format_duration
from rebalancer.base.environment import Environment
from rebalancer.base.output import OutputError, write
from rebalancer.base.plain_text import count, printable, printable_json
from rebalancer.plan.plan import Method, Move, Outcome
from rebalancer.wire.times import rfc3339

if TYPE_CHECKING:
    from rich.progress import TaskID

Form = Literal["text", "json", "quiet"]

# Replacements take seconds to minutes: often enough to see that it goes on, without filling a log.
_WAITING_EVERY = 10.0
_HOW = {Method.EVICT: "evicted", Method.RESTART: "restarted", Method.REQUEST: "requested"}


_ACTING = "act"
_PHASES = {
    "access": "asking for rights",
    "read": "reading",
    "terms": "planning",
    "plan": "planning",
    _ACTING: "moving",
}
"""Phase of the timings -> what a person reads."""


class _Forgiving:
    """A stream that ignores write errors, so that a run continues when its terminal is closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def _draws_braille(stream: TextIO) -> bool:
    """Return whether the stream's encoding has the characters of rich's usual spinner."""
    return (getattr(stream, "encoding", None) or "").lower().startswith("utf")


class Bars:
    """Shows the phases of one run on a terminal. Thread-safe; never raises."""

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        # A command without a terminal does not load rich.
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        self._drawn = Progress(
            SpinnerColumn("dots" if _draws_braille(stream) else "line"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[count]}", markup=False),
            TimeElapsedColumn(),
            console=Console(
                file=cast(TextIO, _Forgiving(stream)),
                force_terminal=True,
                no_color=not color,
                highlight=False,
                emoji=False,
            ),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._wave: TaskID | None = None
        self._open = 0

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Show a phase for the duration of the ``with`` block."""
        with self._show(_PHASES.get(name, name)) as task:
            if name == _ACTING:
                self._wave = task
            try:
                yield
            finally:
                if name == _ACTING:
                    self._wave = None

    @contextlib.contextmanager
    def course(self, text: str, of: str) -> Iterator[Callable[[int, int], None]]:
        """Show a bar for a whole command; yield a function to call with (done, total) of the unit ``of``.

        The first call gives what was done before. The remaining time is estimated from the calls after it.
        """
        with self._show(text) as task:
            began: tuple[int, float] | None = None

            def reached(done: int, total: int) -> None:
                nonlocal began
                now = self._drawn.get_time()
                first, since = began = began or (done, now)
                count = f"{done:,}/{total:,} {of}"
                if first < done < total:
                    left = (now - since) / (done - first) * (total - done)
                    count += f", about {format_duration(timedelta(seconds=math.ceil(left)))} left"
                self._drawn.update(task, completed=done, total=total, count=count, refresh=True)

            yield reached

    @contextlib.contextmanager
    def _show(self, text: str) -> Iterator[TaskID]:
        self._drawn.start()
        self._open += 1
        task = self._drawn.add_task(text, total=None, count="")
        try:
            yield task
        finally:
            self._open -= 1
            self._drawn.remove_task(task)
            if not self._open:
                self._drawn.stop()

    def wave(self, text: str, moves: int) -> None:
        """Start a bar for a wave of ``moves`` moves."""
        if self._wave is not None:
            self._drawn.reset(self._wave, total=moves, description=text, count=f"0/{moves}")

    def count_ended(self) -> None:
        """Count one more completed move of the wave."""
        if self._wave is None:
            return
        self._drawn.advance(self._wave)
        (task,) = (each for each in self._drawn.tasks if each.id == self._wave)
        self._drawn.update(self._wave, count=f"{task.completed:.0f}/{task.total or 0:.0f}")

    def line(self, text: str) -> bool:
        """Write a line above the bars; return False if no bars are shown now."""
        if not self._open:
            return False
        self._drawn.console.print(text, markup=False, soft_wrap=True)
        return True


def bars_on(environment: Environment, *, form: str = "text", color: str = "auto") -> Bars | None:
    """Return progress bars on standard error; None without a suitable terminal, or if ``form`` is not text."""
    environ = environment.environ
    drawn = environment.err.isatty() and environ.get("TERM") != "dumb"
    if form != "text" or not drawn:
        return None
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
        """Pass the text of each event to ``heard`` as well, in every form."""
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

    def course(
        self, text: str, of: str
    ) -> contextlib.AbstractContextManager[Callable[[int, int], None]]:
        """Show a bar for a whole command, if bars are enabled; yield a function to call with (done, total)."""
        if self._bars is None:
            return contextlib.nullcontext(lambda _done, _total: None)
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
