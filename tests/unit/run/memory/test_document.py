"""The document survives loss, corruption and growth."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.commands.history import document_of
from rebalancer.plan.plan import with_moves, with_run
from rebalancer.run.memory.document import (
    FORGOTTEN_AFTER,
    KEY,
    MAX_BYTES,
    MAX_HISTORY,
    MAX_OWNERS,
    ActingRun,
    Document,
    MoveRecord,
    OwnerMemory,
    StreakMemory,
    TermMemory,
    count_evictions,
    count_last_hour,
    decode,
    encode,
    shorten,
    with_acting_run,
)
from rebalancer.run.memory.remember import describe_cooling, recall_streaks, without_old
from tests.unit.run.memory.outcomes import well

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
    streaks=st.dictionaries(
        st.text(max_size=9),
        st.builds(
            StreakMemory,
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


DEEP = '{"x":' * 5000 + "1" + "}" * 5000
GOOD = {"fingerprint": "u/1", "zones": "z", "seen": 5, "terms": {"t/hard": {"moves": 1}}}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        "nonsense",
        "[" * 100_000,
        '{"version": 1, "later": ' + DEEP + "}",
        json.dumps({"version": "one"}),
        json.dumps({"version": True}),
        json.dumps({"version": 1, "evictions": {}}),
        json.dumps({"version": 1, "evictions": [[1]]}),
        json.dumps({"version": 1, "evictions": [[1, -1]]}),
        json.dumps({"version": 1, "evictions": [[1, 10**30]]}),
        json.dumps({"version": 1, "evictions": [["1", 1]]}),
    ],
)
def test_where_the_hour_cannot_be_understood_it_is_said(text):
    document, flaw = decode({KEY: text})
    assert document == Document()
    assert flaw is not None
    assert flaw.hour_unknown
    assert "could not be understood" in flaw.message


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        ({"owners": []}, "owners"),
        ({"owners": {"a": GOOD, "b": {**GOOD, "fingerprint": 3}}}, "owners[b]"),
        ({"owners": {"a": GOOD, "b": {**GOOD, "seen": 10**15}}}, "owners[b]"),
        ({"owners": {"a": GOOD, "b": {**GOOD, "terms": {"t": {"until": 1e400}}}}}, "owners[b]"),
        ({"owners": {"a": GOOD, "b": {**GOOD, "terms": {"t": {"strikes": -1}}}}}, "owners[b]"),
        ({"owners": {"a": GOOD, "b": None}}, "owners[b]"),
        ({"streaks": {"low-utilisation": {"runs": {"n0": "two"}}}}, "streaks[low-utilisation]"),
        ({"streaks": {"x": {"at": 1e300}}}, "streaks[x]"),
        ({"totals": {"runs": {"0": -1}}}, "totals"),
        ({"totals": {"moves": [["evicted", "x", 3]]}}, "totals"),
    ],
)
def test_one_broken_part_costs_no_other(broken, names):
    text = json.dumps({"version": 1, "evictions": [[7, 2]], **broken}).replace("Infinity", "1e400")
    document, flaw = decode({KEY: text})
    assert document.evictions == ((7, 2),)
    assert set(document.owners) == ({"a"} if "a" in broken.get("owners", ()) else set())
    assert document.streaks == {}
    assert flaw is not None
    assert not flaw.hour_unknown
    assert flaw.message.endswith(f": {names}")


def test_fields_that_are_not_known_are_left_out():
    owner = {**GOOD, "later": {"deep": [1]}, "terms": {"t/hard": {"moves": 1, "later": []}}}
    text = json.dumps({"version": 1, "later": True, "owners": {"a": owner}})
    document, flaw = decode({KEY: text})
    assert flaw is None
    assert document.owners["a"].terms == {"t/hard": TermMemory(moves=1)}


@pytest.mark.parametrize("version", [0, 2, 17])
def test_another_version_is_not_guessed_at(version):
    document, flaw = decode({KEY: json.dumps({"version": version, "owners": {}})})
    assert document == Document()
    assert flaw is not None
    assert flaw.hour_unknown
    assert f"version {version}" in flaw.message


@given(st.text())
def test_no_text_at_all_breaks_it(text):
    document, _ = decode({KEY: text})
    assert isinstance(document, Document)


_numbers = st.one_of(st.integers(), st.floats(), st.sampled_from([2**53, -(2**63), 10**400]))
_anything = st.recursive(
    st.one_of(st.none(), st.booleans(), _numbers, st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
_term = st.fixed_dictionaries(
    {},
    optional={
        name: st.one_of(_numbers, _anything)
        for name in (
            "moves",
            "strikes",
            "until",
            "last",
            "vain",
            "why",
            "givenUp",
            "trail",
            "hopes",
        )
    },
)
_owner = st.fixed_dictionaries(
    {
        "fingerprint": st.one_of(st.text(max_size=4), _anything),
        "zones": st.one_of(st.text(max_size=4), _anything),
        "seen": st.one_of(_numbers, _anything),
        "terms": st.one_of(st.dictionaries(st.text(max_size=8), _term, max_size=2), _anything),
    }
)
_documents = st.fixed_dictionaries(
    {"version": st.one_of(st.just(1), _anything)},
    optional={
        "owners": st.one_of(st.dictionaries(st.text(max_size=8), _owner, max_size=2), _anything),
        "evictions": st.one_of(st.lists(st.lists(_numbers, max_size=3), max_size=3), _anything),
        "streaks": st.one_of(
            st.dictionaries(
                st.text(max_size=8),
                st.fixed_dictionaries({"at": _numbers, "runs": _anything}),
                max_size=2,
            ),
            _anything,
        ),
        "totals": st.fixed_dictionaries(
            {},
            optional={
                "runs": st.dictionaries(st.text(max_size=3), _numbers, max_size=2),
                "moves": st.one_of(
                    st.lists(st.tuples(*[st.text(max_size=3)] * 3, _numbers), max_size=2), _anything
                ),
                "landings": st.dictionaries(st.text(max_size=3), _numbers, max_size=2),
            },
        ),
        "later": _anything,
    },
)


@given(_documents)
@settings(max_examples=60)
def test_whatever_json_is_in_it_a_run_can_use_it_and_write_it_again(data):
    """All that a run, and ``history``, do with a document."""
    document, flaw = decode({KEY: json.dumps(data)})
    kept = count_evictions(shorten(document, NOW), 1, NOW)
    describe_cooling(kept, NOW)
    recall_streaks(without_old(kept, NOW))
    kept = msgspec.structs.replace(kept, totals=with_run(with_moves(kept.totals, [well()]), 0))
    for form in ("table", "json", "yaml"):
        text = document_of(document, NOW).show(form)
        assert text.replace("\n", "").isprintable()
    if flaw is None or not flaw.hour_unknown:
        assert count_last_hour(kept, NOW) >= 1
        assert decode(encode(kept)) == (kept, None)


def filled(count, why="", seen=lambda i: NOW - i):
    return Document(
        owners={
            f"Deployment/ns/{i:05d}": OwnerMemory("u/1", "z", seen(i), {"t": TermMemory(why=why)})
            for i in range(count)
        }
    )


def test_the_oldest_go_first_when_there_are_too_many():
    kept = shorten(filled(MAX_OWNERS + 50), NOW).owners
    assert len(kept) == MAX_OWNERS
    assert max(kept) == f"Deployment/ns/{MAX_OWNERS - 1:05d}"


def test_the_oldest_go_first_when_they_are_too_large():
    document = shorten(filled(1900, why="y" * 900), NOW)
    size = len(encode(document)[KEY])
    assert 0.9 * MAX_BYTES < size <= MAX_BYTES
    assert min(document.owners) == "Deployment/ns/00000"


def test_owners_that_were_not_moved_for_a_week_are_forgotten():
    document = filled(10, seen=lambda i: NOW - FORGOTTEN_AFTER + 5 - i)
    assert len(shorten(document, NOW).owners) == 6


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, NOW), st.integers(0, 60)), max_size=30))
def test_the_history_is_bounded_and_keeps_the_newest(runs):
    document = Document()
    for run, at, moves in runs:
        record = MoveRecord("p" * 100, "o" * 100, "n" * 60, "s", "r" * 200, "evicted")
        before = document
        document = with_acting_run(document, ActingRun(str(run), at, "by", (record,) * moves))
        assert sum(len(msgspec.json.encode(one)) for one in document.history) <= MAX_HISTORY
        times = [one.at for one in document.history]
        assert times == sorted(times)
        assert len({one.run for one in document.history}) == len(times)
        gone = (
            {one.run for one in before.history} - {one.run for one in document.history} - {str(run)}
        )
        assert all(one.at <= min(times, default=NOW) for one in before.history if one.run in gone)
    assert decode(encode(document)) == (document, None)


def test_a_program_that_knows_no_history_reads_the_rest():
    run = ActingRun(
        "one", NOW, "", (MoveRecord("d/p", "Deployment/d/p", "n", "s", "r", "evicted"),)
    )
    written = json.loads(encode(with_acting_run(Document(), run))[KEY])
    older = {key: value for key, value in written.items() if key != "history"}
    assert decode({KEY: json.dumps(older)}) == (Document(), None)
    newer = {**written, "history": [{**written["history"][0], "later": 1}], "later": {}}
    assert decode({KEY: json.dumps(newer)})[0].history == (run,)
