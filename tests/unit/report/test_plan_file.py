"""Plans read back: what is damaged, or no plan at all, is named with its file and key."""

import gzip
import json
from dataclasses import replace
from io import BytesIO

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.plan.plan import Status
from rebalancer.policy.model import Mode
from rebalancer.report import plan_file
from rebalancer.report.as_json import as_data
from rebalancer.report.plan_file import read_plan
from tests.unit.report.report_examples import landing, move, outcome

NOTHING = BytesIO()


@pytest.fixture
def planned(report):
    """The report of a dry run with a chain."""
    first = move(
        "web-0", landing("node-c1", 0.75), landing("node-b1", 0.25), makes_way_for="uid-web-1"
    )
    return report(moves=[first, move("web-1", wave=2)])


@pytest.fixture
def data(planned):
    return as_data(planned)


def read(data):
    return read_plan("-", BytesIO(json.dumps(data).encode()))


def refusal(data):
    with pytest.raises(PolicyError) as caught:
        read(data)
    [problem] = caught.value.problems
    assert problem.startswith("standard input: ")
    return problem.removeprefix("standard input: ")


def test_json_gives_the_planned_moves(planned, data, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    plan = read_plan(str(path), NOTHING)
    assert plan.moves == planned.plan.moves
    assert (plan.name, plan.source) == (str(path), "https://cluster.example:6443")
    assert plan.captured_at == planned.snapshot.captured_at


@pytest.mark.parametrize(
    ("key", "first"),
    [("moves", "[]"), ("policyHash", '"x"'), ("uid", '"x"'), ("somethingNew", "1")],
)
def test_a_key_that_is_there_twice_is_refused(data, key, first):
    text = json.dumps(data | {"somethingNew": 1})
    twice = text.replace(f'"{key}": ', f'"{key}": {first}, "{key}": ', 1)
    with pytest.raises(PolicyError, match=f"standard input: {key}: the key is there twice"):
        read_plan("-", BytesIO(twice.encode()))


def test_a_plan_may_be_compressed(data, tmp_path):
    path = tmp_path / "plan.json.gz"
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    assert read_plan(str(path), NOTHING).moves == read(data).moves


@pytest.mark.parametrize("damage", [lambda raw: raw[:40], lambda raw: raw[:12] + b"?" * 40])
def test_a_damaged_gzip_file_is_called_so(data, damage):
    packed = damage(gzip.compress(json.dumps(data).encode()))
    with pytest.raises(PolicyError, match="cannot be read"):
        read_plan("-", BytesIO(packed))


def test_a_byte_order_mark_and_what_no_move_needs_do_not_matter(data):
    few = ("apiVersion", "kind", "dryRun", "capturedAt", "policyHash", "moves")
    keys = ("namespace", "pod", "uid", "from", "strategy", "gain", "wave", "makesWayFor")
    least = {key: data[key] for key in few} | {"of a later version": {"x": [1]}}
    least["moves"] = [{key: one[key] for key in keys} for one in data["moves"]]
    text = b"\xef\xbb\xbf" + json.dumps(least).encode()
    assert [m.uid for m in read_plan("-", BytesIO(text)).moves] == ["uid-web-0", "uid-web-1"]


def test_moves_are_taken_by_wave(data):
    data["moves"].reverse()
    assert [m.wave for m in read(data).moves] == [1, 2]


def test_what_an_earlier_apply_dropped_is_no_longer_part_of_the_plan(report):
    moves = [move(f"web-{i}") for i in range(4)]
    ends = [Status.PLANNED, Status.DROPPED, Status.OBSERVED, Status.GONE]
    made = report(moves=moves, outcomes=list(map(outcome, moves, ends)), dry_run=True)
    assert [m.pod for m in read(as_data(made)).moves] == ["web-0", "web-2"]


def test_the_pod_moved_out_of_the_way_in_vain_need_not_be_in_order(data):
    # What is dropped is shown in the wave of what goes before it.
    data["moves"][1]["wave"] = 1
    for one in data["moves"]:
        one["outcome"] = "dropped"
    assert read(data).moves == ()


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("kind", "List", "kind: is 'List', a plan has kind: Report"),
        ("apiVersion", "rebalancer/v2", "apiVersion: is 'rebalancer/v2', a plan has apiVersion: rebalancer/v1"),
        ("dryRun", False, "dryRun: is False: the report of a run that has acted is no plan"),
        ("capturedAt", "yesterday", "capturedAt: 'yesterday' is no time"),
        ("capturedAt", 5, "capturedAt: expected `str | null`, got `int`"),
        ("policyHash", None, "policyHash: expected `str`, got `null`"),
        ("moves", {}, "moves: expected `array`, got `object`"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_named_and_what_to_do(data, key, value, says):
    problem = refusal({**data, key: value})
    assert problem.startswith(says)
    assert problem.endswith("make a new plan: rebalancer run --dry-run -o json")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("uid", "", "moves[1].uid: expected `str` of length >= 1"),
        ("uid", "x" * 400, "moves[1].uid: expected `str` of length <= 253"),
        ("uid", 7, "moves[1].uid: expected `str`, got `int`"),
        ("wave", 0, "moves[1].wave: expected `int` >= 1"),
        ("wave", "1", "moves[1].wave: expected `int`, got `str`"),
        ("gain", {"hard": 1, "soft": 0}, "moves[1].gain.imbalance: is missing"),
        ("gain", {"hard": None, "soft": 0, "imbalance": 0}, "moves[1].gain.hard: expected `float`, got `null`"),
        ("landings", [{"node": "n", "probability": 2}], "moves[1].landings[0].probability: expected `float` <= 1.0"),
        ("uid", "uid-web-0", "moves[1].uid: stands in moves[0], too"),
    ],
)  # fmt: skip
def test_a_wrong_key_of_a_move_is_named(data, key, value, says):
    data["moves"][1][key] = value
    assert refusal(data).startswith(says)


