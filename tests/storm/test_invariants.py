"""Each invariant against a record that keeps it, and records that violate it and nothing else."""

import pytest

from tests.storm.faults import Fault
from tests.storm.invariants import INVARIANTS, violations
from tests.storm.records import (
    START,
    TEAM,
    History,
    mark,
    patch,
    ran,
    record,
    report,
    steered_moves,
    steered_report,
    two_moves,
)
from tests.storm.schedule import Act, Scenario
from tests.storm.witnesses import Evicted

FIRST, SECOND = START + 10, START + 14


BUDGET = {"metadata": {"name": "web", "uid": "pdb"}, "spec": {"minAvailable": 2}}


def both_at_once():
    """The second replica goes before the first one's replacement is Ready."""
    history = History()
    history.add(START - 5, "PodDisruptionBudget", BUDGET)
    for uid in ("u1", "u2", "u3"):
        history.pod(START - 5, "web", uid, "ADDED")
    history.pod(FIRST, "web", "u1", ending=True)
    history.pod(FIRST + 1, "web", "u4", "ADDED", ready=False)
    history.pod(SECOND, "web", "u2", ending=True)
    return history.changes


def already_unready():
    """One of three was not Ready long before the run began."""
    history = History()
    history.add(START - 5, "PodDisruptionBudget", BUDGET)
    for uid in ("u1", "u2", "u3"):
        history.pod(START - 5, "web", uid, "ADDED", ready=uid != "u3")
    history.pod(FIRST, "web", "u1", ending=True)
    return history.changes


def unready_just_now():
    """One of three becomes unready so short a time before the eviction that no run can know."""
    history = History()
    history.add(START - 5, "PodDisruptionBudget", BUDGET)
    for uid in ("u1", "u2", "u3"):
        history.pod(START - 5, "web", uid, "ADDED")
    history.pod(FIRST - 0.1, "web", "u3", ready=False)
    history.pod(FIRST, "web", "u1", ending=True)
    return history.changes


def half_a_gang(code):
    """Two of the three pods of a gang leave."""
    history = History()
    for uid in ("u1", "u2", "u3"):
        history.pod(START - 5, "gang-1", uid, "ADDED")
    for uid in ("u1", "u2"):
        history.pod(FIRST, "gang-1", uid, ending=True)
    scenario = Scenario(0, (Fault("eviction", "cut", "first"),), ())
    runs = [ran(code=code)]
    return {"changes": history.changes, "scenario": scenario, "runs": runs}


def another_takes_it(*, gives_back=False):
    """Another run takes the Lease between the two evictions, and may give it back."""
    history = History()
    for change in two_moves().changes:
        history.add(change.at, change.kind, change.object, change.type)
        if change.type == "DELETED":
            history.holder(SECOND - 1, "rival-2")
            if gives_back:
                history.holder(SECOND - 0.5, "")
    return history.changes


def all_marked():
    """Three nodes carry a mark at once, and two are allowed."""
    history = two_moves()
    for node in ("n0", "n1", "n2"):
        history.node(FIRST - 1, node, mark())
    return history.changes


def patched(*patches):
    """A steered run patches nodes in another way."""
    return {**steered_moves(), "node_patches": patches}


FIRST_STATE = 1
LEFT = {"marks_left": ["n0"], "hit_kinds": ["patch node"]}
ONE = [Evicted("main", "web-u1", "u1", FIRST)]
EVENTS = Fault("events", "429 Retry-After 3600", "always")
RENEWAL = Fault("lease", "503 after commit", "third")
MEMORY = Fault("memory", "503 after commit", "always")
HOUR_OF_ONE = {"hour_after": 3}


@pytest.mark.parametrize("changed", [{}, steered_moves()])
def test_nothing_is_violated_where_all_was_kept(changed):
    assert violations(record(**changed)) == []


