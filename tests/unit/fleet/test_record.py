"""A folder of snapshots: what is added, what is removed, and what is never half there."""

import json
import os
import shutil
import zipfile
from dataclasses import replace
from random import Random

import pytest

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.cli import command
from rebalancer.fleet.comparison import list_snapshots
from rebalancer.fleet.record import Retention, hold, list_files, prune, record
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.redact import Redactor
from tests.unit.fleet.worlds import skewed
from tests.unit.kube.scripted import (
    Say,
    client_of,
    kubeconfig,
    list_body,
    node,
    owned_pod,
    status_body,
)
from tests.unit.kube.test_capture import TEN, cluster

TICK = 600.0


def pods_at(server, tick):
    """The cluster at a tick: pod b has another node each time, and the clock goes on."""
    cluster(server)
    pods = [owned_pod(f"p-{number}") for number in range(200)]
    noise = Random(1)  # what does not compress, as names and uids do not
    for one in pods:
        one["metadata"]["annotations"] = {"noise": f"{noise.getrandbits(512):x}"}
    pods.append(owned_pod("moves", f"n{tick}"))
    server.on("GET", "/api/v1/pods", Say(list_body(pods)))
    server.on("GET", "/api/v1/nodes", Say(list_body([node(f"n{number}") for number in range(9)])))


@pytest.fixture
def recorded(server, tmp_path):
    """Six ticks."""
    folder = tmp_path / "recorded"
    client = client_of(server.url, tmp_path)
    for tick in range(6):
        pods_at(server, tick)
        server.date = TEN + tick * TICK
        record_into(folder, client, Retention())
    return folder


def record_into(folder, client, retention, written=None):
    """Record once; ``written``: the store's clock, which is the cluster's where nothing else is said."""
    with hold(folder):
        done = record(client, folder, replace(retention, age=None), clock=lambda: TEN)
    by_name = next(file.at for file in list_files(folder) if file.name == done.path.name)
    at = by_name if written is None else written
    os.utime(done.path, (at, at))
    return replace(done, removed=prune(folder, retention))


def test_each_tick_is_a_snapshot_file_as_any_other(recorded):
    assert [file.name for file in list_files(recorded)] == [
        f"20261120T10{minute}000Z.zip" for minute in range(6)
    ]
    for tick, source in enumerate(list_snapshots([str(recorded)])):
        snapshot = load_snapshot(source)
        row = list(snapshot.pods.name).index("moves")
        assert snapshot.nodes.names[int(snapshot.pods.node[row])] == f"n{tick}"
        assert snapshot.captured_at == TEN + tick * TICK
    assert not [path for path in recorded.iterdir() if path.name.endswith(".partial")]


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (Retention(), 6),
        (Retention(age=5 * TICK), 6),
        (Retention(age=4 * TICK), 5),
        (Retention(age=3 * TICK), 4),
        (Retention(age=5 * TICK - 1), 5),
        (Retention(age=1.0), 3),  # never more than half in one go
        (Retention(size=1), 1),  # the newest one
    ],
)
def test_the_oldest_go(recorded, retention, kept):
    before = list_files(recorded)
    assert prune(recorded, retention) == 6 - kept
    assert list_files(recorded) == before[6 - kept :]


def test_a_cluster_that_cannot_be_read_leaves_the_folder_as_it_is(
    recorded, server, tmp_path, sleeps
):
    before = {path.name: path.read_bytes() for path in recorded.iterdir()}
    server.on("GET", "/api/v1/nodes", Say(status_body(500, "InternalError"), status=500))
    client = client_of(server.url, tmp_path, sleeps)
    with pytest.raises(ClusterReadError):
        record_into(recorded, client, Retention())
    assert {path.name: path.read_bytes() for path in recorded.iterdir()} == before


