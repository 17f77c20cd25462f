import json
import math
from dataclasses import replace
from html.parser import HTMLParser

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.plan.outcome import Status
from rebalancer.plan.plan import Code, Cost, Score
from rebalancer.report import as_json as json_report
from rebalancer.report import render as rendering
from rebalancer.report.as_json import as_data, as_yaml, plain
from rebalancer.report.render import FORMS
from tests.unit.report.report_examples import ZONE, landing, move, outcome, skip

EVIL = "<script>alert(1)</script>\"'&\x1b[2J{{ }} $title ${x}"


@pytest.fixture
def full(report):
    """A report in which everything occurs."""
    one = move("web-0", landing("node-c1", 0.7), landing("node-b1", 0.3), budgets=("shop/web",))
    two = move("web-1", wave=2)
    return report(
        moves=[one, two],
        outcomes=[
            outcome(
                one,
                Status.EVICTED,
                "replaced by web-9",
                landed="node-c1",
                predicted=True,
                seconds=2.14159,
            ),
            outcome(two, Status.BLOCKED, "shop/web allows no disruption"),
        ],
        skips=[skip("db-0", Code.PDB, "shop/db allows no disruption")],
        warnings=("careful",),
        timings={"read": 1.23456, "plan": 0.1},
        cut="because",
        exit_code=4,
    )


def as_json(of):
    return "".join(json_report.as_json(of))


def render(of, form):
    return "".join(rendering.render(of, form))


# -- JSON ----------------------------------------------------------------------------------------------


def test_the_pieces_are_the_whole_as_the_library_would_write_it(full, report):
    for each in (full, report(moves=[], outcomes=[], skips=[])):
        whole = msgspec.json.format(msgspec.json.encode(as_data(each)), indent=2).decode()
        assert as_json(each) == f"{whole}\n"


def test_moves_and_skipped_pods_come_one_by_one(full):
    pieces = list(json_report.as_json(full))
    assert [sum(name in piece for piece in pieces) for name in ("web-0", "web-1", "db-0")] == [
        1,
        1,
        1,
    ]
    assert not [piece for piece in pieces if "web-0" in piece and "web-1" in piece]


def test_the_json_has_these_keys_in_this_order(full):
    assert list(json.loads(as_json(full))) == [
        "apiVersion",
        "kind",
        "dryRun",
        "mode",
        "source",
        "capturedAt",
        "serverVersion",
        "policySource",
        "policyHash",
        "nodes",
        "pods",
        "before",
        "after",
        "lowerBound",
        "moves",
        "skipped",
        "funnel",
        "rest",
        "stopped",
        "standstill",
        "cut",
        "heldBy",
        "reviewedPlan",
        "warnings",
        "exitCode",
        "timings",
    ]


def test_a_move_in_the_json(full):
    assert as_data(full)["moves"][0] == {
        "namespace": "shop",
        "pod": "web-0",
        "uid": "uid-web-0",
        "owner": "Deployment/shop/web",
        "from": "node-a1",
        "landings": [
            {"node": "node-c1", "probability": 0.7, "domains": {ZONE: "zone-c"}},
            {"node": "node-b1", "probability": 0.3, "domains": {ZONE: "zone-b"}},
        ],
        "strategy": "anti-affinity",
        "reason": "Deployment/shop/web apart over zones (preferred): zone-a 2, zone-c 0",
        "gain": {"hard": 0, "soft": 1, "imbalance": 0},
        "cost": 1,
        "wave": 1,
        "budgets": ["shop/web"],
        "observed": False,
        "makesWayFor": None,
        "outcome": "evicted",
        "message": "replaced by web-9",
        "landed": "node-c1",
        "predicted": True,
        "seconds": 2.142,
    }


def test_scores_skips_and_the_rest_in_the_json(full):
    data = as_data(full)
    assert data["before"]["anti-affinity"] == {
        "hard": 0,
        "soft": 1,
        "imbalance": 0,
        "violated": 1,
        "unsatisfiable": [],
        "notJudged": [],
    }
    assert data["skipped"] == [
        {
            "namespace": "shop",
            "pod": "db-0",
            "node": "node-a1",
            "strategy": "anti-affinity",
            "code": "PodDisruptionBudget",
            "message": "shop/db allows no disruption",
        }
    ]
    assert (data["capturedAt"], data["serverVersion"]) == ("2027-01-15T08:00:00Z", "1.36")
    assert (data["nodes"], data["pods"], data["lowerBound"]) == (8, 3, 2)
    assert (data["cut"], data["exitCode"], data["timings"]) == (
        "because",
        4,
        {"read": 1.235, "plan": 0.1},
    )
    assert len(data["policyHash"]) == 64