@pytest.mark.parametrize("key", ["namespace", "pod", "uid", "from", "strategy", "gain", "wave"])
def test_what_a_move_cannot_do_without_must_be_there(data, key):
    del data["moves"][0][key]
    assert refusal(data).startswith(f"moves[0].{key}: is missing")


def test_the_pod_in_the_way_goes_in_an_earlier_wave(data):
    data["moves"][1]["wave"] = 1
    assert refusal(data).startswith("moves[0].makesWayFor: moves[1] is in wave 1, not after wave 1")


def test_no_pod_is_moved_out_of_the_way_for_itself(data):
    data["moves"][0]["makesWayFor"] = "uid-web-0"
    assert refusal(data).startswith("moves[0].makesWayFor: moves[0] is in wave 1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b'{"apiVersion": "rebalancer/v1", "kind": "Rep', "is no JSON, or cut off"),
        (b"[1, 2]", "is no report: expected `object`, got `array`"),
        (b"Dry run with the built-in default policy", "is no JSON"),
        (b"kind: Report", "is no JSON"),
        (b"\xff\xfe{\x00}\x00", "is no JSON"),
        (b'{"kind": "\xff"}', "is n"),
        (b"{" * 100_000, "is no JSON"),
        (b'{"skipped": ' + b"[" * 100_000, "is no JSON, or cut off"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(text, says):
    with pytest.raises(PolicyError) as caught:
        read_plan("-", BytesIO(text))
    [problem] = caught.value.problems
    assert problem.startswith(f"standard input: {says}")
    assert "\n" not in problem


def test_text_that_is_no_text_is_refused(data):
    data["moves"][0]["uid"] = "?"
    text = json.dumps(data).replace('"?"', '"\\ud800"')
    with pytest.raises(PolicyError, match="standard input: "):
        read_plan("-", BytesIO(text.encode()))


def test_size_is_bounded(data, monkeypatch):
    text = json.dumps(data).encode()
    monkeypatch.setattr(plan_file, "_MAX_BYTES", len(text))
    assert len(read(data).moves) == 2
    monkeypatch.setattr(plan_file, "_MAX_BYTES", len(text) - 1)
    assert "jq 'del(.skipped)'" in refusal(data)


def test_a_plan_beyond_a_limit_is_refused(data):
    data["moves"], move = "$", json.dumps(data["moves"][1])
    text = json.dumps(data).replace('"$"', f"[{', '.join([move] * 100_001)}]")
    with pytest.raises(PolicyError, match=r"standard input: moves: .*100000"):
        read_plan("-", BytesIO(text.encode()))
    with pytest.raises(PolicyError, match="standard input: is larger than 128 MiB"):
        read_plan("-", BytesIO(b" " * ((128 << 20) + 1)))


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(PolicyError, match=r"^/nowhere/plan\.json: cannot be read"):
        read_plan("/nowhere/plan.json", NOTHING)


# -- held against the policy, and the time ------------------------------------------------------------------


def test_another_policy_is_refused(data, policies):
    plan = read(data)
    plan.check_policy(policies[Mode.ENFORCE])
    with pytest.raises(
        PolicyError, match=r"policyHash: .*\(policy\.yaml\).*give the same --policy"
    ):
        read({**data, "policyHash": "0" * 64}).check_policy(policies[Mode.ENFORCE])


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.OFF])
def test_a_policy_that_lets_nothing_be_moved_is_refused(data, policies, mode):
    loaded = policies[mode]
    plan = read({**data, "policyHash": loaded.policy_hash})
    with pytest.raises(PolicyError, match=f"policy policy.yaml is in mode {mode}"):
        plan.check_policy(loaded)


def test_a_strategy_that_the_policy_does_not_have_is_refused(data, policies):
    data["moves"][1]["strategy"] = "chaos"
    with pytest.raises(PolicyError, match="the move of shop/web-1: strategy: 'chaos' is none"):
        read(data).check_policy(policies[Mode.ENFORCE])


@pytest.mark.parametrize(
    ("later", "says"),
    [
        (3600, None),
        (3700, "is 1h1m old, older than --max-age 1h"),
        (-60, None),
        (-61, "lies 1m1s in the future"),
    ],
)
def test_age_is_bounded_both_ways(data, later, says):
    plan = read(data)
    now = plan.captured_at + later
    if says is None:
        replace(plan, max_age=3600).check_age(now, 60)
        return
    with pytest.raises(PolicyError, match=says):
        replace(plan, max_age=3600).check_age(now, 60)


def test_an_old_plan_without_moves_harms_no_pod(report):
    plan = read(as_data(report()))
    replace(plan, max_age=3600).check_age(plan.captured_at + 1e6, 60)
