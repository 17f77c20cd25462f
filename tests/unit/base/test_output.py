"""Reports and messages on streams that are closed, full, or not read: as processes."""

import io
import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.base.output import OutputError, create_file, say, say_error, write
from rebalancer.cli import command
from rebalancer.testing.snapshots import apart, node, workload
from tests.support.cli import program


class Broken(io.StringIO):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error


@pytest.mark.parametrize(
    ("error", "left"),
    [(OSError(28, "full"), False), (BrokenPipeError(), True), (ValueError("closed"), False)],
)
def test_what_a_stream_raises_becomes_one_error(error, left):
    with pytest.raises(OutputError, match="could not be written") as raised:
        write(Broken(error), ["report"])
    assert raised.value.reader_has_left is left
    say(Broken(error), "never raises")


def test_an_error_of_what_makes_the_text_stays_what_it_is():
    def pieces():
        yield "a"
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        write(io.StringIO(), pieces())


def test_a_message_is_one_line_and_an_error_has_its_own():
    stream = io.StringIO()
    say(stream, "one\ntwo \x1b[2J\u202e", "three")
    assert stream.getvalue() == "one\\ntwo \\x1b[2J\\u202e\nthree\n"
    stream = io.StringIO()
    error = PolicyError(["a\r\nFAKE", "  b"])
    say_error(stream, error)
    assert stream.getvalue() == "rebalancer: a\\r\\nFAKE\n  b\n"
    assert f"why: {PolicyError(['a:', '  b'])}" == "why: a: b"


@pytest.fixture(scope="module")
def drifted(tmp_path_factory):
    nodes = [node(f"n-{zone}", zone) for zone in "abc"]
    objects = [*nodes, *workload("web", ["n-a", "n-b", "n-a"], spec=apart("web", weight=100))]
    path = tmp_path_factory.mktemp("output") / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return path


def shell(command, path):
    return subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", command.replace("SNAPSHOT", f"--snapshot={path}")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "REBALANCER": str(program())},
    )


SAYS = "rebalancer: the output could not be written"


@pytest.mark.parametrize(
    ("command", "code", "err"),
    [
        ("$REBALANCER run SNAPSHOT > /dev/full", ExitCode.USAGE, SAYS),
        ("$REBALANCER run SNAPSHOT >&-", ExitCode.USAGE, SAYS),
        ("$REBALANCER run SNAPSHOT -o json > /dev/full", ExitCode.USAGE, SAYS),
        ("$REBALANCER run SNAPSHOT --detailed-exitcode > /dev/full", ExitCode.USAGE, SAYS),
        ("$REBALANCER simulate SNAPSHOT --cycles=1 > /dev/full", ExitCode.USAGE, SAYS),
        ("$REBALANCER policy show > /dev/full", ExitCode.USAGE, SAYS),
        ("$REBALANCER explain node n-a SNAPSHOT >&-", ExitCode.USAGE, SAYS),
        ("$REBALANCER --help > /dev/full", ExitCode.USAGE, SAYS),
        ("$REBALANCER plan --help > /dev/full", ExitCode.USAGE, SAYS),
        ("$REBALANCER --version > /dev/full", ExitCode.USAGE, SAYS),
        ("$REBALANCER completion bash > /dev/full", ExitCode.USAGE, SAYS),
        # The reader of the pipe has left before anything is written.
        ("$REBALANCER run SNAPSHOT -o json | true", ExitCode.DONE, ""),
        ("$REBALANCER schema policy | true", ExitCode.DONE, ""),
        # It is not read, but the code says it.
        ("$REBALANCER run SNAPSHOT > /dev/full 2>&1", ExitCode.USAGE, ""),
        ("$REBALANCER run SNAPSHOT >&- 2>&-", ExitCode.USAGE, ""),
        ("$REBALANCER run --polcy=x 2> /dev/full", ExitCode.USAGE, ""),
        ("$REBALANCER run --policy=none 2>&-", ExitCode.USAGE, ""),
        ("$REBALANCER run SNAPSHOT 2>&- <&- > /dev/null", ExitCode.DONE, ""),
    ],
)
def test_a_report_that_is_lost_is_said_and_never_a_traceback(drifted, command, code, err):
    done = shell(command, drifted)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(err)
    assert len(done.stderr.splitlines()) == bool(err)


@pytest.mark.parametrize(
    "command",
    [
        "$REBALANCER explain node $'n-\\e[2J\\u202ea' SNAPSHOT",
        "$REBALANCER explain workload $'default/we\\x07\\u202eb' SNAPSHOT",
        "$REBALANCER run --policy=$'x\\e[2J\\u202e'",
        "$REBALANCER run --outpt=$'\\e]0;x\\x07\\u202e'",
        "$REBALANCER simulate SNAPSHOT --remove-node=$'n\\u202e\\e[1m'",
    ],
)
def test_errors_show_no_characters_that_disturb(drifted, command):
    done = shell(command, drifted)
    assert done.returncode in (ExitCode.USAGE, ExitCode.UNREADABLE)
    assert done.stderr
    assert done.stderr.replace("\n", "").isprintable()


LINKS = {
    "at its name": lambda victim, file: file.symlink_to(victim),
    "at its name, by a hard link": lambda victim, file: file.hardlink_to(victim),
    "at the name of its first half": lambda victim, file: file.with_name(
        f".{file.name}.partial"
    ).symlink_to(victim),
    "that leads nowhere": lambda victim, file: file.symlink_to(victim.with_name("none")),
}


@pytest.mark.parametrize("plant", LINKS.values(), ids=LINKS)
def test_no_link_is_followed_where_a_file_is_written(drifted, tmp_path, monkeypatch, plant):
    """Every command that replaces a file; whoever may write to the folder gains no other file by that."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    victim = tmp_path / "victim"
    written = {
        "plan.json": ["plan", "--snapshot", str(drifted), "--out", "plan.json"],
        "p.prom": ["run", "--snapshot", str(drifted), "--metrics-file", "p.prom"],
    }
    for name, words in written.items():
        victim.write_text("of somebody else")
        plant(victim, tmp_path / name)
        assert command(words) in (0, 10), words
        assert victim.read_text() == "of somebody else"
        assert not victim.with_name("none").exists()
        file = tmp_path / name
        assert file.is_file()
        assert not file.is_symlink()
        assert file.stat().st_nlink == 1
    assert not [left for left in tmp_path.glob(".*.partial") if not left.is_symlink()]


def test_a_file_is_new_with_its_mode_and_nothing_is_left_of_half_a_file(tmp_path):
    file = tmp_path / "file"
    file.touch(0o666)
    with create_file(file, 0o600) as stream:
        stream.write(b"whole")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"whole", 0o600)
    with pytest.raises(TypeError), create_file(file) as stream:
        stream.writelines([b"half", "of it"])  # type: ignore[list-item]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_bytes() == b"whole"


def test_pipes_and_devices_are_written_as_they_are(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (pipe, Path("/dev/null"), Path(f"/dev/fd/{os.open(pipe, os.O_WRONLY)}")):
        with create_file(path) as stream:
            stream.write(b"x")
    assert os.read(reader, 9) == b"xx"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