def test_strategies_are_sorted_and_the_funnel_keeps_its_order(report):
    left = Score(Cost(), 0)
    data = as_data(report(outcomes=[], before={"b": left, "a": left}))
    assert list(data["before"]) == ["a", "b"]
    assert list(data["funnel"]) == ["pods", "movable", "candidates", "moves"]


def test_only_the_timings_tell_two_runs_apart(full):
    other = replace(full, timings={"read": 9.0, "plan": 8.0})
    first, second = json.loads(as_json(full)), json.loads(as_json(other))
    assert first.pop("timings") != second.pop("timings")
    assert first == second
    assert as_json(full) == as_json(replace(full))


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_number_becomes_json_that_stays_close_to_it(value):
    written = plain(value)
    text = json.dumps(written, allow_nan=False)
    assert text != "-0"
    if math.isfinite(value):
        assert json.loads(text) == pytest.approx(value, rel=1e-8, abs=0)
    else:
        assert written is None


def test_yaml_holds_what_json_holds(full):
    assert yaml.safe_load(as_yaml(full)) == json.loads(as_json(full))


def test_foreign_text_survives_json_and_yaml_as_it_is(report):
    given = report(moves=[move(EVIL)], warnings=[EVIL])
    assert json.loads(as_json(given))["moves"][0]["pod"] == EVIL
    assert yaml.safe_load(as_yaml(given))["warnings"] == [EVIL]


# -- HTML ----------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Tags that are open, tags and attributes that occurred, text."""

    _VOID = frozenset({"meta", "br"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], set(), set(), ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_tells_what_the_table_tells(full):
    page = Page(render(full, "html"))
    assert page.open == []
    for words in (
        "Run with policy policy.yaml",
        "shop/web-0",
        "node-c1 (zone-c) after 2.1 s, as predicted (70 %)",
        "1 PodDisruptionBudget: a PodDisruptionBudget allows no disruption now",
        "Stopped early: because.",
        "1 evicted, 1 blocked by a PodDisruptionBudget, 1 of 1 landed as predicted.",
        full.loaded.policy_hash,
    ):
        assert words in page.text


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(full):
    text = render(full, "html")
    page = Page(text)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not {name for name in page.attributes if name.startswith("on")} | page.attributes & {
        "src",
        "href",
    }
    assert "default-src 'none'" in text


def test_whatever_names_hold_the_page_stays_a_page(report):
    before = {EVIL: Score(Cost(1.0), 1, (EVIL,))}
    evil = move(EVIL, reason=EVIL, owner=EVIL, node=EVIL, strategy=EVIL, namespace=EVIL)
    given = report(
        moves=[evil],
        outcomes=[outcome(evil, Status.FAILED, EVIL, landed=EVIL, predicted=False)],
        skips=[skip(EVIL, message=EVIL)],
        before=before,
        warnings=[EVIL],
        source=EVIL,
        stopped=EVIL,
        cut=EVIL,
        timings={EVIL: 1.0},
    )
    page = Page(render(given, "html"))
    assert page.open == []
    assert "script" not in page.tags
    assert "<script>alert(1)</script>\"'&" in page.text
    assert "$title ${x}" in page.text


def test_a_bar_is_as_long_as_its_share_of_the_larger_score(report):
    before = {"x": Score(Cost(4.0), 1)}
    after = {"x": Score(Cost(1.0), 1)}
    text = render(report(outcomes=[], before=before, after=after), "html")
    assert 'class="bar" width="160.0"' in text
    assert 'class="bar" width="40.0"' in text


# -- all forms -----------------------------------------------------------------------------------------


HOSTILE = "\x1b]0;x\x07\x9b2J\u202egnp\u2066\x7f"


@pytest.mark.parametrize("form", FORMS)
def test_no_form_shows_characters_that_disturb(report, form):
    evil = move(HOSTILE, reason=HOSTILE, owner=HOSTILE, node=HOSTILE, namespace=HOSTILE)
    given = report(
        moves=[evil],
        outcomes=[outcome(evil, Status.FAILED, HOSTILE, landed=HOSTILE, predicted=False)],
        skips=[skip(HOSTILE, message=HOSTILE)],
        before={HOSTILE: Score(Cost(1.0), 1, (HOSTILE,))},
        warnings=[HOSTILE],
        source=HOSTILE,
        stopped=HOSTILE,
        cut=HOSTILE,
    )
    text = render(given, form)
    assert text.replace("\n", "").isprintable()
    if form == "json":
        assert json.loads(text)["moves"][0]["reason"] == HOSTILE
    if form == "yaml":
        assert yaml.safe_load(text)["moves"][0]["reason"] == HOSTILE


@pytest.mark.parametrize("form", FORMS)
def test_every_form_ends_in_a_newline_and_is_the_same_each_time(full, form):
    assert render(full, form).endswith("\n")
    assert render(full, form) == render(full, form)
