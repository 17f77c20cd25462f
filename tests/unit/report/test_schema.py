import json
from dataclasses import replace

import msgspec
import pytest

from rebalancer.cli import command
from rebalancer.plan.plan import Code, Status
from rebalancer.report.as_json import as_json
from rebalancer.report.render import LeaseTakenReport, render_lease_taken
from rebalancer.report.schema import Report, report_schema
from tests.unit.report.report_examples import landing, move, outcome, skip


def test_every_report_has_the_keys_and_types_of_the_schema(report):
    one = move("web-0", landing("node-c1", 0.7), landing("node-b1", 0.3), budgets=("shop/web",))
    moves = [
        replace(one, uid=str(status), gain=replace(one.gain, hard=float("nan")))
        for status in Status
    ]
    ends = [
        outcome(each, status, landed="node-c1") for each, status in zip(moves, Status, strict=True)
    ]
    given = report(
        moves=moves,
        outcomes=ends,
        skips=[skip("db-0", code) for code in Code],
        cut="x",
        timings={"read": 0.1},
    )
    read = msgspec.json.decode("".join(as_json(given)), type=Report)
    assert [each.outcome for each in read.moves] == list(Status)
    assert list(json.loads("".join(as_json(given)))) == list(schema_of("Report")["properties"])
    assert msgspec.json.decode("".join(as_json(report(outcomes=[]))), type=Report).moves == []


def test_a_run_that_lost_the_race_for_its_lease_has_them_too(policies):
    loaded = next(iter(policies.values()))
    taken = LeaseTakenReport(source="s", loaded=loaded, holder="h", until="2027-01-15T08:00:00Z")
    assert msgspec.json.decode(render_lease_taken(taken, "json"), type=Report).held_by is not None


@pytest.mark.parametrize(
    "broken", [{"dryRun": 1}, {"moves": {}}, {"unheard": 1}, {"exitCode": -1}, {"mode": "fast"}]
)
def test_the_schema_refuses_what_is_none(report, broken):
    data = json.loads("".join(as_json(report(outcomes=[])))) | broken
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(data), type=Report)


def schema_of(name):
    return report_schema()["$defs"][name]


def test_the_schema_says_what_a_move_is_and_lets_readers_see_newer_keys():
    move_keys = schema_of("MoveOfReport")["properties"]
    assert list(move_keys)[:6] == ["namespace", "pod", "uid", "owner", "from", "landings"]
    assert "additionalProperties" not in schema_of("MoveOfReport")
    assert "makesWayFor" in schema_of("MoveOfReport")["required"]
    assert schema_of("Status")["enum"] == sorted(Status)


def test_the_command_prints_it(capsys):
    assert command(["schema", "report"]) == 0
    assert json.loads(capsys.readouterr().out) == report_schema()
