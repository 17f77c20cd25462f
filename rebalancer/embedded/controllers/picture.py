"""Snapshots of the store, by the same fold as for a real cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.kinds import Json, Kind
from rebalancer.embedded.apiserver.store import Store
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.pods import Pod, PodRecord

T = TypeVar("T")
_WORKLOADS = (
    kinds.REPLICA_SET,
    kinds.CONTROLLER,
    kinds.STATEFUL_SET,
    kinds.DEPLOYMENT,
    kinds.JOB,
)


class StoreSnapshots:
    """Makes snapshots of a store; keeps decoded objects as long as they are unchanged."""

    def __init__(self, store: Store, version: tuple[int, int]) -> None:
        self._store, self.version = store, version
        self._decoded: dict[str, tuple[str, Any]] = {}

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the present state."""
        fold = Fold()
        fold.add_pods([self._record(pod) for pod in self._store.items(kinds.POD)])
        fold.add_nodes(self._all(kinds.NODE, o.Node))
        for kind in _WORKLOADS:
            fold.add_workloads(kind.kind, self._all(kind, o.Workload))
        fold.add_budgets(self._all(kinds.BUDGET, o.PodDisruptionBudget))
        fold.add_namespaces(self._all(kinds.NAMESPACE, o.Namespace))
        fold.add_services(self._all(kinds.SERVICE, o.Service))
        fold.add_claims(self._all(kinds.CLAIM, o.PersistentVolumeClaim))
        fold.add_volumes(self._all(kinds.VOLUME, o.PersistentVolume))
        fold.add_storage_classes(self._all(kinds.STORAGE_CLASS, o.StorageClass))
        fold.add_csi_nodes(self._all(kinds.CSI_NODE, o.CSINode))
        self._forget(self._store.items(kinds.POD))
        return fold.finish(captured_at=self._store.clock.now(), version=self.version)

    def _record(self, pod: Json) -> PodRecord:
        def decode() -> PodRecord:
            return msgspec.json.decode(msgspec.json.encode(pod), type=Pod).record()

        record: PodRecord = self._cached(pod, decode)
        return record

    def _all(self, kind: Kind, of: type[T]) -> Iterator[T]:
        for obj in self._store.items(kind):
            yield self._cached(obj, lambda obj=obj: msgspec.convert(obj, of, strict=False))

    def _cached(self, obj: Json, decode: Any) -> Any:
        metadata = obj["metadata"]
        known = self._decoded.get(metadata["uid"])
        if known is None or known[0] != metadata["resourceVersion"]:
            known = self._decoded[metadata["uid"]] = (metadata["resourceVersion"], decode())
        return known[1]

    def _forget(self, pods: Sequence[Json]) -> None:
        # Thousands of pods may be created and deleted; of other kinds there are few.
        if len(self._decoded) > 2 * len(pods) + 1000:
            self._decoded.clear()
