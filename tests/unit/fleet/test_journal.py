"""A journal goes on where it stood, and harms no other file."""

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.fleet.compare import open_journal
from rebalancer.fleet.task import LeftByRule, Row

ROW = Row(
    3, "p", "x", 1, 2, 3, True, {"evictions": 1.5}, {"taints": LeftByRule(1, 0.5, 0, 2)}, ("w",)
)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "journal"
    with open_journal(str(file), "inputs") as journal:
        assert journal.rows == {}
        journal.add(ROW)
    return file


def test_it_holds_what_was_added(path):
    with open_journal(str(path), "inputs") as journal:
        assert journal.rows == {3: ROW}


@pytest.mark.parametrize("kept", [-1, -20, 5])
def test_a_line_that_was_cut_off_is_removed(path, kept):
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    with open_journal(str(path), "inputs") as journal:
        assert journal.rows == {}
        journal.add(ROW)
    assert path.read_bytes() == whole


def test_another_comparison_is_refused_and_the_file_is_kept(path):
    before = path.read_bytes()
    with pytest.raises(PolicyError, match="holds another comparison"), open_journal(str(path), "x"):
        pass
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", [b"PK\x03\x04", b'{"kind":"List"}\n{}\n', b"\n", b"plain\ntext"])
def test_a_file_that_is_no_journal_is_refused_and_kept(tmp_path, text):
    file = tmp_path / "cluster.zip"
    file.write_bytes(text)
    with pytest.raises(PolicyError, match="is no journal"), open_journal(str(file), "inputs"):
        pass
    assert file.read_bytes() == text


def test_two_processes_do_not_write_one_journal(path):
    with (
        open_journal(str(path), "inputs"),
        pytest.raises(PolicyError, match="another comparison is writing"),
        open_journal(str(path), "inputs"),
    ):
        pass


def test_a_journal_that_cannot_be_opened_is_an_error(tmp_path):
    with pytest.raises(PolicyError, match="cannot be opened"), open_journal(str(tmp_path), "i"):
        pass
