"""What ``history`` prints."""

import json
from dataclasses import replace

import msgspec
import yaml

from rebalancer.commands.history import document_of
from rebalancer.plan.plan import Status
from rebalancer.run.memory.document import Document, RunPart, StreakMemory, TermMemory
from rebalancer.run.memory.remember import remember, with_history
from tests.unit.run.memory.outcomes import NOW, TERM, WEB, badly, cluster, well

API = "Deployment/default/api"
DOCUMENT = remember(Document(), cluster(), [badly(), well(owner=API, pod="api-0")], NOW)


def test_the_table_names_owner_term_counts_trail_and_what_happens_next():
    text = document_of(DOCUMENT, NOW).show("table")
    assert text.splitlines() == [
        "2 evictions in the last hour.",
        "",
        "The last 24 hours, newest first (UTC)",
        f"  LAST              WORKLOAD                FOR{' ' * (len(TERM) - 3)}  MOVES  LAST MOVE  COOL-DOWN",
        f"  2027-01-15 08:00  {API}  {TERM}  1      n0 -> n1   none",
        f"  2027-01-15 08:00  {WEB}  {TERM}  1      n0 -> n0   until 08:10",
        "",
        API,
        f"  {TERM}: 1 move (1 as predicted), last 2027-01-15T08:00:00Z",
        "    n0 -> n1",
        "    no cool-down",
        "",
        WEB,
        f"  {TERM}: 1 move (1 came back), last 2027-01-15T08:00:00Z",
        "    n0 -> n0",
        "    cools down until 2027-01-15T08:10:00Z: web-0 came back to n0",
    ]


def test_the_last_day_is_in_order_over_all_workloads():
    later = remember(DOCUMENT, cluster(), [well(owner=API, pod="api-1")], NOW + 3600)
    lines = document_of(later, NOW + 7200).show("table").splitlines()
    rows = [line for line in lines if line.startswith("  2027-01-15 ")]
    assert [row.split()[:3] for row in rows] == [
        ["2027-01-15", "09:00", API],
        ["2027-01-15", "08:00", WEB],
    ]
    assert "last 24 hours" not in document_of(later, NOW + 2 * 86_400).show("table")


def test_an_empty_memory_says_so():
    assert "Nothing is remembered" in document_of(Document(), NOW).show("table")


def test_a_count_that_is_not_known_is_not_printed():
    document = document_of(Document(), NOW, "the memory could not be understood (x)")
    said = (
        "How many evictions the last hour had is not known: the memory could not be understood (x)."
    )
    assert " ".join(document.show("table").split()) == said
    assert json.loads(document.show("json"))["evictionsLastHour"] is None


def test_a_term_whose_evictions_were_all_denied_has_no_time_of_a_move():
    owner = DOCUMENT.owners[WEB]
    denied = msgspec.structs.replace(owner, terms={TERM: TermMemory(until=int(NOW) + 60, why="no")})
    text = document_of(Document(owners={WEB: denied}), NOW).show("table")
    assert f"  {TERM}: 0 moves\n" in text
    assert "1970" not in text


def test_the_replacement_is_named():
    moved = replace(well(owner=API, pod="api-0"), message="replaced by api-9")
    document = with_history(Document(), "run", "", [moved], NOW)
    text = document_of(document, NOW).show("table")
    assert "n0 -> n1, as predicted; its replacement is api-9" in text


def test_json_and_yaml_hold_the_same_with_all_fields():
    data = json.loads(document_of(DOCUMENT, NOW).show("json"))
    assert data == yaml.safe_load(document_of(DOCUMENT, NOW).show("yaml"))
    assert (data["kind"], data["evictionsLastHour"]) == ("History", 2)
    fine, resting = data["owners"]
    assert (fine["owner"], fine["resting"], fine["until"]) == (API, False, None)
    assert fine.keys() == resting.keys()
    assert resting["until"] == "2027-01-15T08:10:00Z"
    assert resting["trail"] == [{"from": "n0", "to": "n0"}]
    assert (resting["cameBack"], resting["strikes"], resting["blocked"]) == (1, 1, 0)


