"""Bars on a terminal: seen while something lasts, wiped off afterwards, and lines stay above them."""

import io
import re

import pytest

from rebalancer.plan.plan import Status
from rebalancer.report.progress import Bars, Progress
from tests.unit.report.report_examples import move, outcome

WIPED = re.compile(r"\x1b\[2K(\x1b\[\?25h|\r)*\Z")
_CONTROL = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


def plain(stream):
    return _CONTROL.sub("", stream.getvalue())


def drawn(bars):
    """What the bars show at this moment."""
    bars._drawn.refresh()


@pytest.fixture
def stream():
    return io.StringIO()


def test_a_phase_is_shown_while_it_lasts(stream):
    bars = Bars(stream, color=False)
    assert stream.getvalue() == ""
    with bars.phase("read"):
        drawn(bars)
    with bars.phase("plan"):
        drawn(bars)
    assert re.search(r"reading.*planning", plain(stream), re.DOTALL)
    # Wiped off at the end: the line is erased, and the cursor is back.
    assert WIPED.search(stream.getvalue())
    assert stream.getvalue().count("\x1b[?25h") == stream.getvalue().count("\x1b[?25l")


def test_a_wave_counts_moves_that_have_ended(stream):
    bars = Bars(stream, color=False)
    progress = Progress(stream, clock=lambda: 0.0, bars=bars)
    with bars.phase("act"):
        progress.wave_started(1, 2, 3)
        progress.evicted(move())
        progress.landed(move(), "node-c1", predicted=True, seconds=1.0)
        progress.not_evicted(outcome(move("web-1"), Status.BLOCKED, "no"))
        drawn(bars)
        assert re.search(r"wave 1 of 2 .*2/3", plain(stream))
        progress.wave_started(2, 2, 1)
        drawn(bars)
        assert re.search(r"wave 2 of 2 .*0/1", plain(stream))


def test_a_course_stays_around_its_phases_and_says_how_far_it_is(stream):
    progress = Progress(stream, clock=lambda: 0.0, bars=(bars := Bars(stream, color=False)))
    with progress.course("emptying n1", "pods") as reached:
        reached(2, 5)
        with bars.phase("plan"):
            drawn(bars)
            assert re.search(r"emptying n1 .*2/5 pods.*planning", plain(stream), re.DOTALL)
        # The end of a phase takes the bars of the course away no more than those of another phase.
        assert bars.line("x")
    assert not bars.line("x")
    assert WIPED.search(stream.getvalue())
    with Progress(stream, clock=lambda: 0.0).course("emptying n1", "pods") as reached:
        reached(1, 2)
    assert "1/2" not in plain(stream)


def test_lines_stay_above_the_bars_and_are_the_same_without(stream):
    without = io.StringIO()
    bars = Bars(stream, color=False)
    for to, shown in ((stream, bars), (without, None)):
        progress = Progress(to, clock=lambda: 0.0, bars=shown)
        with bars.phase("act"):
            progress.wave_started(1, 1, 1)
            progress.note("x", "[bold]" + "long " * 60)
        progress.note("x", "after")
    lines = [line.strip() for line in plain(stream).splitlines()]
    assert [line.strip() for line in without.getvalue().splitlines()] == [
        line for line in lines if line.startswith("0.0 s")
    ]


def test_an_error_in_a_phase_leaves_the_terminal_in_order(stream):
    bars = Bars(stream, color=False)
    with pytest.raises(KeyboardInterrupt), bars.phase("plan"), bars.phase("terms"):
        raise KeyboardInterrupt
    assert stream.getvalue().count("\x1b[?25h") == stream.getvalue().count("\x1b[?25l")
    assert bars.line("x") is False


class Closed(io.StringIO):
    def write(self, _):
        raise OSError(5, "gone")


def test_a_terminal_that_has_gone_ends_no_run():
    bars = Bars(Closed(), color=False)
    progress = Progress(io.StringIO(), clock=lambda: 0.0, bars=bars)
    with bars.phase("act"):
        progress.wave_started(1, 1, 1)
        progress.landed(move(), "node-c1", predicted=True, seconds=1.0)


class _Encoded(io.StringIO):
    def __init__(self, encoding):
        super().__init__()
        self.name_of_encoding = encoding

    @property
    def encoding(self):  # type: ignore[override]
        return self.name_of_encoding


@pytest.mark.parametrize("encoding", ["ascii", "US-ASCII", "latin-1", None])
def test_a_terminal_that_is_not_unicode_gets_no_other_characters(encoding):
    stream = _Encoded(encoding)
    with Bars(stream, color=False).phase("plan"):
        pass
    drawn = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", stream.getvalue())
    assert not re.search("[⠀-⣿]", drawn)
