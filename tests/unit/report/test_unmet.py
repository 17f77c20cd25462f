"""Why rules stay unmet after a run, and how alike ones are shown together."""

import pytest

from rebalancer.plan.plan import Cost, Score, Status, UnmetRule
from rebalancer.report.as_text import as_table
from rebalancer.report.model import group_rules, rules_left
from tests.unit.report.report_examples import move, outcome

WEB = "Deployment/shop/web"


def rule(name=WEB, codes=None, why="", **more):
    return UnmetRule("anti-affinity", f"{name} apart", name, codes or {}, why, **more)


@pytest.mark.parametrize(
    ("ends", "planned", "code", "why"),
    [
        ((Status.DROPPED, "NoGain: no"), (), "dropped", "NoGain: no"),
        ((Status.EVICTED, ""), (rule(codes={"Unsure": 3}, why="half"),), "Unsure", "half"),
        ((Status.EVICTED, ""), (), "MovedNow", "a replacement has no node yet"),
        (None, (), "CameUp", "it came up while the run acted"),
    ],
)  # fmt: skip
def test_what_is_unmet_after_a_run_has_the_reason_of_its_moves_or_of_the_plan(
    report, ends, planned, code, why
):
    one = move() if ends else move(owner="Deployment/shop/other")
    done = outcome(one, *(ends or (Status.EVICTED, "")))
    given = report(
        moves=[one],
        outcomes=[done],
        unmet=planned,
        now={"anti-affinity": Score(Cost(), 1)},
        unmet_now=(rule(),),
    )
    (left,) = rules_left(given)
    assert list(left.codes) == [code]
    assert left.why.startswith(why)
    text = " ".join(as_table(given).split())
    assert f"Unmet now: 1 rule anti-affinity: 1 rule, {code} {WEB} apart: {why}" in text


def test_rules_with_one_reason_are_one_group_and_all_of_them_are_named_when_asked(report):
    rules = [rule(f"Deployment/shop/w{i:02}", {"Budget": 2}, "perRun 20") for i in range(30)]
    rules.append(rule(codes={"Unsure": 2, "Budget": 1}, why="half"))
    first, second = group_rules(rules)
    assert (first.heading, first.rules) == ("anti-affinity: 30 rules, Budget", 30)
    assert second.names == (f"{WEB} apart (2 Unsure, 1 Budget)",)
    given = report(unmet=tuple(rules), outcomes=[])
    assert "Deployment/shop/w29" not in as_table(given)
    wide = " ".join(as_table(given, wide=True).split())
    assert all(f"Deployment/shop/w{i:02} apart" in wide for i in range(30))
