import base64
import csv
import hashlib
import io
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.base.data_text import plain_number
from rebalancer.plan.plan import Code, Cost, Score, Status, UnmetRule
from rebalancer.report import as_json as json_report
from rebalancer.report import render as rendering
from rebalancer.report.as_html import as_html
from rebalancer.report.as_json import as_data, as_yaml
from rebalancer.report.render import FORMS
from rebalancer.report.summary import Summary
from rebalancer.report.words import reason_words
from rebalancer.testing.snapshots import node, snapshot_of, workload
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
        "policyFlags",
        "nodes",
        "pods",
        "zones",
        "workloadZones",
        "before",
        "after",
        "now",
        "unmet",
        "lowerBound",
        "moves",
        "skipped",
        "funnel",
        "emptying",
        "rest",
        "stopped",
        "elsewhere",
        "standstill",
        "cut",
        "interruptions",
        "machines",
        "deletionCosts",
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
        "marks": [],
        "unit": None,
        "room": None,
        "gang": None,
        "method": "evict",
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
        "nodes": None,
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
    assert list(data["funnel"]) == ["pods", "movable", "candidates", "free", "moves"]


def test_only_the_timings_differ_between_two_runs(full):
    other = replace(full, timings={"read": 9.0, "plan": 8.0})
    first, second = json.loads(as_json(full)), json.loads(as_json(other))
    assert first.pop("timings") != second.pop("timings")
    assert first == second
    assert as_json(full) == as_json(replace(full))


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_number_becomes_json_that_stays_close_to_it(value):
    written = plain_number(value)
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
    """Tags that are open, tags and attributes that occurred, text, data of the script, policy."""

    _VOID = frozenset({"meta", "br", "input"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], set(), set(), ""
        self.scripts, self.style, self.policy = [], "", ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag == "script":
            self.scripts.append("")
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        of = dict(attrs)
        if of.get("http-equiv") == "Content-Security-Policy":
            self.policy = of["content"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.text += data

    @property
    def moves(self):
        """The rows of the moves, with their strings in place; wave, rank, cost and tone are numbers."""
        data = json.loads(self.scripts[0])
        numbers = {0, 9, 10, 13}
        return [
            [value if i in numbers else data["strings"][value] for i, value in enumerate(row)]
            for row in data["moves"]
        ]


def test_the_page_says_what_the_table_says(full):
    page = Page(render(full, "html"))
    assert page.open == []
    for words in (
        "Run with policy policy.yaml",
        "1 pod evicted of 2 planned; the cluster was not scored again.",
        "Deployment/shop/web",
        "1 PodDisruptionBudget",
        ": a PodDisruptionBudget allows no disruption now",
        "Stopped early: because.",
        "1 evicted, 1 blocked by a PodDisruptionBudget, 1 of 1 landed on one of several likely nodes.",
        full.loaded.policy_hash,
    ):
        assert words in page.text
    assert [row[1:6] for row in page.moves] == [
        [
            "shop",
            "web-0",
            "Deployment/shop/web",
            "node-a1 (zone-a)",
            "node-c1 (zone-c) after 2.1 s, on one of 2 likely nodes",
        ],
        ["shop", "web-1", "Deployment/shop/web", "node-a1 (zone-a)", "node-c1 (zone-c)"],
    ]
    assert [row[11:] for row in page.moves] == [
        ["evicted", "replaced by web-9", 1],
        ["blocked", "shop/web allows no disruption", 0],
    ]


def test_the_page_needs_nothing_from_elsewhere_and_runs_its_own_script_only(full):
    text = render(full, "html")
    page = Page(text)
    assert not page.tags & {"link", "img", "iframe", "object", "embed", "base", "form"}
    assert not {name for name in page.attributes if name.startswith("on")}
    assert not page.attributes & {"src", "style"}
    assert {
        link for link in re.findall(r'href="([^"]*)"', text) if not link.startswith("#")
    } == set()
    assert "//" not in re.sub(r"https://cluster.example:6443", "", page.style + page.text)

    def hashed(content):
        return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()

    assert page.policy == (
        f"default-src 'none'; style-src 'sha256-{hashed(page.style)}'; "
        f"script-src 'sha256-{hashed(page.scripts[-1])}'; base-uri 'none'; form-action 'none'"
    )


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
    assert len(page.scripts) == 2
    assert "<" not in page.scripts[0]
    shown = EVIL.replace("\x1b", "\\x1b")
    assert shown in page.text
    assert page.moves[0][2] == shown


def test_five_thousand_moves_make_a_page_of_three_megabytes_at_most(report):
    moves = [
        move(
            f"service-{i // 7}-7c9d8f6b5-{i:05x}",
            owner=f"Deployment/team-{i % 40}/service-{i // 7}",
            namespace=f"team-{i % 40}",
            reason=f"Deployment/team-{i % 40}/service-{i // 7} over topology.kubernetes.io/zone (hard):"
            f" eu-west-1a {i % 9}, eu-west-1b {i % 7}, eu-west-1c {i % 5}, maxSkew 1",
            wave=i // 50 + 1,
        )
        for i in range(5000)
    ]
    skips = [skip(f"web-{i}", message=f"reason {i}") for i in range(5000)]
    text = render(report(moves=moves, skips=skips), "html")
    assert len(text.encode()) < 3_000_000
    assert len(Page(text).moves) == 5000


def test_bars_of_all_strategies_have_one_scale_of_unmet_rules(report):
    before = {"x": Score(Cost(4.0), 8), "y": Score(Cost(1.0, 1421.0), 4)}
    after = {"x": Score(Cost(1.0), 2), "y": Score(Cost(0.0, 1.0), 1)}
    text = render(report(moves=[move()], before=before, after=after), "html")
    rules = text[text.index('id="rules"') :].partition("</section>")[0]
    assert re.findall(r'class="bar" width="([0-9.]+)"', rules) == ["150.0", "37.5", "75.0", "18.8"]


# -- CSV -----------------------------------------------------------------------------------------------


def test_the_moves_as_csv(full):
    rows = list(csv.DictReader(io.StringIO(render(full, "csv"))))
    assert [row["pod"] for row in rows] == ["web-0", "web-1"]
    assert {key: rows[0][key] for key in ("from", "fromZone", "to", "toZone", "probability")} == {
        "from": "node-a1",
        "fromZone": "zone-a",
        "to": "one of 2 nodes",
        "toZone": "zone-c",
        "probability": "0.7",
    }
    assert [row["landed"] for row in rows] == ["node-c1", ""]
    assert [row["predicted"] for row in rows] == ["true", ""]
    assert [row["outcome"] for row in rows] == ["evicted", "blocked"]


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_cell_of_the_csv_is_a_formula(report, first):
    evil = f'{first}HYPERLINK("http://evil.example")'
    given = move(evil, namespace=evil, reason=evil, owner=evil, gain=Cost(-1.0, 2.0, -0.5))
    (row,) = csv.DictReader(io.StringIO(render(report(moves=[given]), "csv")))
    for key in ("pod", "namespace", "reason", "owner"):
        assert row[key].startswith("'")
    assert (row["gainHard"], row["gainImbalance"]) == ("-1", "-0.5")


def test_a_landing_that_is_sure_has_its_node_in_the_csv(report):
    given = report(moves=[move(landings=(landing("node-c1", 1.0),))])
    (row,) = csv.DictReader(io.StringIO(render(given, "csv")))
    assert (row["to"], row["toZone"], row["probability"]) == ("node-c1", "zone-c", "1")


def test_workloads_that_stand_unevenly_and_are_not_moved_are_counted_beside_those_that_are(report):
    moves = [leaves("app0", "node-c1"), leaves("app1", "node-b1")]
    left = [
        UnmetRule("topology-spread", f"{name} over topology.kubernetes.io/zone (soft)", name)
        for name in (
            "Deployment/default/app1",
            "Deployment/default/app2",
            "Deployment/default/app3",
        )
    ]
    given = report(moves=moves, snapshot=pods_of("app0", "app1"), dry_run=True, unmet=left)
    assert Summary(given).why == "2 of 4 workloads that stand unevenly over 3 zones are moved."


# -- Markdown ------------------------------------------------------------------------------------------


def test_the_markdown_begins_with_the_sentence_and_names_the_moves(full):
    text = render(full, "markdown").replace("\\", "")
    assert text.startswith("### 1 pod evicted of 2 planned; the cluster was not scored again")
    assert "| Deployment/shop/web | 2 | " in text
    assert "<details><summary>Moves</summary>" in text
    assert "| 1 | shop/web-0 |" in text
    assert "- 1 PodDisruptionBudget: a PodDisruptionBudget allows no disruption now" in text


def test_a_large_report_still_fits_into_a_comment(report):
    moves = [move(f"web-{i}", owner=f"Deployment/shop/{i}", reason="r" * 900) for i in range(900)]
    skips = [skip(f"p-{i}", message=f"{i} {'m' * 900}") for i in range(900)]
    given = report(moves=moves, skips=skips, warnings=[f"{i} {'w' * 900}" for i in range(90)])
    assert len(render(given, "markdown")) < 65_536


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


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        (
            "Deployment/shop/web over topology.kubernetes.io/zone (hard): zone-a 2, zone-b 0; asks for at most 1 apart",
            "zone-a 2, zone-b 0; asks for at most 1 apart, over zones (hard)",
        ),
        (
            "Deployment/shop/web apart over kubernetes.io/hostname (preferred, weight 7): node-a 2",
            "node-a 2; asks to be apart over nodes (preferred, weight 7)",
        ),
        (
            "Deployment/shop/web apart over topology.kubernetes.io/zone (preferred): zone-a 2, zone-b 0; asks for at most 1 apart",
            "zone-a 2, zone-b 0; asks to be apart over zones (preferred)",
        ),
        (
            "Deployment/shop/web over example.com/rack (soft): r1 2, r2 0",
            "r1 2, r2 0, over example.com/rack (soft)",
        ),
        (
            "Deployment/shop/web (3 pods, 4 feasible nodes): node-a 2",
            "(3 pods, 4 feasible nodes): node-a 2",
        ),
        ("node-a is leaving", "node-a is leaving"),
        ("Deployment/shop/web", "Deployment/shop/web"),
    ],
)
def test_a_reason_stands_beside_its_workload_without_it(reason, says):
    assert reason_words(move(reason=reason)) == says


