"""The page of a run that stands still: nothing in it looks like a plan that is carried out."""

import re
from dataclasses import replace

import pytest

from rebalancer.plan.plan import Backlog, Status
from rebalancer.report.as_html import as_html
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.unit.report.report_examples import landing, move, outcome

WHY = "2 of 4 nodes are NotReady, safety.maxNotReadyNodes allows 1"


@pytest.fixture(scope="module")
def broken():
    nodes = [
        node("node-a1", "zone-a"),
        node("node-b1", "zone-b", ready=False),
        node("node-b2", "zone-b", unschedulable=True),
        node("node-c1", "zone-c", ready=False),
    ]
    return snapshot_of([*nodes, *workload("web", ["node-a1"] * 3, namespace="shop")])


@pytest.fixture
def pages(report, broken):
    """The pages of one plan: a dry run, and of a run that stands still."""
    moves = [
        replace(move(f"web-{i}", landing("node-b2", 1.0)), uid=broken.pods.uid[i]) for i in range(2)
    ]
    given = {"moves": moves, "snapshot": broken}
    still = [outcome(one, Status.NOT_ATTEMPTED, WHY) for one in moves]
    planned = report(**given)
    stands = report(**given, outcomes=still, standstill=(WHY,))
    return "".join(as_html(planned)), "".join(as_html(stands))


def cards(page):
    return dict(re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd></div>", page))


def captions(page):
    return re.findall(r'<text class="caption"[^>]*>(.*?)</text>', page)


def test_the_headline_has_the_colour_of_a_warning(pages):
    planned, stands = pages
    assert f'<h1 class="unmet">Standing still: {WHY}.</h1>' in stands
    assert '<h1 class="unmet">' not in planned
    assert re.search(r"\.unmet { color: var\(--warn\); }", stands)


def test_the_cards_have_no_number_of_what_was_planned(pages):
    planned, stands = pages
    assert {"Evictions planned": "2", "Rules unmet": "1 \u2192 0"}.items() <= cards(planned).items()
    assert cards(stands) == {"Moves not made": "2", "Rules unmet": "1", "Nodes": "4", "Pods": "3"}


@pytest.mark.parametrize(
    ("bound", "backlog", "card"),
    [
        (2, Backlog(), ("No fewer than", "2")),
        # What is left to further runs is in the bound, and is no bound of this plan.
        (7, Backlog(5, 1), ("For further runs", "5")),
        (7, Backlog(5, 1, more=True), ("For further runs", "at least 5")),
        (7, Backlog(), None),
    ],
)
def test_the_card_beside_the_plan_is_its_bound_or_what_waits(report, bound, backlog, card):
    moves = [move(f"web-{i}", landing("node-b2", 1.0)) for i in range(2)]
    page = "".join(as_html(report(moves=moves, lower_bound=bound, backlog=backlog)))
    seen = {key: text for key, text in cards(page).items() if key.startswith(("No ", "For "))}
    assert seen == (dict([card]) if card else {})


def test_the_pictures_are_of_the_cluster_that_is_there(pages):
    planned, stands = pages
    assert captions(planned) == ["Now", "As planned"]
    assert captions(stands) == ["Now"]
    squares = re.findall(r'<g class="pod([^"]*)"><title>(shop/web-\d)</title>', stands)
    assert sorted(name for _, name in squares) == ["shop/web-0", "shop/web-1", "shop/web-2"]
    assert not any("leaves" in style or "new" in style for style, _ in squares)
    assert "As planned" not in stands.split("<main>")[1].split("<script")[0]


def test_the_nodes_that_are_not_ready_stand_out_and_others_are_named(pages):
    _, stands = pages
    trouble = re.findall(r'<g><title>([^<]*)</title><rect class="node trouble"', stands)
    assert trouble == ["node-b1, NotReady", "node-c1, NotReady"]
    assert '<g><title>node-b2, cordoned</title><rect class="node"' in stands


def test_the_reason_is_not_repeated_for_each_move(pages):
    _, stands = pages
    body = stands.split("<body>")[1]
    assert "Moves that are not made" in body
    # The headline, and the heading of the moves.
    assert body.count(WHY) == 2


def test_of_what_stays_the_moves_that_are_not_made_are_left_out_in_words(pages):
    _, stands = pages
    assert "Beside the moves that are not made, 0 pods stay" in stands
