"""Merging a run's journal into the memory: pure, once however often, and without loss beside others."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rebalancer.cost.streaks import Streaks
from rebalancer.plan.plan import Status
from rebalancer.run.memory.document import MAX_PARTS, Document, decode, encode
from rebalancer.run.memory.store import Journal, merge
from tests.unit.run.memory.outcomes import NOW, TERM, WEB, badly, cluster, outcome, well

SNAPSHOT = cluster()
OWNERS = ("Deployment/default/web", "Deployment/default/api")


@st.composite
def journals(draw, run: str) -> Journal:
    """A run that reports wave after wave, reserves, is cut, and may be counted."""
    journal, done = Journal(run, at=NOW), []
    at = NOW
    for wave in range(draw(st.integers(0, 3))):
        for pod in range(draw(st.integers(0, 2))):
            name, owner = f"{run}-{wave}-{pod}", draw(st.sampled_from(OWNERS))
            make = draw(st.sampled_from([badly, well, lambda **to: outcome(Status.BLOCKED, **to)]))
            done.append(make(owner=owner, pod=name))
        at += draw(st.integers(0, 90))
        journal = journal.with_outcomes(
            done,
            at,
            draw(st.sampled_from([0.0, 4.0, 60.0])),
            cut=draw(st.booleans()),
            reserved=draw(st.integers(0, 3)),
        )
    if draw(st.booleans()):
        journal = replace(journal, streaks={"low-utilisation": Streaks(NOW - 9, {"n0": 2})})
    return replace(journal, exit_code=draw(st.sampled_from([None, 0, 4])))


def evictions(document: Document) -> int:
    return sum(count for _, count in document.evictions)


@given(journals("one"), journals("other"))
def test_merging_twice_is_merging_once(mine, others):
    before = merge(Document(), others, SNAPSHOT)
    once = merge(before, mine, SNAPSHOT)
    assert merge(once, mine, SNAPSHOT) == once
    assert decode(encode(once)) == (once, None)


@given(journals("one"), journals("other"), st.data())
def test_what_another_run_writes_in_between_costs_nothing_and_counts_nothing_twice(
    mine, others, data
):
    """Some of this run is written, then the other's, then all of this run on top of that."""
    some = data.draw(st.integers(0, len(mine.outcomes)))
    early = replace(mine, outcomes=mine.outcomes[:some], exit_code=None)
    document = merge(merge(merge(Document(), early, SNAPSHOT), others, SNAPSHOT), mine, SNAPSHOT)
    done = [*mine.outcomes, *others.outcomes]
    evicted = sum(one.status.may_have_evicted for one in done)
    assert evictions(document) == evicted + mine.reserved + others.reserved
    ended = [one.exit_code for one in (mine, others) if one.exit_code is not None]
    assert sum(document.totals.runs.values()) == len(ended)
    assert sum(count for *_, count in document.totals.moves) == len(done)


def test_waves_of_one_run_that_are_merged_into_what_stood_before_are_one_try():
    waves = Journal("run").with_outcomes([badly(pod="web-0")], NOW)
    merge(Document(), waves, SNAPSHOT)
    both = waves.with_outcomes([badly(pod="web-0"), badly(pod="web-1")], NOW + 60)
    assert merge(Document(), both, SNAPSHOT).owners[WEB].terms[TERM].strikes == 1


def test_an_outcome_that_is_known_better_later_keeps_its_place():
    first, second = badly(pod="web-0"), well(pod="web-1")
    journal = Journal("run").with_outcomes([first], NOW).with_outcomes([second], NOW)
    later = journal.with_outcomes([well(pod="web-0")], NOW)
    assert [one.move.uid for one in later.outcomes] == [first.move.uid, second.move.uid]
    assert later.outcomes[0].predicted is True


def test_the_runs_that_are_told_apart_are_bounded():
    document = Document()
    for number in range(MAX_PARTS + 3):
        document = merge(document, Journal(f"run {number}"), SNAPSHOT)
    assert [part.run for part in document.parts][-1] == f"run {MAX_PARTS + 2}"
    assert len(document.parts) == MAX_PARTS
