"""The scheduler: binds pending pods, one by one, each to the most probable node of the model.

The model is the one that predicts landings, so here each prediction is right unless the cluster changed in
between. There is no preemption, no back-off and no volume provisioning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np

from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.kinds import (
    CLAIM,
    CSI_NODE,
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    STORAGE_CLASS,
    VOLUME,
    Json,
    Kind,
    set_condition,
)
from rebalancer.embedded.apiserver.store import Change, Key, Store
from rebalancer.embedded.controllers.pods import is_terminating
from rebalancer.embedded.engine import Controller, Engine
from rebalancer.scheduler.model import FILTERS, SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from rebalancer.wire import objects as o
from rebalancer.wire.pods import Pod, PodRecord

SCHEDULER_NAME = "default-scheduler"
_CYCLE = "cycle"
# Node labels that a pod gets when it is bound (plugin/pkg/admission/podtopologylabels).
_COPIED = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_MAY_MAKE_ROOM = (NODE, VOLUME, CLAIM, STORAGE_CLASS, CSI_NODE, NAMESPACE, SERVICE)


T = TypeVar("T")
_WORKLOADS = (
    kinds.REPLICA_SET,
    kinds.CONTROLLER,
    kinds.STATEFUL_SET,
    kinds.DEPLOYMENT,
    kinds.JOB,
)


class Placer(Protocol):
    """Chooses nodes for pods, by class, in a state of one snapshot."""

    def best(self, state: ClusterState, cls: int, pinned: int | None) -> list[int]:
        """Return the best nodes, equally good; empty if the pod fits on no node."""

    def why_not(self, state: ClusterState, cls: int) -> str:
        """Return why the pod fits on no node, with numbers of nodes."""


MakePlacer = Callable[[Snapshot], Placer]


class ModelPlacer:
    """A :class:`Placer` by :class:`SchedulerModel`."""

    def __init__(self, snapshot: Snapshot) -> None:
        profile = SchedulerProfile.for_version(snapshot.version)
        self._model = SchedulerModel(snapshot, profile)

    def best(self, state: ClusterState, cls: int, pinned: int | None) -> list[int]:
        """Return the most probable nodes; for a pod pinned to one node, that one if it is feasible."""
        if pinned is not None:
            fits = pinned >= 0 and bool(self._model.feasible(state, cls)[pinned])
            return [pinned] if fits else []
        prediction = self._model.predict(state, cls)
        if not len(prediction.nodes):
            return []
        best = prediction.probability >= prediction.probability[0] * (1 - 1e-9)
        nodes: list[int] = np.sort(prediction.nodes[best]).tolist()
        return nodes

    def why_not(self, state: ClusterState, cls: int) -> str:
        """Return the number of nodes that each filter refused."""
        refused = Counter(self._model.evaluate(state, cls).filtered_by.tolist())
        return ", ".join(
            f"{count} node(s) refused by {FILTERS[by]}" for by, count in sorted(refused.items())
        )


class SchedulerLoop(Controller):
    """Binds pending pods; a pod that fits on no node is tried again when the cluster changes."""

    def __init__(
        self, engine: Engine, snapshots: StoreSnapshots, make: MakePlacer = ModelPlacer
    ) -> None:
        super().__init__(engine)
        self._snapshots, self._make = snapshots, make
        # PodTopologyLabelsAdmission is on since 1.35.
        self._labels = _COPIED if snapshots.version >= (1, 35) else ()
        self._pending: dict[Key, None] = {}

    def observe(self, change: Change) -> None:
        """Queue a cycle when a pod is pending, or when a change may make room for one."""
        if change.kind is POD:
            self._observe_pod(change)
        elif change.kind in _MAY_MAKE_ROOM and self._pending and _matters(change):
            self.note(_CYCLE)

    def _observe_pod(self, change: Change) -> None:
        pod = change.new
        if pod is not None and _waits(pod):
            if change.key not in self._pending:
                self._pending[change.key] = None
                self.note(_CYCLE)
        else:
            self._pending.pop(change.key, None)
        if self._pending and _matters(change):
            self.note(_CYCLE)

    def sync(self, key: str) -> None:
        """Schedule everything that is pending, highest priority first, then in order of creation."""
        del key
        if not self._pending:
            return
        waiting = [self.store.get(POD, *key) for key in self._pending]
        waiting.sort(key=lambda pod: -pod["spec"].get("priority", 0))
        snapshot = self._snapshots.snapshot()
        state, placer = ClusterState(snapshot), self._make(snapshot)
        uids = [snapshot.pods.uid[row] for row in range(len(snapshot.pods))]
        rows = {uid: row for row, uid in enumerate(uids)}
        for pod in waiting:
            if pod["spec"].get("schedulingGates"):
                self._refuse(
                    pod,
                    "SchedulingGated",
                    "Scheduling is blocked due to non-empty scheduling gates",
                )
                continue
            row = rows[pod["metadata"]["uid"]]
            cls = int(snapshot.pods.cls[row])
            best = placer.best(state, cls, _find_pinned_node(pod, snapshot.nodes.index))
            if best:
                node = best[_draw(self.store, pod, len(best))]
                state.place(row, cls, node)
                self._bind(pod, snapshot.nodes.names[node])
            else:
                total = len(snapshot.nodes)
                reasons = (
                    placer.why_not(state, cls) if total else "no nodes available to schedule pods"
                )
                message = f"0/{total} nodes are available: {reasons}." if total else reasons
                self._refuse(pod, "Unschedulable", message)

    def _bind(self, pod: Json, node: str) -> None:
        stored = self.store.find(NODE, "", node) or {"metadata": {}}
        of_node = stored["metadata"].get("labels") or {}
        copied = {key: of_node[key] for key in self._labels if key in of_node}

        def bind(new: Json) -> None:
            new["spec"]["nodeName"] = node
            if copied:
                new["metadata"]["labels"] = {**new["metadata"].get("labels", {}), **copied}
            status = new["status"]
            others = [c for c in status.get("conditions", ()) if c["type"] != "PodScheduled"]
            # A new condition, without the reason and message of earlier refusals.
            status["conditions"] = others
            set_condition(status, "PodScheduled", "True", self.store.timestamp())

        # Binding is a subresource: it leaves the generation alone.
        self.store.modify(POD, pod, bind, anything=True)

    def _refuse(self, pod: Json, reason: str, message: str) -> None:
        now = self.store.timestamp()
        self.store.modify(
            POD,
            pod,
            lambda new: set_condition(
                new["status"], "PodScheduled", "False", now, reason=reason, message=message
            ),
        )


def _waits(pod: Mapping[str, Any]) -> bool:
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and not is_terminating(pod)
        and spec.get("schedulerName") == SCHEDULER_NAME
        and pod["status"].get("phase") == "Pending"
    )


def _matters(change: Change) -> bool:
    """Whether a change may make room for a pod: not a heartbeat, for example."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    before, after = old["metadata"], new["metadata"]
    return bool(
        old.get("spec") != new.get("spec")
        or before.get("labels") != after.get("labels")
        or before.get("deletionTimestamp") != after.get("deletionTimestamp")
        or old.get("status", {}).get("phase") != new.get("status", {}).get("phase")
        or old.get("status", {}).get("allocatable") != new.get("status", {}).get("allocatable")
    )