def test_on_the_page_pods_that_stay_stand_by_workload_and_are_open_where_nothing_moves(report):
    skips = [skip(f"web-{i}", Code.PDB, "web allows no disruption") for i in range(3)]
    skips.append(skip("alone", Code.PDB, "web allows no disruption"))
    given = report(skips=skips, outcomes=[])
    page = "".join(as_html(given))
    assert "Deployment/shop/web (3 pods), shop/alone</span>: web allows no disruption" in page
    assert '<details class="reason" open><summary><strong>4 PodDisruptionBudget' in page
    moving = "".join(as_html(report(skips=skips, moves=[move()])))
    assert '<details class="reason"><summary><strong>4 PodDisruptionBudget' in moving


def pods_of(*names):
    nodes = [node(f"node-{zone}1", f"zone-{zone}") for zone in "abc"]
    pods = [each for name in names for each in workload(name, ["node-a1", "node-a1", "node-b1"])]
    return snapshot_of([*nodes, *pods])


def leaves(name, target, **more):
    ref = f"default/{name}-0"
    return move(
        f"{name}-0", landing(target, 1.0), uid=ref, owner=f"Deployment/default/{name}", **more
    )


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        (
            ["node-c1", "node-c1"],
            "zone-c has no pod of 2 workloads that this run moves, and zone-a too many.",
        ),
        (
            ["node-c1", "node-c1", "node-b1"],
            "zone-c has no pod of 2 workloads that this run moves, and zone-a too many.",
        ),
        (["node-c1", "node-b1"], "2 of 2 workloads that stand unevenly over 3 zones are moved."),
        (
            ["node-b1"],
            "zone-b has too few pods of 1 workload that this run moves, and zone-a too many.",
        ),
        (["node-a1"], "The moves are of 1 workload, for anti-affinity (1)."),
        ([], None),
    ],
)
def test_one_sentence_says_what_the_moves_are_for(report, targets, says):
    names = [f"app{i}" for i in range(len(targets))]
    moves = [leaves(name, target) for name, target in zip(names, targets, strict=True)]
    assert Summary(report(moves=moves, snapshot=pods_of(*names), dry_run=True)).why == says
