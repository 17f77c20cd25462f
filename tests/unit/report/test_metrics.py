"""The metrics of a run: their values, their number, and that the documentation names them all."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from rebalancer import __version__
from rebalancer.plan.plan import (
    Backlog,
    Cause,
    Code,
    Cost,
    Explanation,
    Later,
    Move,
    Outcome,
    Plan,
    Score,
    Skip,
    Status,
    Totals,
    with_moves,
    with_run,
)
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.report import metrics
from rebalancer.report.metrics import (
    SignalCounts,
    of_end,
    of_report,
    of_serving,
    of_signals,
    of_totals,
    registry,
)
from rebalancer.report.model import RunReport
from rebalancer.run.memory.document import Document, OwnerMemory, TermMemory
from rebalancer.run.memory.remember import summarize_memory
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.support.worlds import read_metrics

NOW = 1_700_000_000.0


def move(pod, owner="Deployment/shop/web", from_node="n-a"):
    return Move("shop", pod, f"uid-{pod}", owner, from_node, (), "spread", "", Cost(0, 1), 1, 1)


def report(outcomes=(), *, skips=(), standstill=(), **more):
    explanation = Explanation(
        skips=tuple(skips),
        before={"spread": Score(Cost(0, 2), 2, ("cannot",)), "taints": Score(Cost(), 0)},
        after={"spread": Score(Cost(0, 1), 1), "taints": Score(Cost(), 0, (), ("no usage",))},
        lower_bound=0,
        stopped="",
        backlog=Backlog(4, 1),
    )
    plan = Plan(tuple(one.move for one in outcomes), Later(lambda: explanation))
    return RunReport(
        dry_run=False,
        source="here",
        snapshot=snapshot_of([node("n-a", "a"), *workload("web", ["n-a"] * 3)]),
        loaded=load_policy(None, Registry.installed()),
        plan=plan,
        outcomes=tuple(outcomes),
        standstill=tuple(standstill),
        timings={"read": 0.5},
        **more,
    )


def samples(values):
    return read_metrics(generate_latest(registry(values)).decode())


def test_of_a_pod_that_has_ended_no_landing_is_counted():
    ended = Outcome(replace(move("one"), cause=Cause.ENDED), Status.EVICTED, "")
    values = samples(of_report(report([ended]), None, NOW))
    assert values["rebalancer_evictions", "Deployment/shop/web"] == 1
    assert {value for name, value in values.items() if name[0] == "rebalancer_landings"} == {0}


def test_a_run_in_numbers():
    outcomes = [
        Outcome(move("one"), Status.EVICTED, "", "n-b", predicted=True),
        Outcome(move("two"), Status.EVICTED, "", "n-c", predicted=False),
        Outcome(move("three"), Status.EVICTED, ""),
        Outcome(move("four"), Status.BLOCKED, ""),
    ]
    skips = [Skip("shop", "five", "n-a", "spread", Code.PDB, "")] * 2
    values = samples(of_report(report(outcomes, skips=skips, exit_code=4), None, NOW))
    expected = {
        ("rebalancer_build_info", __version__): 1,
        ("rebalancer_last_run_timestamp_seconds",): NOW,
        ("rebalancer_last_run_exit_code",): 4,
        ("rebalancer_nodes",): 1,
        ("rebalancer_pods",): 3,
        ("rebalancer_moves_planned", "spread"): 4,
        ("rebalancer_moves_planned", "taints"): 0,
        ("rebalancer_moves", "evicted"): 3,
        ("rebalancer_moves", "blocked"): 1,
        ("rebalancer_moves", "failed"): 0,
        ("rebalancer_evictions", "Deployment/shop/web"): 3,
        ("rebalancer_evictions", "other"): 0,
        ("rebalancer_landings", "as-predicted"): 1,
        ("rebalancer_landings", "elsewhere"): 1,
        ("rebalancer_landings", "unknown"): 1,
        ("rebalancer_gain", "soft"): 3,
        ("rebalancer_skips", "PodDisruptionBudget"): 2,
        ("rebalancer_skips", "NoRoom"): 0,
        ("rebalancer_rules_unmet", "spread", "before"): 2,
        ("rebalancer_rules_unmet", "spread", "after"): 1,
        ("rebalancer_rules_unsatisfiable", "spread"): 1,
        ("rebalancer_backlog_moves",): 4,
        ("rebalancer_standstill",): 0,
        ("rebalancer_phase_seconds", "read"): 0.5,
    }
    assert {key: values.get(key) for key in expected} == expected
    assert not any(
        key[0] in ("rebalancer_moved_again", "rebalancer_memory_owners") for key in values
    )


def test_owners_are_bounded_and_no_eviction_is_lost():
    outcomes = [
        Outcome(move(f"p-{i}-{j}", f"Deployment/shop/app-{i:03}"), Status.EVICTED, "")
        for i in range(50)
        for j in range(1 + (i == 49))
    ]
    values = samples(of_report(report(outcomes), None, NOW))
    owners = {key[1]: value for key, value in values.items() if key[0] == "rebalancer_evictions"}
    assert len(owners) == metrics.MAX_OWNERS + 1
    assert owners["Deployment/shop/app-049"] == 2
    assert sum(owners.values()) == 51


def test_a_pod_on_a_node_that_an_earlier_move_went_to_is_moved_again():
    terms = {"spread/soft": TermMemory(moves=1, last=int(NOW) - 60, trail=(("n-b", "n-a"),))}
    gone = {"spread/soft": TermMemory(given_up="without effect", last=int(NOW) - 60)}
    rests = {"spread/soft": TermMemory(until=int(NOW) + 60, why="x", last=int(NOW))}
    memory = Document(
        owners={
            "Deployment/shop/web": OwnerMemory("f", "z", 1, terms),
            "Deployment/shop/old": OwnerMemory("f", "z", 1, gone),
            "Deployment/shop/new": OwnerMemory("f", "z", 1, rests),
        }
    )
    outcomes = [
        Outcome(move("one"), Status.EVICTED, ""),
        Outcome(move("two", from_node="n-c"), Status.EVICTED, ""),
        Outcome(move("three"), Status.BLOCKED, ""),
        Outcome(move("four", "Deployment/shop/else"), Status.EVICTED, ""),
    ]
    values = samples(of_report(report(outcomes), summarize_memory(memory, NOW), NOW))
    again = {key[1]: value for key, value in values.items() if key[0] == "rebalancer_moved_again"}
    assert again == {"Deployment/shop/web": 1, "other": 0}
    states = {key[1]: v for key, v in values.items() if key[0] == "rebalancer_memory_owners"}
    assert states == {"fine": 1, "resting": 1, "given-up": 1}


def test_a_run_without_a_report_says_only_its_end():
    assert set(samples(of_end(3, NOW))) == {
        ("rebalancer_build_info", __version__),
        ("rebalancer_last_run_timestamp_seconds",),
        ("rebalancer_last_run_exit_code",),
    }


SIGNALS = SignalCounts(
    {("waiting",): 1}, {("sqs", "done"): 1}, {("leave", "done"): 1}, {("sqs",): 0}
)


def test_every_metric_of_the_table_has_values_and_stands_in_the_documentation():
    one = replace(report([Outcome(move("one"), Status.EVICTED, "")]), standstill=("why",))
    every = {
        **of_report(one, summarize_memory(Document(), NOW), NOW),
        **of_serving(leads=True, silence=0.0, refused=0),
        **of_signals(SIGNALS),
        **of_totals(Totals()),
    }
    assert set(every) == set(metrics.TABLE)
    text = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    named = set(re.findall(r"`(rebalancer_\w+)`", text))
    assert named == {metric.name for metric in metrics.TABLE}


@pytest.mark.parametrize("metric", metrics.TABLE, ids=lambda one: one.name)
def test_names_follow_prometheus(metric):
    assert re.fullmatch(r"rebalancer_[a-z]+(_[a-z]+)*", metric.name)
    assert not metric.name.endswith(("_count", "_sum", "_bucket"))


def test_counters_of_runs_moves_and_landings():
    done = [
        Outcome(move("one"), Status.EVICTED, "", "n-b", predicted=True),
        Outcome(move("two"), Status.EVICTED, "", "n-c", predicted=False),
        Outcome(move("three"), Status.BLOCKED, ""),
    ]
    totals = with_run(with_run(with_moves(with_moves(Totals(), done), done[:1]), 0), 3)
    text = generate_latest(registry(of_totals(totals))).decode()
    assert "# TYPE rebalancer_moves_total counter" in text
    assert samples(of_totals(totals)) == {
        ("rebalancer_runs_total", "0"): 1,
        ("rebalancer_runs_total", "3"): 1,
        ("rebalancer_moves_total", "shop", "blocked", "spread"): 1,
        ("rebalancer_moves_total", "shop", "evicted", "spread"): 3,
        ("rebalancer_landings_total", "as-predicted"): 2,
        ("rebalancer_landings_total", "elsewhere"): 1,
        ("rebalancer_landings_total", "unknown"): 0,
    }


def test_of_a_dry_run_and_of_one_that_stands_still_nothing_was_tried():
    one = report([Outcome(move("one"), Status.NOT_ATTEMPTED, "")])
    assert one.tried == one.outcomes
    assert replace(one, standstill=("x",)).tried == ()
    assert replace(one, dry_run=True).tried == ()