def _draw(store: Store, pod: Json, size: int) -> int:
    """Return one of several equally good nodes; the same one for the same pod and seed."""
    return int.from_bytes(store.digest("node", pod["metadata"]["uid"])[:8], "big") % size


def _find_pinned_node(pod: Mapping[str, Any], index: Mapping[str, int]) -> int | None:
    """Return the node that a DaemonSet's pod names (-1 if it was removed), None for other pods."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name" and field["operator"] == "In":
                return index.get(field["values"][0], -1)
    return None


class StoreSnapshots:
    """Makes snapshots of a store; keeps decoded objects as long as they are unchanged."""

    def __init__(self, store: Store, version: tuple[int, int]) -> None:
        self._store, self.version = store, version
        self._decoded: dict[str, tuple[str, Any]] = {}

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the present state."""
        fold = Fold()
        fold.add_pods([self._record(pod) for pod in self._store.items(kinds.POD)])
        fold.add("Node", self._all(kinds.NODE, o.Node))
        for kind in _WORKLOADS:
            fold.add(kind.kind, self._all(kind, o.Workload))
        fold.add("PodDisruptionBudget", self._all(kinds.BUDGET, o.PodDisruptionBudget))
        fold.add("Namespace", self._all(kinds.NAMESPACE, o.Namespace))
        fold.add("Service", self._all(kinds.SERVICE, o.Service))
        fold.add("PersistentVolumeClaim", self._all(kinds.CLAIM, o.PersistentVolumeClaim))
        fold.add("PersistentVolume", self._all(kinds.VOLUME, o.PersistentVolume))
        fold.add("StorageClass", self._all(kinds.STORAGE_CLASS, o.StorageClass))
        fold.add("CSINode", self._all(kinds.CSI_NODE, o.CSINode))
        self._forget(self._store.items(kinds.POD))
        return fold.finish(captured_at=self._store.clock.now(), version=self.version)

    def _record(self, pod: Json) -> PodRecord:
        def decode() -> PodRecord:
            return msgspec.json.decode(msgspec.json.encode(pod), type=Pod).record()

        record: PodRecord = self._decode_once(pod, decode)
        return record

    def _all(self, kind: Kind, of: type[T]) -> Iterator[T]:
        for obj in self._store.items(kind):
            yield self._decode_once(obj, lambda obj=obj: msgspec.convert(obj, of, strict=False))

    def _decode_once(self, obj: Json, decode: Any) -> Any:
        metadata = obj["metadata"]
        known = self._decoded.get(metadata["uid"])
        if known is None or known[0] != metadata["resourceVersion"]:
            known = self._decoded[metadata["uid"]] = (metadata["resourceVersion"], decode())
        return known[1]

    def _forget(self, pods: Sequence[Json]) -> None:
        # Thousands of pods may be created and deleted; of other kinds there are few.
        if len(self._decoded) > 2 * len(pods) + 1000:
            self._decoded.clear()
