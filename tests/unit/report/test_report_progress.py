import io
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from rebalancer.plan.plan import Method, Status
from rebalancer.report.progress import Progress
from rebalancer.run.execution.executor import WaveProgress
from tests.unit.report.report_examples import move, outcome


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def story(progress, clock):
    progress.wave_started(1, 2, 1)
    clock.now += 0.5
    progress.evicted(move())
    progress.waiting(1, 1, 1)
    clock.now += 2
    progress.landed(move(), "node-c1", predicted=True, seconds=2.04)
    progress.not_evicted(outcome(move("web-1"), Status.BLOCKED, "shop/web allows no disruption"))


def test_a_run_as_it_reads_in_a_log(clock):
    stream = io.StringIO()
    story(Progress(stream, clock=clock), clock)
    assert stream.getvalue() == (
        "    0.0 s  wave 1 of 2: 1 move\n"
        "    0.5 s  evicted  shop/web-0 from node-a1\n"
        "    0.5 s  waiting  for 1 replacement to be Ready, 1 without a node\n"
        "    2.5 s  landed   shop/web-0 -> node-c1, as predicted\n"
        "    2.5 s  blocked  shop/web-1: shop/web allows no disruption\n"
    )


def test_a_restart_is_called_one(clock):
    stream = io.StringIO()
    Progress(stream, clock=clock).evicted(replace(move(), method=Method.RESTART))
    assert stream.getvalue() == "    0.0 s  restarted shop/web-0 from node-a1\n"


def test_a_run_as_machines_read_it(clock):
    stream = io.StringIO()
    story(Progress(stream, clock=clock, form="json", unix=lambda: 1_800_000_000.0), clock)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["wave", "evicted", "waiting", "landed", "blocked"]
    assert lines[3] == {
        "time": "2027-01-15T08:00:00Z",
        "event": "landed",
        "at": 2.5,
        "pod": "shop/web-0",
        "node": "node-c1",
        "predicted": True,
        "seconds": 2.04,
    }


def test_quiet_is_quiet(clock):
    stream = io.StringIO()
    story(Progress(stream, clock=clock, form="quiet"), clock)
    assert stream.getvalue() == ""


def test_waiting_is_reported_when_it_changes_and_every_ten_seconds(clock):
    stream = io.StringIO()
    progress = Progress(stream, clock=clock)
    for second in range(25):
        clock.now = 1000.0 + second
        progress.waiting(1, 0, 2 if second < 3 else 1)
    times = [line.split()[0] for line in stream.getvalue().splitlines()]
    assert times == ["0.0", "3.0", "13.0", "23.0"]


def test_lines_of_many_threads_stay_whole(clock):
    stream = io.StringIO()
    progress = Progress(stream, clock=clock)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: progress.evicted(move(f"web-{i:03}")), range(200)))
    lines = sorted(stream.getvalue().splitlines())
    assert lines == [f"    0.0 s  evicted  shop/web-{i:03} from node-a1" for i in range(200)]


def test_control_characters_never_reach_the_stream(clock):
    stream = io.StringIO()
    Progress(stream, clock=clock).evicted(move("\x1b[2J\nx"))
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


def test_an_unknown_form_is_refused(clock):
    with pytest.raises(ValueError, match="is none of text, json, quiet"):
        Progress(io.StringIO(), clock=clock, form="xml")


def test_it_has_every_method_that_the_executor_calls():
    wanted = {name for name in vars(WaveProgress) if not name.startswith("_")}
    assert wanted <= set(dir(Progress))


class Full(io.StringIO):
    """A stream that takes a few lines, and then raises."""

    def __init__(self, error, room):
        super().__init__()
        self.error, self.room, self.tried = error, room, 0

    def write(self, text):
        self.tried += 1
        if self.tried > self.room:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), BrokenPipeError(), ValueError("I/O on closed file")],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_that_cannot_be_written_ends_no_run(clock, error, form):
    stream = Full(error, room=1)
    story(Progress(stream, clock=clock, form=form), clock)
    assert stream.getvalue().count("\n") == 1
    # It is not tried again and again.
    assert stream.tried == 2


def test_a_log_that_is_closed_ends_no_run(clock):
    stream = io.StringIO()
    stream.close()
    story(Progress(stream, clock=clock), clock)


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_would_disturb_a_terminal_is_escaped(clock, form):
    stream = io.StringIO()
    evil = "\x1b[2J\x9b1m\u202e\x7f\ud800"
    Progress(stream, clock=clock, form=form).evicted(move(evil))
    line = stream.getvalue().removesuffix("\n")
    assert line.isprintable()
    if form == "json":
        assert json.loads(line)["pod"].endswith(evil)
