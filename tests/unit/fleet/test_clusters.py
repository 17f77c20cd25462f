"""The list of a fleet's clusters, and the page over all of them."""

import json

import pytest
import yaml

from rebalancer.base.errors import PolicyError
from rebalancer.fleet.clusters import ClusterRecord, document_of, load_fleet, read_fleet, report_on
from rebalancer.policy.load import load_policy
from rebalancer.policy.sources import PolicyChanges
from rebalancer.registry import Registry

NOW = 1_800_000_000.0
HOUR = 3600.0


def a_list(*clusters, **more):
    return {"apiVersion": "rebalancer/v1", "kind": "Fleet", "clusters": list(clusters), **more}


def fleet_of(*names, **more):
    data = a_list(*({"name": name} for name in names), **more)
    return read_fleet(json.dumps(data).encode(), "fleet.yaml")


def record(**more):
    return ClusterRecord(
        **{"at": NOW - 60, "exit_code": 0, "nodes": 3, "pods": 9, "unmet": 0, **more}
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (a_list({"name": "a"}, {"name": "a"}), "clusters: a is there twice"),
        (a_list({"name": "A_1"}), 'clusters[0].name: "A_1" is not a name of a cluster: at most'),
        (
            a_list({"name": "a", "polcy": {}}),
            "clusters[0].polcy: unknown key; did you mean policy?",
        ),
        (a_list(), "clusters: has none; name at least one"),
        (a_list({"name": "a"}, lateAfter="soon"), "lateAfter"),
        ({**a_list({"name": "a"}), "kind": "Policy"}, "kind"),
    ],
)
def test_what_is_wrong_in_the_list_is_named_with_its_place(data, message):
    with pytest.raises(PolicyError) as caught:
        read_fleet(yaml.safe_dump(data).encode(), "fleet.yaml")
    assert str(caught.value).startswith("fleet.yaml")
    assert len(str(caught.value).splitlines()) == 1
    assert message in str(caught.value)


def test_a_list_that_is_not_there_is_a_wrong_flag(tmp_path):
    with pytest.raises(PolicyError, match=r"none\.yaml: cannot be read: No such file"):
        load_fleet(str(tmp_path / "none.yaml"))


def test_policies_are_by_labels_in_their_order_and_a_cluster_has_the_last_word():
    data = a_list(
        {"name": "eu", "labels": {"env": "prod", "region": "eu"}},
        {"name": "us", "labels": {"env": "prod"}, "policy": {"eagerness": "eager"}},
        {"name": "lab", "policy": {"protect": {"annotations": {"a.b/c": "x"}}}},
        policies=[
            {"policy": {"eagerness": "steady", "budgets": {"perRun": 9, "perNode": 2}}},
            {
                "labels": {"env": "prod"},
                "policy": {"eagerness": "timid", "budgets": {"perRun": "5%"}},
            },
            {
                "labels": {"env": "prod", "region": "eu"},
                "policy": {"strategies": {"duplicates": {"mode": "observe"}}},
            },
        ],
    )
    fleet = read_fleet(json.dumps(data).encode(), "fleet.yaml")
    eu, us, lab = (fleet.settings_of(cluster) for cluster in fleet.clusters)
    every = ('eagerness="steady"', "budgets.perRun=9", "budgets.perNode=2")
    prod = (*every, 'eagerness="timid"', 'budgets.perRun="5%"')
    assert eu == (*prod, 'strategies.duplicates.mode="observe"')
    assert us == (*prod, 'eagerness="eager"')
    assert lab == (*every, 'protect.annotations["a.b/c"]="x"')
    # As --set reads them: mappings are merged, the last value counts.
    loaded = load_policy(None, Registry.installed(), PolicyChanges(eu, (), None)).policy
    assert (loaded.eagerness.value, str(loaded.budgets.per_run)) == ("timid", "5%")
    assert str(loaded.budgets.per_node) == "2"
    assert loaded.mode_of("duplicates").value == "observe"


