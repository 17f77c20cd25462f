"""The size of the terminal, and whether to use colours."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from rebalancer.base.environment import Environment
from rebalancer.base.plain_text import WIDTH
from rebalancer.run.options import ProgressFlags

if TYPE_CHECKING:
    from rebalancer.report.bars import Bars

_NARROWEST, _HEIGHT = 40, 24


@dataclass(frozen=True, slots=True)
class Look:
    """The size and colours for which a table is laid out."""

    width: int
    height: int
    color: bool


def terminal_look(environment: Environment, color: str) -> Look:
    """Return the size of the terminal (80 columns without one), and whether to use colours.

    ``color`` is ``always``, ``never`` or ``auto``: on a terminal, unless the environment forbids it (``NO_COLOR``,
    see no-color.org, or ``TERM=dumb``).
    """
    terminal = environment.out.isatty()
    columns, height = _size(environment.out) if terminal else (WIDTH, _HEIGHT)
    environ = environment.environ
    wanted = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Look(max(_NARROWEST, columns), height, wanted if color == "auto" else color == "always")


def _size(terminal: TextIO) -> tuple[int, int]:
    """Return (columns, lines) from the environment, else of standard output, else of ``terminal``."""
    try:
        own = tuple(os.get_terminal_size(terminal.fileno()))
    except (OSError, ValueError):
        own = (WIDTH, _HEIGHT)
    return shutil.get_terminal_size((own[0] or WIDTH, own[1] or _HEIGHT))


def bars_on(environment: Environment, flags: ProgressFlags, color: str) -> Bars | None:
    """Return progress bars on standard error; None without a suitable terminal, or if flags forbid them."""
    environ = environment.environ
    drawn = environment.err.isatty() and environ.get("TERM") != "dumb"
    if flags.quiet or flags.log_format != "text" or not drawn:
        return None
    from rebalancer.report.bars import Bars  # noqa: PLC0415

    colored = color != "never" and not environ.get("NO_COLOR")
    return Bars(environment.err, color=colored)