def test_it_goes_on_where_the_clusters_clock_went_back(recorded, server, tmp_path):
    client = client_of(server.url, tmp_path)
    notes, kept = [], list_snapshots([str(recorded)])
    # An hour back, on from there, then back once more.
    for tick, at in ((7, TEN - 3600), (8, TEN - 3600 + TICK), (9, TEN - 7200)):
        pods_at(server, tick)
        server.date = at
        notes.append(record_into(recorded, client, Retention()).note)
    added = [file.name for file in list_files(recorded)][6:]
    assert added == [
        "clock2-20261120T090000Z.zip",
        "clock2-20261120T091000Z.zip",
        "clock3-20261120T080000Z.zip",
    ]
    assert notes[0].startswith("the cluster's clock is not later than in 20261120T105000Z.zip")
    assert [bool(note) for note in notes] == [True, False, True]
    # The order of names is that of the times at which they were taken.
    sources = list_snapshots([str(recorded)])
    assert sources[:6] == kept
    assert [load_snapshot(source).captured_at for source in sources[6:]] == [
        TEN - 3600,
        TEN - 3600 + TICK,
        TEN - 7200,
    ]
    # Ages by times of one clock only: 0; 0, 600; 600, 1200, ...
    assert prune(recorded, Retention(age=2 * TICK)) == 4
    assert prune(recorded, Retention(age=1.0)) == 2
    assert [file.name for file in list_files(recorded)] == added


def test_a_clock_that_was_once_a_year_ahead_holds_back_no_removal(server, tmp_path):
    folder, client = tmp_path / "daily", client_of(server.url, tmp_path)
    for tick, ahead in enumerate([365 * DAY, *[0.0] * 9]):
        pods_at(server, tick)
        server.date = TEN + tick * DAY + ahead
        record_into(folder, client, Retention(age=3 * DAY), TEN + tick * DAY)
    assert [file.at for file in list_files(folder)] == [TEN + day * DAY for day in (6, 7, 8, 9)]


def test_a_second_snapshot_of_the_same_second_replaces_none(recorded, server, tmp_path):
    before = {path.name: path.read_bytes() for path in recorded.iterdir()}
    done = record_into(recorded, client_of(server.url, tmp_path), Retention())
    assert done.note.startswith("the cluster's clock is not later than in 20261120T105000Z.zip")
    after = {path.name: path.read_bytes() for path in recorded.iterdir()}
    assert after.pop(done.path.name)
    assert after == before
    assert list_files(recorded)[-1].name == done.path.name


DAY = 86400.0
WEEK = 7 * DAY


@pytest.mark.parametrize(
    ("cluster_ahead", "store_ahead", "left"),
    [
        (8 * 86400.0, 0.0, 7),
        (0.0, 8 * 86400.0, 7),
        (365000 * 86400.0, 0.0, 7),
        (8 * 86400.0, 8 * 86400.0, 4),  # half of the 7
    ],
)
def test_a_clock_that_jumps_ahead_does_not_remove_the_history(
    recorded, server, tmp_path, cluster_ahead, store_ahead, left
):
    client = client_of(server.url, tmp_path)
    pods_at(server, 6)
    server.date = TEN + 6 * TICK + cluster_ahead
    written = TEN + 6 * TICK + store_ahead
    record_into(recorded, client, Retention(age=WEEK), written)
    assert len(list_files(recorded)) == left
    # And the times after it: the clock is right again.
    pods_at(server, 7)
    server.date = TEN + 7 * TICK
    record_into(recorded, client, Retention(age=WEEK), TEN + 7 * TICK)
    assert len(list_files(recorded)) > left / 2


def test_a_file_that_is_named_after_the_far_future_removes_nothing(recorded):
    shutil.copy(recorded / "20261120T100000Z.zip", recorded / "99991231T235959Z.zip")
    at = TEN + 6 * TICK
    os.utime(recorded / "99991231T235959Z.zip", (at, at))
    assert prune(recorded, Retention(age=2 * 3600)) == 0


