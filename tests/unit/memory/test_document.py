"""The document survives loss, corruption and growth."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.memory.document import (
    FORGOTTEN_AFTER,
    KEY,
    LARGEST,
    MOST_OWNERS,
    Document,
    OwnerMemory,
    SignalMemory,
    TermMemory,
    bounded,
    decode,
    encode,
)

NOW = 1_800_000_000

terms = st.builds(
    TermMemory,
    moves=st.integers(0, 99),
    strikes=st.integers(0, 9),
    until=st.integers(0, NOW),
    why=st.text(max_size=20),
    trail=st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=4).map(tuple),
)
owners = st.builds(
    OwnerMemory,
    fingerprint=st.text(max_size=9),
    zones=st.text(max_size=9),
    seen=st.integers(NOW - 1000, NOW),
    terms=st.dictionaries(st.text(max_size=9), terms, max_size=3),
)
documents = st.builds(
    Document,
    owners=st.dictionaries(st.text(max_size=20), owners, max_size=5),
    evictions=st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), max_size=5).map(tuple),
    signals=st.dictionaries(
        st.text(max_size=9),
        st.builds(
            SignalMemory,
            at=st.floats(0, NOW),
            runs=st.dictionaries(st.text(max_size=9), st.integers(1, 9), max_size=3),
        ),
        max_size=3,
    ),
)


@given(documents)
def test_what_is_written_is_read_again(document):
    assert decode(encode(document)) == (document, None)


@given(documents)
def test_the_same_document_gives_the_same_bytes_in_any_order(document):
    turned = msgspec.structs.replace(
        document, owners=dict(sorted(document.owners.items(), reverse=True))
    )
    assert encode(document) == encode(turned)


@pytest.mark.parametrize("data", [{}, {KEY: ""}, {"other": "x"}])
def test_an_empty_config_map_is_a_beginning_without_a_warning(data):
    assert decode(data) == (Document(), None)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        "nonsense",
        json.dumps({"version": 1, "owners": []}),
        json.dumps({"version": 1, "owners": {"a": {"fingerprint": 3, "zones": "", "seen": 0}}}),
        json.dumps({"version": 1, "unknown": True}),
        json.dumps({"version": "one"}),
        json.dumps({"version": 1, "signals": {"low-utilisation": {"runs": {"n0": "two"}}}}),
    ],
)
def test_what_cannot_be_understood_is_started_afresh_with_a_warning(text):
    document, warning = decode({KEY: text})
    assert document == Document()
    assert warning is not None
    assert "started afresh" in warning


def test_a_document_of_before_there_were_signals_is_understood():
    text = json.dumps({"version": 1, "owners": {}, "evictions": [[7, 2]]})
    assert decode({KEY: text}) == (Document(evictions=((7, 2),)), None)


@pytest.mark.parametrize("version", [0, 2, 17])
def test_another_version_is_not_guessed_at(version):
    document, warning = decode({KEY: json.dumps({"version": version, "owners": {}})})
    assert document == Document()
    assert f"version {version}" in str(warning)


@given(st.text())
def test_no_text_at_all_breaks_it(text):
    document, _ = decode({KEY: text})
    assert isinstance(document, Document)


def filled(count, why="", seen=lambda i: NOW - i):
    return Document(
        owners={
            f"Deployment/ns/{i:05d}": OwnerMemory("u/1", "z", seen(i), {"t": TermMemory(why=why)})
            for i in range(count)
        }
    )


def test_the_oldest_go_first_when_there_are_too_many():
    kept = bounded(filled(MOST_OWNERS + 50), NOW).owners
    assert len(kept) == MOST_OWNERS
    assert max(kept) == f"Deployment/ns/{MOST_OWNERS - 1:05d}"


def test_the_oldest_go_first_when_they_are_too_large():
    document = bounded(filled(1900, why="y" * 900), NOW)
    size = len(encode(document)[KEY])
    assert 0.9 * LARGEST < size <= LARGEST
    assert min(document.owners) == "Deployment/ns/00000"


def test_owners_that_were_not_moved_for_a_week_are_forgotten():
    document = filled(10, seen=lambda i: NOW - FORGOTTEN_AFTER + 5 - i)
    assert len(bounded(document, NOW).owners) == 6
