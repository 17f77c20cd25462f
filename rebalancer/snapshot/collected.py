"""Collect the objects of a file for the fold, and the time and version of the cluster.

API servers never store objects that break the fold, so objects are searched for errors only if the fold has failed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from rebalancer.base.errors import PolicyError
from rebalancer.snapshot.build import Fold, Settled
from rebalancer.snapshot.measured import PodUse
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.pod_table import PodRows, SettledPods
from rebalancer.snapshot.store import API_VERSIONS, ASKED_FOR, AUTOSCALERS, METRICS
from rebalancer.wire import objects as o
from rebalancer.wire.decoder import JsonDecoder
from rebalancer.wire.kinds import OWNING_KINDS
from rebalancer.wire.lists import item_decoder
from rebalancer.wire.pods import Pod, PodRecord
from rebalancer.wire.times import unix_seconds

NEWEST_VERSION = (1, 36)
"""Taken for the server's when neither the file nor its nodes say it."""

UNUSABLE = (ArithmeticError, LookupError, TypeError, ValueError)
"""What such a value raises."""

_NO_PODS = SettledPods(PodRows(), (), (), ())


class _NodeVersion(msgspec.Struct, rename="camel"):
    class Status(msgspec.Struct, rename="camel"):
        class Info(msgspec.Struct, rename="camel"):
            kubelet_version: str = ""

        node_info: Info | None = None

    status: Status | None = None


_pods = JsonDecoder(Pod)
_node_versions = JsonDecoder(_NodeVersion)


class Collected:
    """The objects of one file, added one after the other."""

    def __init__(self, finished: frozenset[str] = frozenset()) -> None:
        """``finished``: see :class:`Fold`."""
        self._fold = Fold(finished)
        self._kubelets: Counter[tuple[int, int]] = Counter()
        self._newest = 0.0
        self.seen: Counter[str] = Counter()
        """Kind -> objects so far."""

    def add_json(self, kind: str, text: bytes | Raw) -> None:
        """Add one object, ReplicaSets and Jobs after all pods; objects of unused kinds are only counted.

        Raises:
            msgspec.DecodeError: the text is not such an object.
        """
        self.seen[kind] += 1
        if kind not in API_VERSIONS:
            return
        if kind == "Pod":
            record = _pods.decode(text).record()
            self._note_time(record.ready_since or record.created)
            self._fold.add_pods((record,))
            return
        decoded = item_decoder(kind).decode(text)
        if kind == "Node":
            self._note_node(decoded, text)
        elif kind in METRICS:
            self._note_time(decoded.at)
        self._note_time(unix_seconds(decoded.metadata.creation_timestamp))
        if kind not in OWNING_KINDS or decoded.metadata.uid in self.controllers:
            self._fold.add(kind, (decoded,))

    def add_pods(self, records: Iterable[PodRecord]) -> None:
        """Add decoded pods, without counting them."""
        self._fold.add_pods(records)

    def add_objects(self, kind: str, objects: Iterable[Any]) -> None:
        """Add decoded objects of another kind, without counting them; ReplicaSets and Jobs after all pods."""
        self._fold.add(kind, objects)

    @property
    def controllers(self) -> Container[str]:
        """The uids of the controllers of the pods so far; of ReplicaSets and Jobs, only these are needed."""
        return self._fold.controllers

    def _note_node(self, node: Any, text: bytes | Raw) -> None:
        for condition in node.status.conditions or ():
            self._note_time(unix_seconds(condition.last_heartbeat_time))
        status = _node_versions.decode(text).status
        version = status.node_info.kubelet_version if status and status.node_info else ""
        match = re.match(r"v?(\d+)\.(\d+)", version)
        if match:
            self._kubelets[int(match[1]), int(match[2])] += 1

    def _note_time(self, seconds: float) -> None:
        self._newest = max(self._newest, seconds)

    def snapshot(
        self,
        *,
        captured_at: float = 0.0,
        version: tuple[int, int] | None = None,
        kinds: Collection[str] = (),
        resource_version: str = "",
    ) -> Snapshot:
        """Return the snapshot; nothing can be added afterwards.

        The default time is that of the newest timestamp; the default version is that of most kubelets. ``kinds`` are
        complete: no object of such a kind exists except the added ones.

        Raises:
            PolicyError: an object has a value with which no snapshot can be made; names the object.
        """
        if AUTOSCALERS in kinds:
            self._fold.add(AUTOSCALERS, ())
        missing = tuple(
            f"{kind}: none in the file"
            for kind in API_VERSIONS
            if not self.seen[kind] and kind not in kinds and kind not in ASKED_FOR
        )
        try:
            snapshot = self._fold.finish(
                captured_at=captured_at or self._newest,
                version=version or self._kubelet_version(),
                missing=missing,
                resource_version=resource_version,
            )
        except UNUSABLE as error:
            culprit = unusable_object(self._fold.settle())
            if culprit is None:
                raise
            raise PolicyError(
                [f"{culprit}: it has a value that no API server admits: {error}"]
            ) from None
        _refuse_twins(snapshot)
        return snapshot

    def _kubelet_version(self) -> tuple[int, int]:
        if not self._kubelets:
            return NEWEST_VERSION
        # The newer of two that are equally many: kubelets are never newer than the server.
        return max(self._kubelets, key=lambda version: (self._kubelets[version], version))


def _refuse_twins(snapshot: Snapshot) -> None:
    """Raise PolicyError if the file contains a pod twice, for example joined outputs of kubectl."""
    pods = snapshot.pods
    namespaces = [of_class.namespace for of_class in snapshot.classes]
    of_pods = map(namespaces.__getitem__, pods.cls.tolist())
    # In order of namespace and name, so that twins stand side by side.
    twins = [one for one, other in pairwise(zip(of_pods, pods.name, strict=True)) if one == other]
    if twins:
        more = f" and {len(twins) - 1} more" if len(twins) > 1 else ""
        raise PolicyError(
            [
                f"Pod {'/'.join(twins[0])}{more}: stands in the file more than once; leave one of each"
            ]
        )


def unusable_object(settled: Settled) -> str | None:
    """Return kind, namespace and name of the first object that cannot be folded; None if there is none."""
    nodes = {node.metadata.name: node for node in settled.objects.get("Node", ())}
    for kind, objects in settled.objects.items():
        for one in objects:
            meta = one.metadata
            alone = {kind: (one,)}
            if kind == "CSINode" and meta.name in nodes:
                alone["Node"] = (nodes[meta.name],)
            if _fails(Settled(_NO_PODS, alone, PodUse())):
                return _name_object(kind, meta)
    return _unusable_pod(settled.pods)


def _unusable_pod(pods: SettledPods) -> str | None:
    """Return the first pod of the first class that cannot be folded."""
    _, first = np.unique(pods.cls, return_index=True)
    for cls, row in enumerate(first.tolist()):
        rows = pods.rows.take(np.array([row], np.intp))
        rows.cls[0] = 0
        of_class = pods.classes[cls]
        alone = SettledPods(rows, (of_class,), pods.node_names, pods.states)
        if _fails(Settled(alone, {}, PodUse())):
            name = o.ObjectMeta(name=rows.name[0], namespace=of_class.controller.namespace)
            return _name_object("Pod", name)
    return None


def _fails(settled: Settled) -> bool:
    try:
        settled.snapshot(captured_at=0.0, version=(1, 36))
    except UNUSABLE:
        return True
    return False


def _name_object(kind: str, meta: o.ObjectMeta) -> str:
    return f"{kind} {f'{meta.namespace}/' if meta.namespace else ''}{meta.name}"
