"""The terminal that texts are printed on: its size and its colours."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TextIO

from rebalancer.base.environment import Environment
from rebalancer.base.output import write
from rebalancer.base.plain_text import WIDTH, Paint, dress

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
    see no-color.org, or ``TERM=dumb``), or asks for it elsewhere, too (``FORCE_COLOR``). Without a terminal,
    ``COLUMNS`` is the width.
    """
    environ = environment.environ
    terminal = environment.out.isatty()
    columns, height = (
        _size(environment.out) if terminal else (_whole(environ.get("COLUMNS")) or WIDTH, _HEIGHT)
    )
    forced = environ.get("FORCE_COLOR", "0") != "0"
    wanted = not environ.get("NO_COLOR") and (
        forced or (terminal and environ.get("TERM") != "dumb")
    )
    return Look(max(_NARROWEST, columns), height, wanted if color == "auto" else color == "always")


def print_text(environment: Environment, text: str, form: str = "table") -> None:
    """Write a finished text; one for people is fitted to the terminal, see :func:`rebalancer.base.plain_text.dress`."""
    if form not in ("table", "text"):
        write(environment.out, [text])
        return
    look = terminal_look(environment, "auto")
    bound = environment.out.isatty() or "COLUMNS" in environment.environ
    width = look.width if bound else sys.maxsize
    write(environment.out, [dress(text, width, Paint(look.color))])


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else 0


def _size(terminal: TextIO) -> tuple[int, int]:
    """Return (columns, lines) from the environment, else of standard output, else of ``terminal``."""
    try:
        own = tuple(os.get_terminal_size(terminal.fileno()))
    except (OSError, ValueError):
        own = (WIDTH, _HEIGHT)
    return shutil.get_terminal_size((own[0] or WIDTH, own[1] or _HEIGHT))