def test_links_in_the_folder_are_neither_followed_nor_counted(recorded, server, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("of somebody else")
    for name in (".capture.zip", "..capture.zip.partial"):
        (recorded / name).symlink_to(victim)
    (recorded / "20261120T230000Z.zip").symlink_to(recorded / "20261120T100000Z.zip")
    pods_at(server, 6)
    server.date = TEN + 6 * TICK
    done = record_into(recorded, client_of(server.url, tmp_path), Retention())
    assert victim.read_text() == "of somebody else"
    assert (done.note, done.path.name) == ("", "20261120T110000Z.zip")
    assert not done.path.is_symlink()
    (recorded / ".lock").unlink()
    (recorded / ".lock").symlink_to(victim)
    with pytest.raises(PolicyError, match="cannot be written"):
        record_into(recorded, client_of(server.url, tmp_path), Retention())


def test_what_a_killed_recorder_has_left_is_removed(recorded):
    (recorded / "..capture.zip.0123.partial").write_bytes(b"half")
    with hold(recorded):
        assert not list(recorded.glob(".*.partial"))


def test_two_processes_do_not_record_into_one_folder(tmp_path):
    with (
        hold(tmp_path),
        pytest.raises(PolicyError, match="another process records"),
        hold(tmp_path),
    ):
        pass


def test_the_command_records_once_and_compare_reads_it(server, tmp_path, capsys, monkeypatch):
    cluster(server)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server.url)))
    folder = str(tmp_path / "recorded")
    assert command(["record", "--to", folder, "--keep", "7d", "--max-size", "1Gi"]) == 0
    file = capsys.readouterr().out.strip()
    assert file.endswith(".zip")
    assert command(["compare", "--policies", "default", "--snapshots", folder, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["snapshots"] == [file]


def test_an_address_is_refused_and_no_directory_gets_its_name(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(["record", "--to", "s3://bucket/path"]) == 2
    assert "--to: s3://bucket/path is no directory" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_redacted_no_name_is_written_and_names_stay_equal(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server.url)))
    (tmp_path / "key").write_text("0123456789abcdef-of-the-user\n")
    folder = tmp_path / "recorded"
    args = ["record", "--to", str(folder), "--redact-key-file", str(tmp_path / "key")]
    for tick in range(2):
        pods_at(server, tick)
        server.date = TEN + tick * TICK
        assert command(args) == 0
    printed = capsys.readouterr()
    assert "of-the-user" not in printed.out + printed.err
    first, second = list_files(folder)
    before, after = (load_snapshot(folder / file.name) for file in (first, second))
    redactor = Redactor(b"0123456789abcdef-of-the-user")
    row = list(after.pods.name).index(redactor.pseudonym("moves"))
    assert after.nodes.names[int(after.pods.node[row])] == redactor.pseudonym("n1")
    assert set(before.nodes.names) == set(after.nodes.names)
    with zipfile.ZipFile(folder / first.name) as archive:
        every = b"".join(map(archive.read, archive.namelist()))
    assert b'"moves"' not in every  # its uid has it in this world
    assert b"noise" not in every
    assert server.url.encode() not in every


def test_sizes_are_quantities(tmp_path, capsys):
    assert command(["record", "--to", str(tmp_path), "--max-size", "lots"]) == 2
    assert "max-size" in capsys.readouterr().err


def test_one_file_counts_once_and_hidden_folders_do_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.json", "kept/b.json", ".snapshot/hourly/a.json", "kept/.trash/b.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        skewed(tmp_path / name)
    (tmp_path / "same.json").symlink_to("a.json")
    assert list_snapshots([".", "./a.json", str(tmp_path / "kept/../a.json"), "kept"]) == [
        "a.json",
        "kept/b.json",
    ]
    # A hidden folder that is named itself counts.
    assert list_snapshots([".snapshot"]) == [".snapshot/hourly/a.json"]


def test_what_holds_no_snapshot_is_refused(tmp_path, capsys):
    for name, message in (("empty", "holds no snapshot"), ("none", "no such file or directory")):
        if name == "empty":
            (tmp_path / name).mkdir()
        args = ["compare", "--policies", "default", "--snapshots", str(tmp_path / name)]
        assert command(args) == 2
        assert message in capsys.readouterr().err
