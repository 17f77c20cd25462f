"""Notices: which runs make one, what they say, and their templates."""

import json

import pytest

from rebalancer.base.data_text import fill
from rebalancer.base.errors import PolicyError
from rebalancer.plan.plan import Outcome, Status
from rebalancer.report.notices import PLACEHOLDERS, SHIPPED, load_template, of_error, of_report
from tests.unit.report.test_metrics import move, report

NASTY = '", "text": "<!channel>", "x": "$result\\'


@pytest.mark.parametrize(
    ("outcomes", "more", "result"),
    [
        ([], {}, None),
        ([Outcome(move("one"), Status.PLANNED, "")], {}, None),
        ([Outcome(move("one"), Status.BLOCKED, "")], {}, None),
        ([Outcome(move("one"), Status.PLANNED, "")], {"exit_code": 10}, None),
        ([Outcome(move("one"), Status.PLANNED, "")], {"exit_code": 11}, None),
        ([Outcome(move("one"), Status.EVICTED, "")], {}, "acted"),
        ([Outcome(move("one"), Status.EVICTED, "")], {"exit_code": 4}, "failed"),
        ([], {"exit_code": 2}, "failed"),
        ([], {"standstill": ("12 nodes are NotReady",)}, "stood still"),
    ],
)
def test_a_notice_is_made_of_a_run_that_acted_failed_or_stood_still(outcomes, more, result):
    notice = of_report(report(outcomes, **more))
    assert (None if notice is None else notice.result) == result


def test_the_summary_is_what_a_reader_wants_to_know():
    outcomes = [
        Outcome(move("one"), Status.EVICTED, "", "n-b", predicted=True),
        Outcome(move("two"), Status.FAILED, "answered 500"),
    ]
    notice = of_report(report(outcomes, exit_code=4))
    assert notice is not None
    values = notice.values()
    assert values["summary"] == (
        "Of 2 planned: 1 evicted, 1 failed, 1 of 1 landed on one of several likely nodes. "
        "Evicted: 1 of Deployment/shop/web. "
        "shop/two: failed (answered 500). "
        "Rules unmet: 2 before, 1 planned; they were not counted again."
    )
    assert (values["evicted"], values["unmetBefore"], values["unmetPlanned"]) == ("1", "2", "1")
    assert values["unmetAfter"] == "not known"


@pytest.mark.parametrize("name", SHIPPED)
def test_no_value_breaks_out_of_a_template(name):
    body = json.loads(fill(load_template(name), of_error(NASTY, 1).values()))

    def shape(value):
        if isinstance(value, dict):
            return {key: shape(item) for key, item in value.items()}
        return [shape(item) for item in value] if isinstance(value, list) else type(value)

    assert shape(body) == shape(load_template(name))
    assert json.dumps(NASTY)[1:-1] in json.dumps(body)


def test_a_template_of_ones_own(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text('{"$result": ["$evicted of $$", 1, null]}')
    body = json.loads(fill(load_template(str(file)), of_error("x", 3).values()))
    assert body == {"$result": ["0 of $", 1, None]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is none of plain, slack, teams, and no file"),
        ("{", "is no JSON"),
        ('"$nope"', r"\$nope is no placeholder; known: \$result"),
    ],
)
def test_a_wrong_template_is_refused_before_the_run(tmp_path, text, said):
    file = tmp_path / "mine.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(PolicyError, match=said):
        load_template(str(file))


def test_the_documentation_names_every_placeholder():
    from pathlib import Path  # noqa: PLC0415

    text = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    assert all(f"`${name}`" in text for name in PLACEHOLDERS)
