import contextlib
import io
import os
import pty
import subprocess

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.output import terminal_look
from rebalancer.report.progress import bars_on
from tests.docs.pages import ROOT
from tests.support.cli import program
from tests.unit.report.test_report_bars import WIPED


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


@pytest.mark.parametrize(
    ("err", "form", "environ", "drawn"),
    [
        (Terminal(), "text", {}, True),
        (io.StringIO(), "text", {}, False),
        (Terminal(), "quiet", {}, False),
        (Terminal(), "json", {}, False),
        (Terminal(), "text", {"TERM": "dumb"}, False),
        (Terminal(), "text", {"NO_COLOR": "1"}, True),
    ],
)
def test_progress_is_drawn_on_a_terminal_only(err, form, environ, drawn):
    environment = Environment(SystemClock(), environ, io.StringIO(), err)
    assert (bars_on(environment, form=form) is not None) is drawn


def test_a_run_on_a_terminal_draws_progress_and_leaves_the_report_alone():
    file = ROOT / "docs" / "examples" / "zone-back.zip"
    ours, theirs = pty.openpty()
    command = [str(program()), "run", f"--snapshot={file}"]
    environ = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, env=environ, check=True, text=True
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:
        while piece := terminal.read(4096):
            seen += piece
    assert b"reading" in seen
    assert b"planning" in seen
    assert WIPED.search(seen.decode())
    piped = subprocess.run(command, capture_output=True, env=environ, check=True, text=True)
    assert (piped.stdout, piped.stderr) == (done.stdout, "")


def test_without_a_terminal_width_and_colour_can_be_asked_for():
    piped = io.StringIO()
    assert (look(piped, COLUMNS="132").width, look(piped, COLUMNS="wide").width) == (132, 80)
    assert look(piped, FORCE_COLOR="1").color
    assert not look(piped, FORCE_COLOR="0").color
    assert not look(piped, FORCE_COLOR="1", NO_COLOR="1").color
