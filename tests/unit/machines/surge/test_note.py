"""The note on a group: what was written is read again, within what a tag may hold."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.base.errors import ClusterReadError
from rebalancer.machines.surge.note import GroupNote, GroupNotes, author

PROCESSES = ("AZRebalance", "AlarmNotification", "InstanceRefresh", "ScheduledActions")
ZONES = [f"ap-southeast-1{z}" for z in "abcdef"]
NOWHERE = ""
"""The zone of machines without one."""
NOTES = GroupNotes("6f0c2a52-0b4a-4b63-8d0e-0d6d1f0a9c11")
numbers = st.integers(1, 10**6)


@given(
    st.builds(
        GroupNote,
        desired=numbers,
        size=numbers,
        at=st.integers(0, 2**33),
        since=st.integers(0, 2**33),
        zones=st.dictionaries(st.sampled_from([*ZONES, ""]), st.integers(0, 999), max_size=3),
        by=st.text("pod-1", min_size=2, max_size=60).map(author).filter(lambda name: name != "-"),
        seen=st.integers(0, 2**33),
        suspended=st.sets(st.sampled_from(PROCESSES), max_size=2).map(lambda s: tuple(sorted(s))),
    ).filter(lambda note: note.size <= 2 * note.desired)
)
def test_what_is_written_is_read_again(note):
    assert NOTES.parse("pool", NOTES.text("pool", note)) == note


@given(
    st.text(st.characters(codec="ascii", categories=["L", "P", "Z"]), min_size=1).map(
        lambda s: f"x{s}"
    ),
    st.integers(0, 6),
    st.booleans(),
)
def test_a_note_fits_into_a_tag_and_keeps_what_is_to_be_restored(back, zones, nowhere):
    note = GroupNote(
        desired=1000,
        size=1002,
        at=1_800_000_000,
        since=1_800_000_000,
        zones=dict.fromkeys([*ZONES[: min(zones, 6 - nowhere)], *[NOWHERE][:nowhere]], 100),
        suspended=PROCESSES,
        by=author("kube-rebalancer-replace-" + "x" * 200),
        seen=1_800_000_000,
        back=back or "?",
    )
    text = NOTES.text("pool", note)
    assert len(text) <= 256
    assert re.fullmatch(r"[A-Za-z0-9 +\-=._:/@]*", text)
    read = NOTES.parse("pool", text)
    assert read is not None
    assert (read.desired, read.zones, read.suspended) == (1000, note.zones, PROCESSES)
    assert read.back


def test_why_it_is_taken_back_is_kept_in_words():
    note = GroupNote(desired=1, size=2, at=3, since=4, back="i-1 is not Ready after 15m")
    assert NOTES.parse("pool", NOTES.text("pool", note)) == note


def test_no_note_is_none():
    assert NOTES.parse("pool", "") is None


@pytest.mark.parametrize(
    "text", ["x", "desired=1", "desired=a size=1 at=1 since=1 zones=- suspended=- back=-"]
)
def test_what_cannot_be_read_is_named_with_what_to_do(text):
    with pytest.raises(ClusterReadError, match="remove the note"):
        NOTES.parse("pool", text)


@pytest.mark.parametrize(
    "changed",
    [
        {"desired": 0},
        {"desired": -4},
        {"size": -1},
        {"desired": 2, "size": 100},
        {"at": -1},
        {"since": -1},
        {"seen": -1},
        {"zones": {"a": -2}},
    ],
    ids=str,
)
def test_numbers_that_no_replacement_writes_are_refused(changed):
    true = GroupNote(desired=4, size=5, at=3, since=4, seen=5, zones={"a": 2})
    assert NOTES.parse("pool", NOTES.text("pool", true))
    with pytest.raises(ClusterReadError, match="remove the note"):
        NOTES.parse("pool", NOTES.text("pool", replace(true, **changed)))


@pytest.mark.parametrize(
    "changed",
    [
        {"desired": 3},
        {"size": 6},
        {"at": 1},
        {"zones": {}},
        {"suspended": PROCESSES},
        {"seen": 6},
        {"by": "x"},
    ],
    ids=str,
)
def test_a_note_that_was_changed_by_hand_is_refused(changed):
    """Who may only tag groups could make old machines look new: they would be ended as surplus."""
    true = GroupNote(desired=4, size=5, at=3, since=4, seen=5, zones={"a": 2}, by="pod")
    seal = NOTES.text("pool", true).split("seal=")[1]
    forged = NOTES.text("pool", replace(true, **changed)).split("seal=")[0] + f"seal={seal}"
    with pytest.raises(ClusterReadError, match="not from a replacement of this group"):
        NOTES.parse("pool", forged)


def test_who_may_only_tag_cannot_have_it_taken_back():
    text = NOTES.text("pool", GroupNote(desired=4, size=5, at=3, since=4))
    with pytest.raises(ClusterReadError, match="not from a replacement of this group"):
        NOTES.parse("pool", text.removesuffix("back=-") + "back=x")


def test_a_note_of_another_group_or_cluster_is_refused():
    """Groups are copied with their tags."""
    text = NOTES.text("pool", GroupNote(desired=4, size=5, at=3, since=4))
    assert NOTES.parse("pool", text)
    for notes, group in ((NOTES, "copy"), (GroupNotes("another"), "pool")):
        with pytest.raises(ClusterReadError, match="not from a replacement of this group"):
            notes.parse(group, text)
