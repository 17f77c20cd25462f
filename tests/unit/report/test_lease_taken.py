"""A run whose Lease is taken reports in every form, with the keys of every other report."""

import json

import pytest
import yaml

from rebalancer.policy.model import Mode
from rebalancer.report.as_json import as_data
from rebalancer.report.render import LeaseTakenReport, render_lease_taken

LINE = "Another run (run-1 <b>) holds the Lease until 2026-11-21T07:50:00Z: nothing was done."


@pytest.fixture
def taken(policies):
    return LeaseTakenReport(
        source="https://cluster.example:6443",
        loaded=policies[Mode.ENFORCE],
        holder="run-1 <b>",
        until="2026-11-21T07:50:00Z",
    )


def test_its_json_has_the_keys_of_every_report_in_their_order(taken, report):
    data = json.loads(render_lease_taken(taken, "json"))
    other = as_data(report())
    assert list(data) == list(other)
    assert other["heldBy"] is None
    same = ("apiVersion", "kind", "mode", "policySource", "policyHash")
    assert {key: data[key] for key in same} == {key: other[key] for key in same}


def test_it_says_who_holds_the_lease_and_nothing_of_a_cluster_it_has_not_read(taken):
    data = json.loads(render_lease_taken(taken, "json"))
    assert data["heldBy"] == {"holder": "run-1 <b>", "until": "2026-11-21T07:50:00Z"}
    assert data["stopped"] == LINE
    assert (data["exitCode"], data["moves"], data["nodes"]) == (0, [], None)
    assert yaml.safe_load(render_lease_taken(taken, "yaml")) == data


def test_the_table_is_one_line_and_the_page_escapes_it(taken):
    assert render_lease_taken(taken, "table") == f"{LINE}\n"
    page = render_lease_taken(taken, "html")
    assert "run-1 &lt;b&gt;" in page
    assert "<b>" not in page
