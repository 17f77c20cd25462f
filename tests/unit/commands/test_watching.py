"""``run --watch``: what is shown, what is marked, and when it ends."""

import io
import json
import os
import threading

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.commands.run import mark_changes, watch
from rebalancer.run.options import RunOptions
from rebalancer.testing.snapshots import apart, node, workload

NODES = [node(f"n-{zone}", zone) for zone in "abc"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Turns(threading.Event):
    """Waits for nothing: does what is to happen next instead, and is set after the last."""

    def __init__(self, *turns):
        super().__init__()
        self.turns, self.waited = list(turns), []

    def wait(self, timeout=None):
        self.waited.append(timeout)
        if not self.turns:
            self.set()
            return True
        self.turns.pop(0)()
        return False


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cluster.json"


@pytest.fixture
def write(path):
    def written(*places):
        web = workload("web", places, spec=apart("web", weight=100))
        items = [*NODES, *web]
        path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))

    written("n-a", "n-a", "n-b")
    return written


@pytest.fixture(autouse=True)
def _terminal(monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((100, 60)))


def shown(path, *turns, out=None, **options):
    out, stop = out or Terminal(), Turns(*turns)
    environment = Environment(SystemClock(), {}, out, io.StringIO(), stop)
    code = watch(RunOptions.of(snapshot_path=str(path), color="never", **options), environment, 5)
    return code, out.getvalue().split("\x1b[H\x1b[2J\x1b[3J")[1:], stop.waited


def test_the_first_screen_has_no_marks_and_the_last_signal_ends_it(path, write):
    # $REBALANCER_METRICS_PUSH may be there for other runs, and is no word of this one.
    code, (screen,), waited = shown(path, metrics_push="http://127.0.0.1:1")
    assert (code, waited) == (0, [5])
    assert screen.startswith("  1 eviction to fix all of 2 unmet rules")
    assert "*" not in screen
    assert max(map(len, screen.splitlines())) <= 100


def test_what_changed_is_marked_and_nothing_else(path, write):
    _, screens, _ = shown(path, lambda: None, lambda: write("n-a", "n-c", "n-b"))
    same, other = screens[1], screens[2]
    assert "*" not in same
    assert other.startswith("* Nothing to do: every rule holds.\n")
    assert "\n  Dry run with the built-in default policy" in other


def test_a_screen_is_cut_to_its_height(path, write, monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((100, 10)))
    _, (screen,), _ = shown(path)
    lines = screen.splitlines()
    assert len(lines) == 9
    assert lines[-1].endswith("more lines")


def test_times_and_colours_are_no_change():
    lines = "\x1b[2ma, 2027-01-15T08:00:00Z\x1b[0m\nb\n"
    assert mark_changes(lines, "a, 2027-01-15T08:05:00Z\n") == [
        "  \x1b[2ma, 2027-01-15T08:00:00Z\x1b[0m",
        "* b",
    ]


@pytest.mark.parametrize(
    ("options", "out", "says"),
    [
        ({"output": "json"}, None, "needs a terminal, and -o table or wide"),
        ({}, io.StringIO(), "needs a terminal"),
        ({"plan_out": "plan.json"}, None, "--out is of one run: leave it out with --watch"),
        ({"fail_on": ("unmet",)}, None, "--fail-on is of one run"),
        ({"metrics_file": "x.prom"}, None, "--metrics-file is of one run"),
    ],
)
def test_what_cannot_be_watched_is_refused(path, write, options, out, says):
    given = RunOptions.of(**({"snapshot_path": str(path)} | options))
    environment = Environment(SystemClock(), {}, out or Terminal(), io.StringIO(), Turns())
    with pytest.raises(PolicyError, match=says):
        watch(given, environment, 5)


def test_a_cluster_that_cannot_be_read_for_a_moment_is_tried_again(path, write, monkeypatch):
    reports = iter(["fine\n", ClusterReadError("the API server is away"), "fine\n"])

    def report(*_):
        latest = next(reports)
        if isinstance(latest, Exception):
            raise latest
        return latest

    monkeypatch.setattr("rebalancer.commands.run._report", report)
    _, screens, _ = shown(path, lambda: None, lambda: None)
    assert screens == [
        "  fine\n",
        "* the API server is away\n* It is tried again in 5 s.\n",
        "* fine\n",
    ]


def test_a_cluster_that_cannot_be_read_at_first_ends_it(path, monkeypatch):
    def report(*_):
        raise ClusterReadError("the API server is away")

    monkeypatch.setattr("rebalancer.commands.run._report", report)
    with pytest.raises(ClusterReadError):
        shown(path)
