"""The search finds what is planted, recommends only what unseen snapshots bear out, and is the same whatever plays it."""

import json
import sys
from random import Random

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.cli import command
from rebalancer.fleet.compare import Inputs
from rebalancer.fleet.measures import MEASURES
from rebalancer.fleet.task import Failure, Row, Rules, TaskSetting
from rebalancer.fleet.tune import Bounds, Goal, Search, tune
from rebalancer.fleet.tuning_report import as_data, as_html, as_text
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from tests.unit.fleet.worlds import SPREAD, skewed


class Formula:
    """An engine that plays nothing: measures by a formula of the policy's settings."""

    def __init__(self, formula, shuffled=None):
        self.formula, self.shuffled, self.played = formula, shuffled, 0

    def run(self, tasks):
        results = [self.result(task) for task in tasks]
        self.played += len(results)
        if self.shuffled is not None:
            Random(self.shuffled).shuffle(results)
        yield from results

    def result(self, task):
        values = self.formula(dict(json.loads(task.policy.text)), task)
        if values is None:
            return Failure(task.number, task.policy.name, task.snapshot, task.draw, "cut off")
        measures = {of.key: 0.0 for of in MEASURES} | values
        return Row(
            task.number, task.policy.name, task.snapshot, task.draw, 1, 1, True, measures, {}
        )


def as_text_of(settings, name):
    if dict(settings).get("a") == "7":
        raise PolicyError(["a: 7 is no value"])
    return Rules(name, json.dumps(settings))


def search_of(folder, *vary, snapshots=12, trials=40, weigh=()):
    files = []
    for number in range(snapshots):
        file = folder / f"{number:02d}.json"
        file.write_text(str(number))
        files.append(str(file))
    setting = TaskSetting(Rules("judge", ""))
    inputs = Inputs((as_text_of((), "p"),), tuple(files[:-6]), 2, 0, setting)
    space = tuple(map(Bounds.parse, vary))
    return Search(space, Goal.parse(weigh), inputs, tuple(files[-6:]), trials)


def run(search, formula, **flags):
    engine = Formula(formula, flags.pop("shuffled", None))
    arguments = {"journal_path": None, "reached": lambda *_: None} | flags
    return tune(search, as_text_of, engine, **arguments), engine


def bowl(settings, task):
    """What is left is least at a = 30, and b makes no difference; evictions are the same."""
    a = float(settings.get("a", "90"))
    return {"softLeft": abs(a - 30) / 10 + task.draw, "evictions": 4.0}


def test_the_planted_value_is_come_near_and_what_makes_no_difference_is_dropped(tmp_path):
    search = search_of(tmp_path, "a=10..99", "b=x,y")
    tuning, _ = run(search, bowl)
    (key, value) = tuning.recommended.settings[0]
    assert (len(tuning.recommended.settings), key) == (1, "a")
    assert abs(int(value) - 30) <= 3
    assert tuning.check.result == "confirmed"
    assert tuning.given.left == 6.5
    (reason,) = tuning.reasons
    assert reason.without == tuning.given
    text = " ".join(as_text(tuning, search).split())
    assert f"Recommended: --set a={value}" in text
    assert "tuned is better" in text


def test_few_policies_are_all_tried_each_once(tmp_path):
    search = search_of(tmp_path, "a=28..31", "b=x,y")
    tuning, engine = run(search, bowl)
    assert {one.settings for one in tuning.tried if len(one.settings) == 2} == {
        (("a", str(a)), ("b", b)) for a in range(28, 32) for b in "xy"
    }
    assert tuning.recommended.settings == (("a", "30"),)
    # The given one, eight, and the best without a, and without b; 6 snapshots, 2 draws; then two policies on six others.
    assert engine.played == (1 + 8 + 2) * 12 + 2 * 12


def trade(settings, task):
    """Each further eviction leaves less, and each one less of it."""
    evictions = float(settings.get("a", "0"))
    return {"evictions": evictions, "softLeft": 100 / (10 + evictions)}


def test_the_frontier_is_all_that_no_other_policy_dominates(tmp_path):
    def with_waste(settings, task):
        return trade(settings, task) | (
            {"softLeft": 20.0} if settings.get("a") in ("3", "5") else {}
        )

    tuning, _ = run(search_of(tmp_path, "a=1..6"), with_waste)
    assert [one.evictions for one in tuning.frontier] == [0, 1, 2, 4, 6]
    # 100 / (10 + e) + e / 2 is least near 4.1; 4 is the best of those that were tried.
    assert tuning.recommended.settings == (("a", "4"),)


def test_what_an_eviction_counts_moves_the_recommendation(tmp_path):
    search = search_of(tmp_path, "a=1..6", weigh=["evictions=1"])
    assert run(search, trade)[0].best is None
    page = as_html(run(search, trade)[0], search)
    assert "Keep the given policy" in page
    assert page.count('class="dot"') == 6


def test_what_unseen_snapshots_do_not_bear_out_is_not_recommended(tmp_path):
    def overfit(settings, task):
        seen = int(task.snapshot[-7:-5]) < 6
        return {"softLeft": 1.0 if bool(settings) is seen else 2.0}

    tuning, _ = run(search_of(tmp_path, "a=1,2"), overfit)
    assert tuning.best.settings
    assert (tuning.check.result, tuning.recommended) == ("not better", None)


def test_more_left_for_hard_rules_is_never_recommended(tmp_path):
    def tempting(settings, task):
        return {"hardLeft": float(bool(settings)), "softLeft": 0.0 if settings else 99.0}

    assert run(search_of(tmp_path, "a=1,2"), tempting)[0].best is None


