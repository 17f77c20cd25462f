"""``rebalancer compare`` as people call it."""

import json

import pytest

from rebalancer.cli import command
from rebalancer.fleet import work
from tests.unit.fleet.worlds import skewed, write_policies


@pytest.fixture
def policies(tmp_path):
    return write_policies(tmp_path)


@pytest.fixture
def snapshots(tmp_path):
    folder = tmp_path / "recorded"
    folder.mkdir()
    for number in range(10):
        skewed(folder / f"{number}.json", 1 + number % 3)
    return str(folder)


def compared(capsys, policies, snapshots, *args, code=0):
    words = ["compare", "--policies", *policies, "--snapshots", snapshots, "--draws", "1", *args]
    assert command(words) == code
    return capsys.readouterr()


def test_what_is_better_by_construction_is_named_in_each_form(policies, snapshots, capsys):
    spread, idle = policies
    data = json.loads(compared(capsys, policies, snapshots, "-o", "json").out)
    better = {of["measure"]: of["better"] for of in data["verdicts"] if of["better"]}
    assert better["softLeft"] == spread
    assert better["evictions"] == idle
    assert len(data["rows"]) == 20
    assert data["policies"][0]["measures"]["softLeft"]["mean"] == 0
    text = " ".join(compared(capsys, policies, snapshots).out.split())
    assert "2 policies on 10 snapshots, 20 simulations" in text
    assert f"{idle} is better: 1.9 fewer evictions" in text
    page = compared(capsys, policies, snapshots, "-o", "html").out
    assert page.startswith("<!DOCTYPE html>")
    assert f"{idle} is better: 1.9 fewer evictions" in page
    assert page.count("<circle") == 20 * 10


def test_processes_and_a_resumed_journal_give_the_same_bytes(policies, snapshots, tmp_path, capsys):
    expected = compared(capsys, policies, snapshots, "-o", "json").out
    journal = tmp_path / "journal"
    args = ["--resume", str(journal), "-o", "json", "--jobs", "2"]
    assert compared(capsys, policies, snapshots, *args).out == expected
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:6]) + lines[6][:40])
    assert compared(capsys, policies, snapshots, *args[:-2]).out == expected
    assert sorted(journal.read_bytes().splitlines()) == sorted(b"".join(lines).splitlines())


def test_a_resumed_comparison_plays_nothing_again(
    policies, snapshots, tmp_path, capsys, monkeypatch
):
    args = ["--resume", str(tmp_path / "journal")]
    expected = compared(capsys, policies, snapshots, *args).out
    monkeypatch.setattr(work, "work", None)
    assert compared(capsys, policies, snapshots, *args).out == expected


def test_a_damaged_snapshot_fails_alone_with_code_4(policies, snapshots, tmp_path, capsys):
    (tmp_path / "recorded" / "3.json").write_text('{"kind": "List", "items": [')
    printed = compared(capsys, policies, snapshots, code=4)
    text = " ".join(printed.out.split())  # lines are as wide as the terminal
    assert "3.json: cut off" in text
    assert "2 policies on 9 snapshots, 20 simulations" in text
    assert "rebalancer: 2 of 20 simulations failed" in printed.err


def test_a_policy_with_a_scheduler_configuration_is_played_with_it(snapshots, tmp_path, capsys):
    (tmp_path / "scheduler.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "percentageOfNodesToScore: 100\n"
    )
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nscheduler: {fromConfig: scheduler.yaml}\n"
        "strategies: {topology-spread: {}}\n"
    )
    printed = compared(capsys, [str(policy), "default"], snapshots)
    assert "Failed" not in printed.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--policies", "default", "default", "--snapshots", "recorded"], "default is there twice"),
        (["--policies", "no.yaml", "--snapshots", "recorded"], "does not exist"),
        (["--policies", "default", "--snapshots", "nowhere"], "no such file or directory"),
        (["--policies", "default", "--snapshots", "."], "holds no snapshot"),
        (["--snapshots", "recorded"], "Missing option '--policies'"),
        (["--policies", "default", "--snapshots", "recorded", "--draws", "0"], "not in the range"),
    ],
)
def test_wrong_uses_end_with_code_2(args, message, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    if "recorded" in args:
        (folder / "recorded").mkdir()
        skewed(folder / "recorded" / "1.json")
    assert command(["compare", *args]) == 2
    assert message.lower() in capsys.readouterr().err.lower()