@pytest.mark.parametrize(
    ("letter", "changed"),
    [
        ("a", {"runs": [ran(out=report(u1="evicted", u9="evicted"))]}),
        ("a", {"expected": {}, "final": {}}),
        ("b", {"changes": both_at_once()}),
        ("b", {"changes": already_unready(), "evicted": ONE, **HOUR_OF_ONE}),
        ("c", {"changes": both_at_once()}),
        ("c", {"budgets": {"inFlight": 1, "perNode": 1, "perRun": 1, "perHour": 9}}),
        ("c", {"budgets": {"inFlight": 1, "perNode": 1, "perRun": 9, "perHour": 3}}),
        ("d", {"changes": another_takes_it()}),
        ("d", {"changes": another_takes_it(gives_back=True)}),
        ("e", {"runs": [ran(deadline=12.0)]}),
        ("e", {"runs": [ran(terms=[FIRST + 2])]}),
        ("f", {"runs": [ran(ended=START + 42, code=4)]}),
        ("f", {"runs": [ran(ended=START + 45, starved=[(START, 9.0), (START + 44, 12.5)])]}),
        ("f", {"runs": [ran(terms=[FIRST + 3.5], ended=FIRST + 14, code=4)]}),
        ("g", {"runs": [ran(out=report(u1="evicted", u2="failed"), code=4)]}),
        ("g", {"runs": [ran(out=report(u1="evicted", u2="evicted", u3="evicted"))]}),
        ("g", {"hour_after": 3}),
        ("g", {"hour_after": None}),
        ("g", {"hour_after": 5}),
        ("g", {"runs": [ran(out="", code=-9, killed=START + 15)], "hour_after": 3}),
        ("g", {"runs": [ran(out="", code=4)]}),
        ("h", {"runs": [ran(code=1)]}),
        ("h", {"runs": [ran(code=-11)]}),
        ("h", {"runs": [ran(code=2)]}),
        ("h", {"runs": [ran(code=3)]}),
        ("h", {"runs": [ran(out=report(u1="evicted", u3="not-attempted"), ended=START + 30)]}),
        ("h", {"runs": [ran(out=report(u1="evicted", u2="lost"))]}),
        (
            "h",
            {
                "runs": [
                    ran(out=report(u1="evicted", u2="evicted", u3="not-attempted"), terms=[1018])
                ]
            },
        ),
        ("i", {"runs": [ran(err="Traceback (most recent call last):\n  boom")]}),
        ("i", {"runs": [ran(err="token s3cret")]}),
        ("i", {"runs": [ran(err="red \x1b[31m")]}),
        ("i", {"texts": ("\u202edesrever",)}),
        ("j", {"final": {"web": [0, 1, 2]}}),
        ("k", {"changes": both_at_once()}),
        ("k", {"changes": already_unready(), "evicted": ONE, **HOUR_OF_ONE}),
        ("l", {"acted": {"opt-out": FIRST + 1}, "opted_out": {"u2": "web-u2"}}),
        ("m", {"deleted": 1}),
        ("m", {**steered_moves(), "scenario": Scenario(0, (), ())}),
        ("o", {"marks_later": ["n0"]}),
        ("o", {"marks_left": ["n0"]}),
        ("o", {"marks_left": ["n0"], "runs": [ran(code=4, out=report("the mark on node n0"))]}),
        ("o", {**LEFT, "runs": [ran(out=report("the mark on node n0"))]}),
        ("o", {**LEFT, "runs": [ran(code=4)]}),
        ("q", {**steered_moves(), "runs": [ran(out=steered_report("n0", "n1"))]}),
        ("q", {**steered_moves(), "changes": two_moves().changes}),
        ("p", {"changes": all_marked()}),
        ("p", patched(patch("n0", FIRST_STATE, mark()))),
        ("p", patched(patch("n0", FIRST_STATE, TEAM, TEAM, mark()))),
        ("p", patched(patch("n0", 0, TEAM, mark()))),
        ("p", patched(patch("n0", FIRST_STATE, TEAM, mark(), labels={"a": "b"}))),
        ("r", half_a_gang(code=0)),
        ("r", half_a_gang(code=4)),
        ("c", {"scenario": Scenario(0, (), (Act("memory newer"),))}),
        ("g", {"hour_after": 2, "memory_hindered": True}),
        ("n", {"scenario": Scenario(0, (EVENTS,), ()), "runs": [ran(code=4)]}),
        ("n", {"scenario": Scenario(0, (RENEWAL,), ()), "least": 3}),
    ],
)
def test_what_is_violated_is_said(letter, changed):
    assert letter in {each for each, _ in violations(record(**changed))}


def test_every_invariant_has_been_seen_violated():
    (marks,) = test_what_is_violated_is_said.pytestmark
    assert {letter for letter, _ in marks.args[1]} == set(INVARIANTS)


@pytest.mark.parametrize(
    ("letter", "changed"),
    [
        ("b", {"changes": unready_just_now(), "evicted": ONE}),
        ("k", {"changes": unready_just_now(), "evicted": ONE}),
        ("r", {**half_a_gang(code=4), "hit_kinds": ["eviction"]}),
        ("r", {**half_a_gang(code=4), "runs": [ran(out="", code=-9, killed=START + 15)]}),
        ("f", {"runs": [ran(ended=START + 60, continued=START + 55)]}),
        ("f", {"runs": [ran(ended=START + 45, starved=[(START, 1.0), (START + 44, 5.5)])]}),
        (
            "n",
            {
                "scenario": Scenario(0, (EVENTS,), ()),
                "runs": [ran(code=4, starved=[(START, 1.0), (START + 9, 4.0)])],
            },
        ),
        # What was reserved for the wave in which it was killed still counts.
        ("g", {"runs": [ran(out="", code=-9, killed=START + 15)], "hour_after": 5}),
        ("o", {"marks_left": ["n0"], "runs": [ran(out="", code=-9, killed=START + 15)]}),
        ("o", {**LEFT, "runs": [ran(code=4, out=report("the mark on node n0 is left"))]}),
        # Another run that comes meanwhile leaves at once, and has nothing to say of it.
        ("o", {**LEFT, "runs": [ran(code=4, out=report("the mark on node n0 is left")), ran()]}),
        (
            "g",
            {
                "runs": [ran(out=report("could not be remembered", u1="evicted", u2="evicted"))],
                "hour_after": 2,
                "memory_hindered": True,
            },
        ),
        ("n", {"scenario": Scenario(0, (MEMORY,), ()), "runs": [ran(code=4)]}),
        ("l", {"acted": {"opt-out": SECOND - 0.05}, "opted_out": {"u2": "web-u2"}}),
    ],
)
def test_what_no_run_can_know_or_do_is_no_violation(letter, changed):
    assert letter not in {each for each, _ in violations(record(**changed))}
