"""Progress on a terminal: bars with the current phase, its duration and the completed share of a wave, and a picture.

The picture shows the nodes as lines of squares: a pod each, moving as evictions and landings are reported. Bars and
picture are erased at the end. Lines written in the meantime appear above them.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TextIO, cast

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from rebalancer.base.durations import format_duration
from rebalancer.base.plain_text import count, printable
from rebalancer.plan.plan import Move
from rebalancer.snapshot.model import Snapshot

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


_BESIDE_PICTURE = 4
"""Lines that the bars and the last messages have beside a picture."""


class _Drawn(Progress):
    """Bars below a picture of the nodes, if there is one."""

    picture: NodePicture | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.picture is not None:
            size = self.console.size
            yield self.picture.draw(size.width, size.height - _BESIDE_PICTURE)
        yield from super().get_renderables()


def _draws_braille(stream: TextIO) -> bool:
    """Return whether the stream's encoding has the characters of rich's usual spinner."""
    return (getattr(stream, "encoding", None) or "").lower().startswith("utf")


class Bars:
    """Shows the phases of one run on a terminal. Thread-safe; never raises."""

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        self._drawn = _Drawn(
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

    def show(self, picture: NodePicture) -> None:
        """Show a picture above the bars until they are erased."""
        self._drawn.picture = picture

    def line(self, text: str) -> bool:
        """Write a line above the bars; return False if no bars are shown now."""
        if not self._open:
            return False
        self._drawn.console.print(Text(text), soft_wrap=True)
        return True


_NO_ZONE = "no zone"
_NAME, _PADDING = 24, 4
"""Columns: of the longest name, and around it."""


@dataclass(frozen=True, slots=True)
class PodMarks:
    """The characters of the picture."""

    pod: str
    leaves: str
    gone: str
    new: str


_UNICODE = PodMarks("\u25a0", "\u25a1", "\u00b7", "\u25a3")
_ASCII = PodMarks("#", "o", ".", "+")


def marks_for(encoding: str | None) -> PodMarks:
    """Return the characters that a stream of this encoding can write."""
    try:
        f"{_UNICODE.pod}{_UNICODE.leaves}{_UNICODE.gone}{_UNICODE.new}".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _UNICODE


class NodePicture:
    """Pods on nodes, as far as the events of a run have said. Thread-safe."""

    def __init__(self, snapshot: Snapshot, moves: Iterable[Move], marks: PodMarks) -> None:
        """``snapshot``: before the moves."""
        zone_of, zones = snapshot.nodes.labels.zones()
        names = snapshot.nodes.names
        self._nodes = {
            name: zones[zone] if zone >= 0 else _NO_ZONE
            for name, zone in zip(names, zone_of.tolist(), strict=True)
        }
        living = snapshot.pods.node[snapshot.pods.living].tolist()
        self._stay: Counter[str] = Counter(names[node] for node in living)
        self._leaves: Counter[str] = Counter()
        self._gone: Counter[str] = Counter()
        self._new: Counter[str] = Counter()
        self._touched: Counter[str] = Counter()
        for move in moves:
            self._leaves[move.node] += 1
            self._stay[move.node] -= 1
            for name in (move.node, *(one.node for one in move.landings[:1])):
                self._touched[name] += 1
        self._marks = marks
        self._lock = threading.Lock()

    def leave(self, move: Move) -> None:
        """Note that a pod was evicted."""
        with self._lock:
            self._leaves[move.node] -= 1
            self._gone[move.node] += 1

    def keep(self, move: Move, *, gone: bool) -> None:
        """Note that a pod was not evicted: it stays, or was ``gone`` already."""
        with self._lock:
            self._leaves[move.node] -= 1
            (self._gone if gone else self._stay)[move.node] += 1

    def arrive(self, node: str) -> None:
        """Note that a replacement was bound to a node."""
        with self._lock:
            self._nodes.setdefault(node, _NO_ZONE)
            self._new[node] += 1
            self._touched[node] += 1

    def draw(self, width: int, height: int) -> Text:
        """Return the picture in at most ``height`` lines of ``width``: the nodes with most moves, by zone and name."""
        with self._lock:
            return Text("\n").join(self._lines(width, max(4, height)))

    def _lines(self, width: int, height: int) -> Iterator[Text]:
        room = height - 1 - len(set(self._nodes.values())) - 1
        busiest = sorted(self._nodes, key=lambda name: (-self._touched[name], name))
        shown = sorted(busiest[: max(1, room)], key=lambda name: (self._nodes[name], name))
        names = min(_NAME, max(map(len, shown), default=0))
        most = max((self._size(name) for name in shown), default=0)
        pods = -(-most // max(1, width - names - _PADDING))
        marks = self._marks
        keys = f"{marks.pod} pod  {marks.leaves} leaves  {marks.gone} gone  {marks.new} its replacement"
        each = f"  ({count(pods, 'pod')} a square)" if pods > 1 else ""
        yield Text(f"{keys}{each}"[:width], style="dim")
        zone = None
        for name in shown:
            if self._nodes[name] != zone:
                zone = self._nodes[name]
                yield Text(printable(zone)[:width], style="bold")
            yield self._line(name, names, max(1, pods))
        if len(shown) < len(self._nodes):
            yield Text(f"... and {count(len(self._nodes) - len(shown), 'more node')}", style="dim")

    def _size(self, name: str) -> int:
        return sum(of[name] for of in (self._stay, self._leaves, self._gone, self._new))

    def _line(self, name: str, names: int, pods: int) -> Text:
        line = Text(f"  {printable(name)[:names]:<{names}} ")
        for of, mark, style in (
            (self._stay, self._marks.pod, ""),
            (self._leaves, self._marks.leaves, "yellow"),
            (self._gone, self._marks.gone, "dim"),
            (self._new, self._marks.new, "green"),
        ):
            line.append(mark * -(-of[name] // pods), style=style)
        return line
