"""Reading and writing the memory: conflicts, loss, and no write without need."""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.cost.streaks import Streaks
from rebalancer.plan.plan import Pace, Status, with_moves, with_run
from rebalancer.run.memory.document import (
    KEY,
    Document,
    PaceMemory,
    StreakMemory,
    count_last_hour,
    decode,
    encode,
)
from rebalancer.run.memory.remember import recall_streaks, remember
from rebalancer.run.memory.store import MemoryStore, open_config_map, pace_of
from tests.unit.kube.scripted import Asked, Say, ScriptedServer, Sleeps, client_of, status_body
from tests.unit.run.memory.outcomes import NOW, TERM, WEB, badly, cluster, outcome, rests, well

PATH = "/api/v1/namespaces/ops/configmaps/memory"
SNAPSHOT = cluster()


class StoredMemory:
    """A ConfigMap with optimistic locking, as a script."""

    def __init__(self, server: ScriptedServer, data: dict[str, str]) -> None:
        self.data, self.version, self.puts = data, 1, 0
        self.between: dict[str, str] | None = None
        """What another client writes just before the next PUT arrives."""
        server.handle("GET", PATH, lambda _: self._said())
        server.handle("PUT", PATH, self._put)

    def _said(self) -> Say:
        metadata = {"name": "memory", "resourceVersion": str(self.version)}
        return Say({"kind": "ConfigMap", "metadata": metadata, "data": self.data})

    def _put(self, asked: Asked) -> Say:
        self.puts += 1
        if self.between is not None:
            self.data, self.between, self.version = self.between, None, self.version + 1
        if asked.body["metadata"]["resourceVersion"] != str(self.version):
            return Say(status_body(409, "modified"), 409)
        self.data, self.version = asked.body["data"], self.version + 1
        return self._said()


_runs = itertools.count()


class Noted(MemoryStore):
    """Keeps the notes that it returns."""

    warnings: list[str]

    def begin(self) -> str | None:
        self.warnings = [] if (flaw := super().begin()) is None else [flaw]
        return flaw

    def save(self, *args: Any, **more: Any) -> str | None:
        why = super().save(*args, **more)
        self.warnings += [] if why is None else [why]
        return why


def loaded(server: ScriptedServer, tmp_path: Path) -> tuple[MemoryStore, list[str]]:
    """Return the memory of another run."""
    config_map = open_config_map(client_of(server.url, tmp_path, Sleeps()), ("ops", "memory"))
    memory = Noted(config_map, SNAPSHOT, f"run-{next(_runs)}")
    memory.begin()
    return memory, memory.warnings


def cooling_of(memory: MemoryStore) -> dict[str, str]:
    return rests(memory.document, NOW)


def evictions_before(memory: MemoryStore) -> int:
    return count_last_hour(memory.document, NOW)


def data_of(*outcomes, at=NOW):
    document = remember(Document(), SNAPSHOT, outcomes, at)
    return encode(msgspec.structs.replace(document, totals=with_moves(document.totals, outcomes)))


def without_parts(data: dict[str, str]) -> dict[str, str]:
    return encode(msgspec.structs.replace(decode(data)[0], parts=(), history=()))