def test_what_was_seen_on_nodes_is_reported_with_its_runs():
    streaks = StreakMemory(NOW, {"n1": 2, "n0": 3}, {"n2": 0b1010})
    seen = {"low-utilisation": streaks, "none": StreakMemory(NOW)}
    document = Document(streaks=seen)
    assert document_of(document, NOW).show("table").splitlines() == [
        "0 evictions in the last hour. Nothing is remembered of any workload.",
        "",
        "low-utilisation: nodes, and in how many runs in a row it applied; last 2027-01-15T08:00:00Z",
        "  n0: 3",
        "  n1: 2",
        "  n2: the last runs, newest last, 1 where it applied: 1010",
    ]
    data = json.loads(document_of(document, NOW).show("json"))
    assert data == yaml.safe_load(document_of(document, NOW).show("yaml"))
    at = "2027-01-15T08:00:00Z"
    assert data["streaks"] == [
        {"strategy": "low-utilisation", "node": "n0", "runs": 3, "recent": None, "at": at},
        {"strategy": "low-utilisation", "node": "n1", "runs": 2, "recent": None, "at": at},
        {"strategy": "low-utilisation", "node": "n2", "runs": 0, "recent": "1010", "at": at},
    ]


def test_runs_that_tried_moves_are_first_with_pod_landing_and_reason():
    document = Document()
    for hour, outcome in enumerate((well(owner=API, pod="api-0"), badly())):
        document = with_history(document, f"run{hour}", "mover-1", [outcome], NOW + 3600 * hour)
    lines = document_of(document, NOW + 7200).show("table").splitlines()
    start = lines.index("Runs that tried moves, newest first (UTC)")
    api, web = well(owner=API, pod="api-0").move, badly().move
    assert lines[start + 1 : start + 7] == [
        "  2027-01-15 09:00:00  1 tried: 1 evicted by mover-1, run run1",
        f"    {web.ref}: n0 -> n0, where it came from",
        f"      {web.strategy}: {web.reason}",
        "  2027-01-15 08:00:00  1 tried: 1 evicted by mover-1, run run0",
        f"    {api.ref}: n0 -> n1, as predicted",
        f"      {api.strategy}: {api.reason}",
    ]
    data = json.loads(document_of(document, NOW).show("json"))
    assert data == yaml.safe_load(document_of(document, NOW).show("yaml"))
    assert [run["run"] for run in data["runs"]] == ["run1", "run0"]
    assert [run["moves"][0]["pod"] for run in data["runs"]] == [web.ref, api.ref]


def test_a_long_run_is_cut_in_the_table_and_says_how_many_are_left():
    outcomes = [well(owner=API, pod=f"api-{number}") for number in range(120)]
    document = with_history(Document(), "run", "", outcomes, NOW)
    assert (len(document.history[0].moves), document.history[0].more) == (100, 20)
    text = document_of(document, NOW).show("table")
    assert "120 tried: 100 evicted, 20 more, run run" in text
    assert "... and 100 more" in text


def test_refusals_with_one_message_are_one_line_and_no_line_says_that_nothing_is_remembered():
    refused = [
        replace(
            well(owner=API, pod=f"api-{n}"),
            status=Status.FAILED,
            landed=None,
            message=f"no for api-{n}",
        )
        for n in range(23)
    ]
    document = Document(history=with_history(Document(), "run", "", refused, NOW).history)
    text = " ".join(document_of(document, NOW).show("table").split())
    assert "23 tried: 23 failed, run run" in text
    assert "and 20 more: failed: no for POD" in text
    assert "Nothing is remembered" not in text


def test_moves_that_ended_in_other_ways_are_not_in_the_line_of_a_failure():
    """One message with two outcomes; and a pod whose eviction failed, and another move of it that came later."""
    ended = [
        ("api-0", Status.FAILED, "no"),
        ("api-1", Status.FAILED, "no"),
        ("api-2", Status.REFUSED, "no"),
        ("api-1", Status.GONE, "the pod is gone"),
    ]
    outcomes = [
        replace(well(owner=API, pod=pod), status=status, landed=None, message=message)
        for pod, status, message in ended
    ]
    history = with_history(Document(), "run", "", outcomes, NOW).history
    text = document_of(Document(history=history), NOW).show("table")
    one, two, three = (outcomes[n].move.ref for n in range(3))
    assert f"    {one}, {two}: failed: no\n" in text
    assert f"    {three}: n0 -> refused: no\n" in text
    assert f"    {two}: n0 -> gone: the pod is gone\n" in text


def test_evictions_that_count_without_a_result_are_said():
    part = RunPart("lost", reserved=1, at=NOW)
    text = " ".join(document_of(Document(parts=(part,)), NOW).show("table").split())
    assert "Of run lost 1 eviction counts since 2027-01-15T08:00:00Z without a result" in text
    ended = RunPart("lost", reserved=1, at=NOW, ended=True)
    assert "without a result" not in document_of(Document(parts=(ended,)), NOW).show("table")
