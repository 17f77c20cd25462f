"""The memory document, read, shown and written again as a run does."""

from __future__ import annotations

from rebalancer.kube.config_map import StoredMap
from rebalancer.run.memory.document import KEY
from rebalancer.run.memory.keeper import Keeper
from rebalancer.testing.snapshots import snapshot_of
from rebalancer.testing.workloads import node, workload
from tests.fuzz.target import Target

_SNAPSHOT = snapshot_of([node("n-a", "a"), *workload("web", ["n-a", "n-a"])])


class _Store:
    """One ConfigMap with the document."""

    def __init__(self, text: str) -> None:
        self._data = {KEY: text}

    def read(self) -> StoredMap:
        return StoredMap(self._data, "1", {})

    def write(self, known: StoredMap, data: dict[str, str]) -> StoredMap:
        return StoredMap(data, "2", {})


def _read(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    keeper = Keeper(_Store(text), "ns/memory", lambda _: None)  # type: ignore[arg-type]
    keeper.load(_SNAPSHOT)
    keeper.cooling()
    keeper.moved_last_hour()
    keeper.saw(keeper.streaks() or {})
    keeper.record((), _SNAPSHOT.captured_at)


TARGET = Target(_read, ())
