"""Bars on a terminal: seen while something lasts, wiped off afterwards, and lines stay above them."""

import io
import re
from dataclasses import replace

import pytest

from rebalancer.plan.plan import Status
from rebalancer.report.bars import Bars, NodePicture, marks_for
from rebalancer.report.progress import Progress
from rebalancer.testing.snapshots import node, snapshot_of, workload
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


NODES = [node("a0", "a"), node("a1", "a"), node("b0", "b")]


def picture(nodes=NODES, pods=("a0", "a0", "a0", "b0"), moves=2):
    planned = [replace(move(), node="a0") for _ in range(moves)]
    return NodePicture(snapshot_of([*nodes, *workload("web", pods)]), planned, marks_for("ascii"))


def test_pods_move_in_the_picture_as_events_come():
    seen = picture()
    first = replace(move(), node="a0")
    keys = "# pod  o leaves  . gone  + its replacement"
    assert seen.draw(80, 24).plain.splitlines() == [
        keys, "a", "  a0 #oo", "  a1 ", "b", "  b0 #",
    ]  # fmt: skip
    seen.leave(first)
    seen.arrive("a1")
    assert seen.draw(80, 24).plain.splitlines()[2:4] == ["  a0 #o.", "  a1 +"]
    seen.keep(first, gone=False)
    # A node that has joined since has a place, too.
    seen.arrive("c0")
    assert "  a0 ##." in seen.draw(80, 24).plain.splitlines()
    assert seen.draw(80, 24).plain.splitlines()[-2:] == ["no zone", "  c0 +"]


@pytest.mark.parametrize("height", [4, 8, 20])
def test_a_large_cluster_shows_the_nodes_that_moves_are_about(height):
    many = [node(f"n-{i:03}", "abc"[i % 3]) for i in range(500)]
    lines = picture([*NODES, *many], ("a0",) * 300, 40).draw(60, height).plain.splitlines()
    assert len(lines) <= max(7, height)
    assert max(map(len, lines)) <= 60
    assert any(line.startswith("  a0 ") for line in lines)
    assert re.fullmatch(r"\.\.\. and \d+ more nodes", lines[-1])
    assert "pods a square" in lines[0]


def test_the_bars_of_a_run_that_is_watched_have_the_picture_above(stream):
    bars = Bars(stream, color=False)
    progress = Progress(stream, clock=lambda: 0.0, bars=bars, pictured=True)
    planned = replace(move(), node="a0")
    with bars.phase("act"):
        progress.show_nodes(snapshot_of([*NODES, *workload("web", ["a0", "a0"])]), [planned])
        progress.wave_started(1, 1, 1)
        progress.evicted(planned)
        progress.landed(planned, "b0", predicted=True, seconds=1.0)
        drawn(bars)
    assert re.search(r"a0 \S.*b0 \S.*wave 1 of 1", plain(stream), re.DOTALL)
    assert "landed" in plain(stream)


def test_without_bars_there_is_no_picture(stream):
    progress = Progress(stream, clock=lambda: 0.0, pictured=True)
    progress.show_nodes(snapshot_of(NODES), [])
    progress.evicted(move())
    assert plain(stream).count("\n") == 1


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