def test_what_one_run_writes_the_next_one_knows(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, warnings = loaded(server, tmp_path)
    assert (cooling_of(memory), evictions_before(memory)) == ({}, 0)
    memory.save([badly(), well(owner="Deployment/default/api", pod="api-1")], NOW)
    following, _ = loaded(server, tmp_path)
    assert set(cooling_of(following)) == {WEB}
    assert evictions_before(following) == 2
    assert (stored.puts, warnings) == (1, [])


def test_a_conflict_is_read_again_and_merged_once(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, warnings = loaded(server, tmp_path)
    stored.between = data_of(badly(owner="Deployment/default/api"))
    memory.save([badly()], NOW)
    document, _ = decode(stored.data)
    assert set(document.owners) == {WEB, "Deployment/default/api"}
    assert sum(count for _, count in document.evictions) == 2
    assert (stored.puts, warnings) == (2, [])


def test_conflicts_without_end_are_a_warning_not_an_endless_fight(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, warnings = loaded(server, tmp_path)
    server.on("PUT", PATH, Say(status_body(409, "modified"), 409))
    why = memory.save([badly()], NOW)
    assert "could not be remembered" in str(why)
    assert warnings == [why]
    assert stored.data == {}
    assert len(server.to(PATH, "PUT")) == 3


@pytest.mark.parametrize("reply", [Say(hang_up=True), Say(status_body(503, "down"), 503)])
@pytest.mark.parametrize("carried_out", [True, False])
def test_a_lost_reply_to_a_write_is_read_and_counts_once(server, tmp_path, carried_out, reply):
    stored = StoredMemory(server, {})
    memory, warnings = loaded(server, tmp_path)
    lost = [True]

    def put(asked):
        if lost.pop() if lost else False:
            if carried_out:
                stored._put(asked)
            return reply
        return stored._put(asked)

    server.handle("PUT", PATH, put)
    first, second = badly(), well(owner="Deployment/default/api", pod="api-1")
    assert memory.save([first], NOW) is None
    assert memory.save([first, second], NOW) is None
    document, _ = decode(stored.data)
    assert sum(count for _, count in document.evictions) == 2
    assert document.owners[WEB].terms[TERM].strikes == 1
    assert (stored.puts, warnings) == (2, [])


def test_a_run_that_did_nothing_writes_nothing(server, tmp_path):
    stored = StoredMemory(server, data_of(badly(), at=NOW - 7000))
    memory, _ = loaded(server, tmp_path)
    memory.save([], NOW)
    assert stored.puts == 0


def test_a_run_is_counted_once_with_its_moves_and_the_sums_grow_from_run_to_run(server, tmp_path):
    stored = StoredMemory(server, {})
    for _ in range(2):
        memory, warnings = loaded(server, tmp_path)
        memory.save([badly()], NOW)
        done = [badly(), well(pod="web-1"), outcome(Status.NOT_ATTEMPTED, pod="web-2")]
        assert memory.count_run(done, 4, NOW) is None
        assert memory.count_run(done, 4, NOW) is None
    totals = decode(stored.data)[0].totals
    assert totals.runs == {"4": 2}
    assert totals.moves == (("evicted", "topology-spread", "default", 4),)
    assert totals.landings == {"as-predicted": 2, "elsewhere": 2, "unknown": 0}
    assert (memory.totals, warnings) == (totals, [])


def test_a_run_that_did_nothing_can_be_counted_and_changes_nothing_else(server, tmp_path):
    stored = StoredMemory(server, data_of(badly(), at=NOW - 7000))
    before, _ = decode(stored.data)
    memory, _ = loaded(server, tmp_path)
    memory.save([], NOW)
    memory.count_run([], 0, NOW)
    after, _ = decode(stored.data)
    assert (stored.puts, after.totals.runs, after.owners) == (1, {"0": 1}, before.owners)


def test_a_run_that_another_has_written_beside_is_counted_once(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, _ = loaded(server, tmp_path)
    memory.save([badly()], NOW)
    beside = decode(stored.data)[0]
    stored.between = encode(
        msgspec.structs.replace(beside, totals=with_run(with_moves(beside.totals, [well()]), 0))
    )
    assert memory.count_run([badly()], 0, NOW) is None
    totals = decode(stored.data)[0].totals
    assert totals.runs == {"0": 2}
    assert totals.moves == (("evicted", "topology-spread", "default", 2),)


def test_a_run_whose_count_is_committed_without_a_reply_is_counted_once(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, _ = loaded(server, tmp_path)
    replies = [Say(status_body(503, "down"), 503)]

    def put(asked):
        said = stored._put(asked)
        return replies.pop() if replies else said

    server.handle("PUT", PATH, put)
    assert memory.count_run([badly()], 0, NOW) is None
    assert memory.count_run([badly()], 0, NOW) is None
    assert decode(stored.data)[0].totals.runs == {"0": 1}


def test_what_was_forgotten_is_written_even_if_nothing_was_done(server, tmp_path):
    stored = StoredMemory(server, encode(remember(Document(), cluster(zones="xy"), [badly()], NOW)))
    memory, _ = loaded(server, tmp_path)
    assert cooling_of(memory) == {}
    memory.save([], NOW)
    assert decode(stored.data)[0].owners == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("}{", "could not be understood"),
        ('{"version": 2, "owners": {}}', "of version 2, this program knows 1"),
        ('{"version": 1, "evictions": [[1]]}', "could not be understood: evictions"),
    ],
)
def test_a_memory_without_an_hour_to_read_is_said_and_left_alone(server, tmp_path, text, says):
    stored = StoredMemory(server, {KEY: text})
    memory, warnings = loaded(server, tmp_path)
    assert says in str(memory.hour_unknown)
    assert f"remove {KEY} from ConfigMap ops/memory" in str(memory.hour_unknown)
    memory.save([badly()], NOW)
    assert (stored.puts, stored.data, warnings) == (0, {KEY: text}, [])


def test_what_is_broken_of_it_is_forgotten_and_the_hour_is_kept(server, tmp_path):
    minute = int(NOW // 60)
    text = f'{{"version": 1, "evictions": [[{minute}, 4]], "owners": {{"a": 1}}}}'
    stored = StoredMemory(server, {KEY: text})
    memory, warnings = loaded(server, tmp_path)
    assert (evictions_before(memory), memory.hour_unknown) == (4, None)
    assert warnings == [
        "parts of the memory could not be understood: owners[a]; they are forgotten"
    ]
    memory.save([], NOW)
    assert without_parts(stored.data) == encode(Document(evictions=((minute, 4),)))


def test_a_memory_that_broke_after_it_was_read_is_not_overwritten(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, _ = loaded(server, tmp_path)
    stored.between = {KEY: '{"version": 9}'}
    assert "of version 9" in str(memory.save([badly()], NOW))
    assert stored.data == {KEY: '{"version": 9}'}


def test_a_config_map_that_does_not_exist_ends_the_run_before_anything(server, tmp_path):
    server.on("GET", PATH, Say(status_body(404, "not found"), 404))
    with pytest.raises(ClusterReadError, match="there is no ConfigMap ops/memory: create it"):
        loaded(server, tmp_path)


def test_a_404_that_is_not_the_api_servers_does_not_say_that_the_config_map_is_gone(
    server, tmp_path
):
    server.on("GET", PATH, Say(b"<html>no such page</html>", 404))
    memory, _ = loaded(server, tmp_path)
    assert "HTTP 404: <html>no such page" in str(memory.hour_unknown)


def test_a_memory_that_may_not_be_read_is_said_and_nothing_is_written(server, tmp_path):
    server.on("GET", PATH, Say(status_body(403, "no"), 403))
    memory, _ = loaded(server, tmp_path)
    assert "may not get configmaps memory" in str(memory.hour_unknown)
    assert (cooling_of(memory), evictions_before(memory), memory.totals) == ({}, 0, None)
    assert memory.save([badly()], NOW) is None
    assert server.to(PATH, "PUT") == []


def test_strikes_add_up_over_runs(server, tmp_path):
    stored = StoredMemory(server, {})
    for run in range(3):
        memory, _ = loaded(server, tmp_path)
        memory.save([badly()], NOW + run)
    assert decode(stored.data)[0].owners[WEB].terms[TERM].strikes == 3


def test_what_is_reported_wave_after_wave_counts_once(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, _ = loaded(server, tmp_path)
    first, second = badly(), well(owner="Deployment/default/api", pod="api-1")
    memory.save([first], NOW)
    assert without_parts(stored.data) == data_of(first)
    memory.save([first, second], NOW)
    assert without_parts(stored.data) == data_of(first, second)


def test_a_run_that_tried_moves_is_kept_once_with_what_came_of_each(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, _ = loaded(server, tmp_path)
    first, second = badly(), well(owner="Deployment/default/api", pod="api-1")
    memory.save([first], NOW)
    memory.save([first, second], NOW + 5)
    memory.save([first, second], NOW + 5)
    (run,) = decode(stored.data)[0].history
    assert (run.at, run.more) == (NOW + 5, 0)
    assert [(move.pod, move.landed, move.predicted) for move in run.moves] == [
        (first.move.ref, first.landed, first.predicted),
        (second.move.ref, second.landed, second.predicted),
    ]
    # Runs that do nothing push none out.
    for _ in range(3):
        idle, _ = loaded(server, tmp_path)
        idle.save([], NOW + 60)
        idle.count_run([], 0, NOW + 60)
    assert decode(stored.data)[0].history == (run,)


def test_what_was_written_before_another_client_wrote_is_not_added_again(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, warnings = loaded(server, tmp_path)
    first, second = badly(), well(owner="Deployment/default/api", pod="api-1")
    memory.save([first], NOW)
    stored.between = stored.data
    memory.save([first, second], NOW)
    third = well(owner="Deployment/default/db", pod="db-1")
    memory.save([first, second, third], NOW)
    document, _ = decode(stored.data)
    assert sum(count for _, count in document.evictions) == 3
    assert document.owners[WEB].terms[TERM].strikes == 1
    assert warnings == []


LOW = "low-utilisation"


def test_what_was_seen_is_known_to_the_next_run_and_a_dry_one_reads_it(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, _ = loaded(server, tmp_path)
    assert recall_streaks(memory.document) == {}
    memory.add_streaks({LOW: Streaks(NOW - 9, {"n0": 1})})
    memory.save([], NOW)
    following, warnings = loaded(server, tmp_path)
    assert recall_streaks(following.document) == {LOW: Streaks(NOW - 9, {"n0": 1})}
    assert (stored.puts, warnings) == (1, [])


def test_what_was_seen_before_is_not_written_again(server, tmp_path):
    stored = StoredMemory(
        server, encode(Document(streaks={LOW: StreakMemory(NOW - 60, {"n0": 3})}))
    )
    memory, _ = loaded(server, tmp_path)
    memory.add_streaks({LOW: Streaks(NOW - 9, {"n0": 3})})
    memory.save([], NOW)
    assert stored.puts == 0
    # The same thing twice in one run is one thing.
    memory.add_streaks({LOW: Streaks(NOW - 9, {"n0": 3, "n1": 1})})
    memory.save([], NOW)
    memory.save([], NOW)
    assert stored.puts == 1


def test_what_was_seen_outlives_a_conflict(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, _ = loaded(server, tmp_path)
    stored.between = data_of(badly(owner="Deployment/default/api"))
    memory.add_streaks({LOW: Streaks(NOW - 9, {"n0": 1})})
    memory.save([], NOW)
    document, _ = decode(stored.data)
    assert set(document.owners) == {"Deployment/default/api"}
    assert document.streaks == {LOW: StreakMemory(NOW - 9, {"n0": 1})}


def test_a_wave_that_was_cut_off_says_nothing_of_the_pace_where_others_do(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, _ = loaded(server, tmp_path)
    first, second = badly(), well(owner="Deployment/default/api")
    memory.save([first], NOW, 4.0)
    memory.save([first, second], NOW, 60.0, cut=True)
    document, _ = decode(stored.data)
    assert document.pace == PaceMemory(1, 1, 4.0)


def test_a_run_whose_only_wave_was_cut_off_leaves_that_it_was_no_faster(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, _ = loaded(server, tmp_path)
    memory.save([badly()], NOW, 60.0, cut=True)
    document, _ = decode(stored.data)
    assert document.pace == PaceMemory(1, 1, 60.0)
    following, _ = loaded(server, tmp_path)
    assert pace_of(following.document.pace) == Pace(wave=60.0 - Pace().eviction)
    # A shorter one that was cut says no more than is known.
    following.save([badly()], NOW, 30.0, cut=True)
    assert decode(stored.data)[0].pace == PaceMemory(1, 1, 60.0)
    # One that came to its end does.
    following.save([badly()], NOW, 5.0)
    assert decode(stored.data)[0].pace == PaceMemory(1, 1, 5.0)


def evictions(stored):
    document, _ = decode(stored.data)
    return sum(count for _, count in document.evictions)


def test_what_is_reserved_counts_until_it_is_known_what_was_done(server, tmp_path):
    stored = StoredMemory(server, data_of(badly(), at=NOW - 600))
    memory, warnings = loaded(server, tmp_path)
    assert memory.save([], NOW, reserved=5) is None
    assert evictions(stored) == 6
    first = well(owner="Deployment/default/api", pod="api-1")
    assert memory.save([first], NOW + 90, reserved=3) is None
    assert evictions(stored) == 5
    assert memory.save([first], NOW + 180) is None
    assert (evictions(stored), warnings) == (2, [])


def test_what_was_reserved_and_not_done_is_given_back(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, _ = loaded(server, tmp_path)
    memory.save([], NOW, reserved=5)
    memory.save([], NOW)
    assert evictions(stored) == 0


def test_what_is_reserved_counts_once_although_another_client_has_written(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, _ = loaded(server, tmp_path)
    memory.save([], NOW, reserved=2)
    other = remember(decode(stored.data)[0], SNAPSHOT, [badly()], NOW)
    stored.between = encode(other)
    first = well(owner="Deployment/default/api", pod="api-1")
    assert memory.save([first], NOW + 90) is None
    assert evictions(stored) == 2


def test_a_lost_reply_to_what_is_reserved_reserves_once(server, tmp_path):
    stored = StoredMemory(server, {})
    memory, warnings = loaded(server, tmp_path)
    lost = [True]

    def put(asked):
        said = stored._put(asked)
        return Say(hang_up=True) if lost and lost.pop() else said

    server.handle("PUT", PATH, put)
    assert memory.save([], NOW, reserved=2) is None
    assert evictions(stored) == 2
    assert memory.save([well()], NOW) is None
    assert (evictions(stored), warnings) == (1, [])


def test_two_runs_beside_each_other_are_each_counted_once(server, tmp_path):
    stored = StoredMemory(server, {})
    (one, said), (other, said_other) = loaded(server, tmp_path), loaded(server, tmp_path)
    web, api = badly(), well(owner="Deployment/default/api", pod="api-1")
    one.save([], NOW, reserved=2)
    other.save([], NOW, reserved=1)
    one.save([web], NOW + 9, reserved=1)
    other.save([api], NOW + 9)
    db = well(owner="Deployment/default/db", pod="db-1")
    one.save([web, db], NOW + 20)
    one.count_run([web, db], 0, NOW + 20)
    other.count_run([api], 4, NOW + 20)
    document, _ = decode(stored.data)
    assert evictions(stored) == 3
    assert document.owners[WEB].terms[TERM].strikes == 1
    assert document.totals.runs == {"0": 1, "4": 1}
    assert (said, said_other) == ([], [])
