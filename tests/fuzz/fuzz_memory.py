"""The memory document, read, shown and written again as a run does."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rebalancer.kube.config_map import StoredMap
from rebalancer.run.memory.document import KEY, count_last_hour
from rebalancer.run.memory.remember import describe_cooling, recall_streaks
from rebalancer.run.memory.store import MemoryStore
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.fuzz.target import Target

_SNAPSHOT = snapshot_of([node("n-a", "a"), *workload("web", ["n-a", "n-a"])])


class _Store:
    """One ConfigMap with the document."""

    def __init__(self, text: str) -> None:
        self._data = {KEY: text}

    name = "ns/memory"

    def require(self) -> StoredMap:
        return StoredMap(self._data, "1", {})

    def update(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> StoredMap:
        return StoredMap(change(self._data), "2", {})


def _read(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    memory = MemoryStore(_Store(text), _SNAPSHOT, "run")  # type: ignore[arg-type]
    memory.begin()
    describe_cooling(memory.document, _SNAPSHOT.captured_at)
    count_last_hour(memory.document, _SNAPSHOT.captured_at)
    memory.add_streaks(recall_streaks(memory.document))
    memory.save((), _SNAPSHOT.captured_at)


TARGET = Target(_read, ())
