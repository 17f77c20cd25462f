"""How long a run took is remembered, and the next one plans by it."""

import pytest

from rebalancer.memory.document import Document, PaceMemory, decode, encode
from rebalancer.memory.keeper import Keeper
from rebalancer.memory.pace import with_pace
from rebalancer.plan.outcome import Outcome, Status
from rebalancer.plan.plan import Cost, Move
from rebalancer.planner.pace import Pace

KNOWN = Document(pace=PaceMemory(5, 1, 3.0))


def outcome(wave, status=Status.EVICTED):
    move = Move("ns", f"p{wave}", f"u{wave}", "", "n0", (), "s", "", Cost(), 1.0, wave)
    return Outcome(move, status, "")


@pytest.mark.parametrize(
    ("outcomes", "seconds", "pace"),
    [
        ([outcome(1), outcome(1), outcome(2)], 12.34, PaceMemory(3, 2, 12.3)),
        ([outcome(1), outcome(2, Status.BLOCKED)], 4.0, PaceMemory(1, 1, 4.0)),
        ([outcome(1, Status.BLOCKED)], 4.0, KNOWN.pace),
        ([], 4.0, KNOWN.pace),
        ([outcome(1)], 0.0, KNOWN.pace),
    ],
)
def test_a_run_that_evicted_leaves_its_pace(outcomes, seconds, pace):
    after = with_pace(KNOWN, outcomes, seconds)
    assert after.pace == pace
    assert decode(encode(after)) == (after, None)


def test_a_memory_of_before_has_no_pace_and_the_usual_one_is_taken():
    document, warning = decode({"memory.json": '{"version":1,"owners":{},"evictions":[]}'})
    assert (document.pace, warning) == (None, None)
    assert Keeper(None, "ns/name", print).pace() == Pace()