RECORDS = {
    "unreachable": record(exit_code=3, error="https://10.0.0.1: no answer", unmet=None),
    "silent": record(at=NOW - HOUR),
    "still": record(standstill=("2 of 3 nodes are not Ready",), unmet=7),
    "few": record(unmet=1),
    "many": record(unmet=12),
    "well": record(planned=2),
}
WORST_FIRST = [
    ("unreachable", "failed"),
    ("never", "late"),
    ("silent", "late"),
    ("still", "stands still"),
    ("many", "unmet rules"),
    ("few", "unmet rules"),
    ("well", "well"),
]


def test_the_page_begins_with_the_worst():
    fleet = fleet_of(*sorted(dict(WORST_FIRST)))
    report = report_on(fleet, RECORDS, NOW)
    assert [(line.cluster.name, line.condition.value) for line in report.lines] == WORST_FIRST
    text = document_of(report).show("table")
    assert text.startswith("7 clusters: 1 failed, 2 late, 1 stands still, 2 unmet rules, 1 well")
    assert "unreachable: https://10.0.0.1: no answer" in text
    assert "still: 2 of 3 nodes are not Ready" in text
    data = json.loads(document_of(report).show("json"))
    assert data["kind"] == "FleetReport"
    assert [one["name"] for one in data["clusters"]] == [name for name, _ in WORST_FIRST]
    assert data["clusters"][1]["observed"] is None
    assert data["clusters"][-1]["observed"]["planned"] == 2
    assert yaml.safe_load(document_of(report).show("yaml")) == data


def test_a_clock_that_is_ahead_does_not_keep_a_silent_cluster_well():
    fleet = fleet_of("a", "b")
    report = report_on(fleet, {"a": record(at=NOW + 299), "b": record(at=NOW + 301)}, NOW)
    late, well = report.lines
    assert (late.cluster.name, late.condition.value) == ("b", "late")
    assert "2027-01-15T08:05:01Z, which is to come" in late.why
    assert well.condition.value == "well"


def test_what_others_write_into_records_fills_no_page_and_no_config_map():
    fleet = fleet_of("a")
    report = report_on(fleet, {"a": record(exit_code=3, error="no " * 100_000)}, NOW)
    assert len(document_of(report).show("table")) < 2_000
    assert len(document_of(report).show("html")) < 200_000


def test_what_a_cluster_says_is_no_markup_and_no_control_character():
    fleet = fleet_of("a", "b", "c")
    nasty = record(exit_code=3, error="<script>alert(1)</script>\x1b[31m")
    report = report_on(fleet, {"a": nasty, "b": record(), "c": record()}, NOW)
    page = document_of(report).show("html")
    assert "<script" not in page
    assert "\x1b" not in page + document_of(report).show("table")


@pytest.mark.parametrize(
    ("given", "cell"),
    [
        ({}, "0"),
        ({"lost_with_zone": {"p": 2, "q": 5}}, "5 (q)"),
        ({"exit_code": 3, "error": "no answer"}, "-"),
    ],
)
def test_the_page_says_what_the_worst_zone_takes_with_it(given, cell):
    report = report_on(fleet_of("a"), {"a": record(**given)}, NOW)
    heads, row = (line.split("  ") for line in document_of(report).show("table").splitlines()[2:4])
    cells = [one.strip() for one in row if one.strip()]
    assert cells[[one.strip() for one in heads if one.strip()].index("ZONE LOSS")] == cell


@pytest.mark.parametrize("zone", ["x" * 100_000, "<script>", "\x1b[31m"])
def test_a_zone_of_any_name_fills_no_page(zone):
    report = report_on(fleet_of("a"), {"a": record(lost_with_zone={zone: 1})}, NOW)
    text, page = document_of(report).show("table"), document_of(report).show("html")
    assert len(text) < 2_000
    assert "<script" not in page
    assert "\x1b" not in text + page
