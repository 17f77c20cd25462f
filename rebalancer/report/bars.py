"""Progress on a terminal: bars with the current phase, its duration and the completed share of a wave.

Bars are erased at the end. Lines written in the meantime appear above them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from rebalancer.base.durations import format_duration

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

        The first call says what was done before. The time left is what the others have taken so far.
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
        self._drawn.console.print(Text(text), soft_wrap=True)
        return True