def test_values_that_make_no_valid_policy_are_counted_and_left_out(tmp_path):
    tuning, _ = run(search_of(tmp_path, "a=6..9"), bowl)
    assert tuning.invalid == 1
    assert ("a", "7") not in [one.settings[0] for one in tuning.tried]


def test_a_snapshot_that_fails_is_named_once_and_played_no_more(tmp_path):
    def torn(settings, task):
        return None if task.snapshot.endswith("03.json") else bowl(settings, task)

    search = search_of(tmp_path, "a=28..31")
    tuning, _ = run(search, torn)
    assert [(of.snapshot[-7:], of.policy) for of in tuning.failures] == [("03.json", "given")] * 2
    # As in the data of a comparison, the number of its task is with each.
    data = as_data(tuning, search, "default")["failures"]
    assert [of["number"] for of in data] == [of.number for of in tuning.failures]
    assert tuning.recommended.settings == (("a", "30"),)


def test_the_order_of_results_and_an_interruption_change_nothing(tmp_path):
    search = search_of(tmp_path, "a=10..99", "c=0.5..4", trials=25)
    expected, engine = run(search, bowl)
    assert run(search, bowl, shuffled=3)[0] == expected
    journal = tmp_path / "journal"
    assert run(search, bowl, journal_path=str(journal))[0] == expected
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:9])
    resumed, left = run(search, bowl, journal_path=str(journal))
    assert resumed == expected
    assert left.played < engine.played * 0.6


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("budgets.perRun=5%..30%", ("5%", "30%")),
        ("w=0.5..4", ("0.5", "4.0")),
        ("protect.minPodAge=1m..9m", ("1m", "9m")),
        ("eagerness=careful, eager", ("careful", "eager")),
    ],
)
def test_bounds(text, ends):
    assert Bounds.parse(text).ends == ends


@pytest.mark.parametrize(
    "text", ["x", "=1..2", "x=1", "x=5..1", "x=1%..2", "x=1m..2h", "x=a,", "x=a,a"]
)
def test_bounds_that_are_none(text):
    with pytest.raises(PolicyError, match="--vary"):
        Bounds.parse(text)


OBSERVE = SPREAD.replace("kind: Policy", "kind: Policy\nmode: observe")


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recorded").mkdir()
    for number in range(10):
        skewed(tmp_path / "recorded" / f"{number}.json", 1 + number)
    (tmp_path / "observe.yaml").write_text(OBSERVE)
    return tmp_path


ARGS = ["tune", "--policy", "observe.yaml", "--vary", "mode=observe,enforce", "--draws", "1"]


def test_the_command_writes_a_policy_that_loads_with_its_reasons(recorded, capsys):
    args = [*ARGS, "--snapshots", *(f"recorded/{number}.json" for number in range(4))]
    args += ["--unseen", *(f"recorded/{number}.json" for number in range(4, 10)), "--out", "t.yaml"]
    assert command([*args, "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["recommended"] == {"mode": "enforce"}
    assert data["check"]["result"] == "confirmed"
    # 1, 2, 3 and 4 workloads, each with one pod to move for its spread, and one duplicate; one eviction fixes both.
    assert data["given"] == {
        "settings": {},
        "evictions": 0,
        "left": 5,
        "total": 5,
        "hardLeft": 0,
    }
    assert data["best"]["total"] == 1.25
    text = (recorded / "t.yaml").read_text()
    assert "# mode=enforce: without it the total is 3.75 higher" in text
    assert load_text(text.encode(), "t.yaml", Registry.installed()).policy.mode == "enforce"


def test_a_state_that_was_searched_is_not_unseen_when_it_is_recorded_again(recorded, capsys):
    for number in range(10):
        file = recorded / "recorded" / f"{number}.json"
        data = json.loads(skewed(file, 2).read_text())
        at = f"2030-11-20T10:{number:02}:00Z"
        data["metadata"] = {"annotations": {"rebalancer/captured-at": at}}
        file.write_text(json.dumps(data))
    assert command([*ARGS, "--snapshots", "recorded", "--out", "t.yaml"]) == 0
    assert "Not checked: " in capsys.readouterr().out
    assert not (recorded / "t.yaml").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--vary", "eagernes=a,b", "--snapshots", "recorded"], "eagernes"),
        (["--vary", "eagerness=careful,wild", "--snapshots", "recorded"], "wild"),
        (["--vary", "mode=observe,enforce", "--snapshots", "recorded/1.json"], "two or more"),
        (
            ["--vary", "mode=observe,enforce", "--snapshots", "recorded", "--unseen", "recorded"],
            "--unseen: recorded/0.json is in --snapshots",
        ),
        (["--vary", "mode=observe,enforce"] * 2 + ["--snapshots", "recorded"], "twice"),
        (
            ["--vary", "mode=observe,enforce", "--weigh", "joy=1", "--snapshots", "recorded"],
            "there is no measure 'joy'",
        ),
        (["--snapshots", "recorded"], "missing option '--vary'"),
        (["--policy", "-", "--vary", "mode=observe,enforce", "--snapshots", "recorded"], "name a"),
    ],
)
def test_wrong_uses_end_with_code_2(args, message, recorded, capsys):
    assert command(["tune", *args]) == 2
    assert message in capsys.readouterr().err


def test_without_optuna_the_extra_is_named(recorded, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert command([*ARGS, "--snapshots", "recorded"]) == 2
    assert "pip install '.[tune]' in a checkout" in capsys.readouterr().err
