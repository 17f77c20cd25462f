"""How long a run took is remembered, and the next one plans by it."""

import pytest

from rebalancer.plan.plan import Cause, Cost, Move, Outcome, Pace, Status
from rebalancer.run.memory.document import Document, PaceMemory, decode, encode
from rebalancer.run.memory.store import pace_of, with_pace, with_pace_of_cut

KNOWN = Document(pace=PaceMemory(5, 1, 3.0))


def outcome(wave, status=Status.EVICTED, cause=Cause.PLACE):
    move = Move("ns", f"p{wave}", f"u{wave}", "", "n0", (), "s", "", Cost(), 1.0, wave, cause=cause)
    return Outcome(move, status, "")


@pytest.mark.parametrize(
    ("outcomes", "seconds", "pace"),
    [
        ([outcome(1), outcome(1), outcome(2)], 12.34, PaceMemory(3, 2, 12.3)),
        ([outcome(1), outcome(2, Status.BLOCKED)], 4.0, PaceMemory(1, 1, 4.0)),
        ([outcome(1, Status.BLOCKED)], 4.0, KNOWN.pace),
        ([], 4.0, KNOWN.pace),
        ([outcome(1)], 0.0, KNOWN.pace),
        # Nothing replaces what has ended: its removal does not say how long a wave takes.
        ([outcome(1, cause=Cause.ENDED)], 0.2, KNOWN.pace),
        ([outcome(1), outcome(2, cause=Cause.ENDED)], 4.0, PaceMemory(1, 1, 4.0)),
    ],
)
def test_a_run_that_evicted_leaves_its_pace(outcomes, seconds, pace):
    after = with_pace(KNOWN, outcomes, seconds)
    assert after.pace == pace
    assert decode(encode(after)) == (after, None)


NOT_BEGUN = outcome(1, Status.NOT_ATTEMPTED)
LATER = outcome(2, Status.NOT_ATTEMPTED)


@pytest.mark.parametrize(
    ("known", "outcomes", "seconds", "pace"),
    [
        # The usual pace: 0.1 s an eviction, 2 s a wave. Two evictions, and the wave has not ended after 70 s.
        (None, [outcome(1), outcome(1), LATER], 70.0, PaceMemory(2, 1, 70.0)),
        # Evictions alone were cut: 35 s each.
        (None, [outcome(1), outcome(1), NOT_BEGUN], 70.0, PaceMemory(2, 0, 70.0)),
        # By what is known this had to be expected: 1.9 s after evictions, or 0.1 s for one of them.
        (None, [outcome(1), LATER], 1.9, None),
        (None, [outcome(1), NOT_BEGUN], 0.02, None),
        (PaceMemory(1, 1, 90.0), [outcome(1), LATER], 70.0, PaceMemory(1, 1, 90.0)),
        (PaceMemory(2, 0, 90.0), [outcome(1), NOT_BEGUN], 44.0, PaceMemory(2, 0, 90.0)),
        (PaceMemory(2, 0, 90.0), [outcome(1), NOT_BEGUN], 46.0, PaceMemory(1, 0, 46.0)),
        (None, [outcome(1, Status.BLOCKED), NOT_BEGUN], 70.0, None),
        (None, [outcome(1, cause=Cause.ENDED), LATER], 70.0, None),
    ],
)
def test_a_first_wave_that_was_cut_off_says_that_the_run_was_no_faster(
    known, outcomes, seconds, pace
):
    after = with_pace_of_cut(Document(pace=known), outcomes, seconds)
    assert after.pace == pace
    assert decode(encode(after)) == (after, None)


def test_evictions_that_filled_a_run_are_as_many_as_the_next_one_plans():
    pace = pace_of(PaceMemory(100, 0, 50.0))
    assert (pace.eviction, pace.wave) == (0.5, Pace().wave)
