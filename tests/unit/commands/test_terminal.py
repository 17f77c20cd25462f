import io
import os

import pytest

from rebalancer.commands.terminal import terminal_look
from rebalancer.environment import Environment, SystemClock


class Terminal(io.StringIO):
    def isatty(self):
        return True


def look(out, color="auto", **environ):
    return terminal_look(Environment(SystemClock(), environ, out, io.StringIO()), color)


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((132, 40)))


def test_a_terminal_has_its_width_and_a_pipe_80_columns():
    assert look(Terminal()).width == 132
    assert look(io.StringIO()).width == 80


@pytest.mark.parametrize(
    ("environ", "color"),
    [
        ({}, True),
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "dumb"}, False),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
    ],
)
def test_a_terminal_has_colour_unless_the_environment_says_no(environ, color):
    assert look(Terminal(), **environ).color is color


def test_what_the_flag_says_counts_for_more():
    assert look(io.StringIO(), "always", NO_COLOR="1").color
    assert not look(Terminal(), "never").color
    assert not look(io.StringIO()).color
