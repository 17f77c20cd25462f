"""``rebalancer compare`` as people call it."""

import io
import json
from contextlib import redirect_stdout

import pytest

from rebalancer.cli import command
from tests.unit.fleet.worlds import skewed, write_policies


class World:
    """Ten snapshots, two policies, and what comparing them has given."""

    def __init__(self, folder):
        self.policies, self.snapshots = write_policies(folder), folder / "recorded"
        self.snapshots.mkdir()
        for number in range(10):
            skewed(self.snapshots / f"{number}.json", 1 + number)
        out = io.StringIO()
        with redirect_stdout(out):
            assert command([*self.words, "-o", "json"]) == 0
        self.text = out.getvalue()

    @property
    def words(self):
        return [
            *("compare", "--policies", *self.policies),
            *("--snapshots", str(self.snapshots), "--draws", "1"),
        ]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return World(tmp_path_factory.mktemp("compared"))


def test_what_is_better_by_construction_is_named_in_each_form(played, capsys):
    spread, idle = played.policies
    data = json.loads(played.text)
    better = {of["measure"]: of["better"] for of in data["verdicts"] if of["better"]}
    assert better["softLeft"] == spread
    assert better["evictions"] == idle
    assert len(data["rows"]) == 20
    assert data["policies"][0]["measures"]["softLeft"]["mean"] == 0
    assert command(played.words) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "2 policies on 10 snapshots, 20 simulations" in text
    assert f"{idle} is better: 5.5 fewer evictions" in text
    assert command([*played.words, "-o", "html"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("<!DOCTYPE html>")
    assert f"{idle} is better: 5.5 fewer evictions" in page


def test_several_processes_give_the_same_bytes(played, capsys):
    assert command([*played.words, "-o", "json", "--jobs", "2"]) == 0
    assert capsys.readouterr().out == played.text


def test_copies_and_recordings_of_one_state_are_no_evidence(played, tmp_path, capsys):
    folder = tmp_path / "copies"
    folder.mkdir()
    for number in range(10):
        items = json.loads((played.snapshots / "4.json").read_text())
        if number % 2:
            at = f"2030-11-2{number}T10:00:00Z"
            items["metadata"] = {"annotations": {"rebalancer/captured-at": at}}
        (folder / f"{number}.json").write_text(json.dumps(items))
    words = ["compare", "--policies", *played.policies, "--snapshots", str(folder), "--draws", "2"]
    assert command(words) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "10 snapshots count as 1: those of one cluster in one state" in text
    assert "is better" not in text
    assert "Neither is shown to be better." in text


@pytest.fixture
def policies(tmp_path):
    return write_policies(tmp_path)


@pytest.fixture
def snapshots(tmp_path):
    folder = tmp_path / "recorded"
    folder.mkdir()
    for number in range(3):
        skewed(folder / f"{number}.json", 1 + number)
    return str(folder)


def compared(capsys, policies, snapshots, *args, code=0):
    words = ["compare", "--policies", *policies, "--snapshots", snapshots, "--draws", "1", *args]
    assert command(words) == code
    return capsys.readouterr()


def test_a_damaged_snapshot_fails_alone_with_code_4(policies, snapshots, tmp_path, capsys):
    (tmp_path / "recorded" / "1.json").write_text('{"kind": "List", "items": [')
    printed = compared(capsys, policies, snapshots, code=4)
    text = " ".join(printed.out.split())  # lines are as wide as the terminal
    assert "1.json: cut off" in text
    assert "2 policies on 2 snapshots, 6 simulations" in text
    assert "rebalancer: 2 of 6 simulations failed" in printed.err


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
