"""A journal goes on where it stood, whatever else is compared, and harms no other file."""

import contextlib
import hashlib
import json

import msgspec
import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.fleet.compare import open_journal
from rebalancer.fleet.measures import MEASURES
from rebalancer.fleet.task import LeftByRule, Row, Rules, Task, TaskSetting

MEASURED = {of.key: 1.5 for of in MEASURES}
ROW = Row(3, "p", "x", 1, 2, 3, True, MEASURED, {"taints": LeftByRule(1, 0.5, 0, 2)}, ("w",))
TASK = Task(3, Rules("p", "text"), "x", "/x", 1, (0, 7, 1), TaskSetting(Rules("j", "judge")), "7")


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "journal"
    with open_journal(str(file)) as journal:
        assert journal.row_of(TASK) is None
        journal.add(TASK, ROW)
    return file


def test_it_holds_what_was_added(path):
    with open_journal(str(path)) as journal:
        assert journal.row_of(TASK) == ROW


def changed(**fields):
    return msgspec.structs.replace(TASK, **fields)


def test_a_result_serves_the_same_task_of_another_comparison(path):
    """Another number, a folder that was moved, a policy file that was renamed: the result is the same."""
    other = changed(number=9, snapshot="y", source="/y", policy=Rules("renamed", "text"))
    with open_journal(str(path)) as journal:
        row = journal.row_of(other)
    assert row == msgspec.structs.replace(ROW, number=9, snapshot="y", policy="renamed")


@pytest.mark.parametrize(
    "other",
    [
        changed(content="8"),
        changed(draw=2),
        changed(seed=(1, 7, 1)),
        changed(policy=Rules("p", "another text")),
        changed(policy=Rules("p", "text", "{}")),
        changed(setting=TaskSetting(Rules("j", "another judge"))),
        changed(setting=TaskSetting(Rules("j", "judge"), cycles=3)),
        changed(setting=TaskSetting(Rules("j", "judge"), lifted=True)),
    ],
)
def test_a_result_serves_no_other_task(path, other):
    with open_journal(str(path)) as journal:
        assert journal.row_of(other) is None


@pytest.mark.parametrize("kept", [-1, -20, 5])
def test_a_line_that_was_cut_off_is_removed(path, kept):
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    with open_journal(str(path)) as journal:
        assert journal.row_of(TASK) is None
        journal.add(TASK, ROW)
    assert path.read_bytes() == whole


def test_every_flipped_bit_of_a_result_is_seen(path):
    head, line, _ = path.read_bytes().split(b"\n")
    for at in range(len(line)):
        for bit in (1, 4):
            damaged = line[:at] + bytes([line[at] ^ bit]) + line[at + 1 :]
            if b"\n" in damaged:
                continue
            path.write_bytes(head + b"\n" + damaged + b"\n")
            # What names the task may be another name: the result is not taken for this one.
            with contextlib.suppress(PolicyError), open_journal(str(path)) as journal:
                assert journal.row_of(TASK) is None


def test_a_result_that_lacks_a_measure_is_named(path):
    head, line, _ = path.read_bytes().split(b"\n")
    data = json.loads(line)
    del data["row"]["measures"]["runs"]
    text = json.dumps(data["row"], separators=(",", ":"))
    data["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_bytes(head + b"\n" + json.dumps(data, separators=(",", ":")).encode() + b"\n")
    with pytest.raises(PolicyError, match=":2: lacks the measure runs"), open_journal(str(path)):
        pass


def test_a_journal_of_an_earlier_version_is_refused_and_kept(tmp_path):
    file = tmp_path / "journal"
    head = {"apiVersion": "rebalancer/v1", "kind": "ComparisonJournal", "inputs": "f3e5"}
    text = f"{json.dumps(head)}\n{msgspec.json.encode(ROW).decode()}\n"
    file.write_text(text)
    with pytest.raises(PolicyError, match="earlier version"), open_journal(str(file)):
        pass
    assert file.read_text() == text


@pytest.mark.parametrize("text", [b"PK\x03\x04", b'{"kind":"List"}\n{}\n', b"\n", b"plain\ntext"])
def test_a_file_that_is_no_journal_is_refused_and_kept(tmp_path, text):
    file = tmp_path / "cluster.zip"
    file.write_bytes(text)
    with pytest.raises(PolicyError, match="is no journal"), open_journal(str(file)):
        pass
    assert file.read_bytes() == text


def test_no_link_is_followed(tmp_path):
    (tmp_path / "victim").touch()
    (tmp_path / "journal").symlink_to("victim")
    with (
        pytest.raises(PolicyError, match="cannot be opened"),
        open_journal(str(tmp_path / "journal")),
    ):
        pass
    assert (tmp_path / "victim").read_bytes() == b""


def test_two_processes_do_not_write_one_journal(path):
    with (
        open_journal(str(path)),
        pytest.raises(PolicyError, match="another comparison is writing"),
        open_journal(str(path)),
    ):
        pass


def test_a_journal_that_cannot_be_opened_is_an_error(tmp_path):
    with pytest.raises(PolicyError, match="cannot be opened"), open_journal(str(tmp_path)):
        pass
