"""What is said of a pod that a run has moved, from what the memory and events know."""

import pytest

from rebalancer.explain.workload import find_moved, format_gone
from rebalancer.kube.events import MoveEvent
from rebalancer.report.document import ReportDocument
from rebalancer.run.memory.document import ActingRun, Document, MoveRecord

AT = 1_800_000_000
OWNER = "Deployment/shop/till"


def record(pod="shop/till-a", outcome="evicted", landed="n2", *, predicted=True, message=""):
    return MoveRecord(
        pod, OWNER, "n1", "duplicates", "2 on n1", outcome, message, landed, predicted
    )


def event(pod="shop/till-a", at=AT + 1.0):
    return MoveEvent(pod, at, "mover-2", OWNER, "moved off n1 by duplicates: 2 on n1")


def document(*runs):
    return Document(
        history=tuple(
            ActingRun(f"run{number}", AT + number, "mover-1", moves)
            for number, moves in enumerate(runs)
        )
    )


@pytest.mark.parametrize("ref", ["till-a", "shop/till-a"])
@pytest.mark.parametrize(
    ("runs", "events", "by", "landed"),
    [
        ([(record(),)], [], "mover-1", "n2"),
        ([(record(),)], [event()], "mover-1", "n2"),
        ([], [event()], "mover-2", None),
        # Of several moves of one name, as of a StatefulSet's pods, the last one is meant.
        ([(record(landed="n5"),), (record(landed="n6"),)], [], "mover-1", "n6"),
        # One that was refused did not move the pod.
        ([(record(),), (record(outcome="blocked", landed=""),)], [], "mover-1", "n2"),
    ],
)
def test_the_last_move_is_found(ref, runs, events, by, landed):
    moved = find_moved(ref, document(*runs), events)
    assert moved is not None
    assert (moved.ref, moved.owner, moved.by) == ("shop/till-a", OWNER, by)
    assert (moved.record.landed if moved.record else None) == landed


@pytest.mark.parametrize("ref", ["other/till-a", "till", "shop/till-b"])
def test_a_pod_of_another_name_or_namespace_is_not_taken_for_it(ref):
    assert find_moved(ref, document((record(),)), []) is None


def test_an_outcome_of_a_newer_program_is_no_error():
    assert find_moved("till-a", document((record(outcome="teleported"),)), []) is None


@pytest.mark.parametrize(
    ("move", "says"),
    [
        (record(), "its replacement landed on n2, as predicted."),
        (record(message="replaced by till-b"), "its replacement till-b landed on n2, as"),
        (record(predicted=False), "its replacement landed on n2, not where it was predicted."),
        (record(landed="", predicted=None), "where its replacement landed was not seen."),
    ],
)
def test_what_came_of_it_is_said(move, says):
    moved = find_moved("till-a", document((move,)), [])
    assert moved is not None
    lines = ReportDocument(format_gone(moved, None), {}).show("table", 60).splitlines()
    assert lines[-1] == "  kubectl --namespace shop annotate deployment till rebalancer/evict=false"
    text = " ".join(" ".join(lines).split())
    assert says in text
    assert "by mover-1 moved it at 2027-01-15T08:00:00Z off n1" in text
    assert "Why: duplicates: 2 on n1." in text
