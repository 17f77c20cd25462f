"""Counts what happens to pods and nodes, from the API server's lists and its audit log alone."""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.controlplane import ApiError, ControlPlane
from tests.controlplane.audit import AuditLog

Object = Mapping[str, Any]
_EVERY = 0.5
_MOST_FAILED = 20
"""Looks one after the other that fail, until the witness gives up."""
_ZONE = "topology.kubernetes.io/zone"
_PRICE = "eks-node-viewer/instance-price"
_KARPENTER = "karpenter"
_CREATED_WITHIN = 20.0
"""Seconds after an eviction within which the controller creates the replacement."""


@dataclass
class _Pod:
    owner: str
    created: float
    """When it was first seen, by the witness's clock."""
    node: str = ""
    landed: float = 0.0


@dataclass
class Sample:
    """What was seen at one moment."""

    at: float
    price: float
    nodes: int
    pending: int
    skew: Mapping[str, int]
    """Workload -> most minus fewest of its pods per zone."""
    pods_on: Mapping[str, frozenset[str]]
    """Node -> its pods."""


@dataclass
class Counts:
    """What the witness has counted."""

    by_karpenter: int
    by_others: int
    undone: int
    """Evictions of others whose replacement Karpenter evicted soon after."""
    kept: int
    """Nodes that were empty when others' evictions brought a pod there."""
    held: int
    """Further nodes on which soon after no pods were left but those that others' evictions brought."""
    node_hours: float
    price: float
    pending_hours: float
    skew: float
    """Mean, over time and workloads that spread."""
    late_by_karpenter: int
    late_by_others: int
    """After the load has stopped to change, and a while."""


@dataclass
class Witness:
    """Follows a control plane from a thread of its own."""

    plane: ControlPlane
    spreading: Sequence[str]
    samples: list[Sample] = field(default_factory=list)
    _pods: dict[str, _Pod] = field(default_factory=dict)
    """``namespace/name`` -> pod; names of Deployments' pods do not come again."""
    _end: threading.Event = field(default_factory=threading.Event)
    _error: BaseException | None = None

    def __enter__(self) -> Self:
        self._log = AuditLog(self.plane.audit_log)
        # Two clocks: the server's requests have their own times.
        self._ahead = time.time() - time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(30)
        if self._error is not None:
            raise RuntimeError("the witness ended early") from self._error

    def _run(self) -> None:
        api = self.plane.client(self.plane.admin_token)
        failed = 0
        try:
            while not self._end.wait(_EVERY):
                try:
                    nodes, pods = api.list_all("/api/v1/nodes"), api.list_all("/api/v1/pods")
                except ApiError:
                    # On a busy machine an answer may break off.
                    failed += 1
                    if failed == _MOST_FAILED:
                        raise
                else:
                    failed = 0
                    self._look(nodes, pods)
        except BaseException as error:  # noqa: BLE001  # it is raised at the end
            self._error = error
        finally:
            api.close()

    def _look(self, nodes: Sequence[Object], pods: Sequence[Object]) -> None:
        at = time.time()
        zone_of = {one["metadata"]["name"]: one["metadata"]["labels"].get(_ZONE) for one in nodes}
        on: dict[str, set[str]] = defaultdict(set)
        zones: dict[str, dict[str, int]] = {
            app: dict.fromkeys(filter(None, zone_of.values()), 0) for app in self.spreading
        }
        pending = 0
        for one in pods:
            meta = one["metadata"]
            name, node = f"{meta['namespace']}/{meta['name']}", one["spec"].get("nodeName", "")
            known = self._pods.get(name)
            if known is None:
                known = self._pods[name] = _Pod(_owner(one), at)
            if node and not known.node:
                known.node, known.landed = node, at
            if meta.get("deletionTimestamp"):
                continue
            if not node:
                pending += 1
                continue
            on[node].add(name)
            app, zone = meta.get("labels", {}).get("app", ""), zone_of.get(node)
            if app in zones and zone:
                zones[app][zone] += 1
        self.samples.append(
            Sample(
                at=at,
                price=sum(float(one["metadata"]["labels"].get(_PRICE, 0)) for one in nodes),
                nodes=len(nodes),
                pending=pending,
                skew={app: max(of.values()) - min(of.values()) for app, of in zones.items() if of},
                pods_on={name: frozenset(of) for name, of in on.items()},
            )
        )

    def count(self, hour: float, until: float, soon: float, quiet_from: float) -> Counts:
        """Count all that was seen.

        ``hour``: the seconds of an hour of the day; ``until``: when its load ends; ``soon``: see :attr:`Counts.undone`.
        """
        evictions = self._log.evictions()
        theirs = [one for one in evictions if one.agent.startswith(_KARPENTER)]
        others = [one for one in evictions if not one.agent.startswith(_KARPENTER)]
        by_karpenter = {f"{one.namespace}/{one.name}": one.at.timestamp() for one in theirs}
        undone, brought = 0, dict[str, float]()
        taken: set[str] = set()
        for one in others:
            at = one.at.timestamp()
            came = self._replacement(f"{one.namespace}/{one.name}", at, taken)
            if came is None:
                continue
            taken.add(came)
            brought[came] = at
            undone += at < by_karpenter.get(came, 0.0) <= at + soon
        kept = self._find_held(brought, 2 * _EVERY)
        day = [one for one in self.samples if one.at <= until]
        spans = [later.at - one.at for one, later in itertools.pairwise(day)]
        seen = list(zip(day, spans, strict=False))
        skews = [(value, span) for one, span in seen for value in one.skew.values()]
        return Counts(
            by_karpenter=len(theirs),
            by_others=len(others),
            undone=undone,
            kept=len(kept),
            held=len(self._find_held(brought, soon) - kept),
            node_hours=sum(one.nodes * span for one, span in seen) / hour,
            price=sum(one.price * span for one, span in seen) / hour,
            pending_hours=sum(one.pending * span for one, span in seen) / hour,
            skew=sum(v * span for v, span in skews) / max(1e-9, sum(span for _, span in skews)),
            late_by_karpenter=sum(one.at.timestamp() > quiet_from for one in theirs),
            late_by_others=sum(one.at.timestamp() > quiet_from for one in others),
        )

    def _replacement(self, evicted: str, at: float, taken: set[str]) -> str | None:
        """Return the first pod of the same controller that came after an eviction and stands for no other."""
        gone = self._pods.get(evicted)
        if gone is None:
            return None
        came = [
            (pod.created, name)
            for name, pod in self._pods.items()
            if pod.owner == gone.owner
            and name not in taken
            and -_EVERY <= pod.created - at < _CREATED_WITHIN
        ]
        return min(came)[1] if came else None

    def _find_held(self, brought: Mapping[str, float], within: float) -> set[str]:
        """Return the nodes on which, within so many seconds after a pod was brought there, no other pod stood."""
        return {
            pod.node
            for name in brought
            for pod in [self._pods[name]]
            for one in self.samples
            if pod.landed <= one.at <= pod.landed + within
            for here in [one.pods_on.get(pod.node, frozenset())]
            if name in here and here <= brought.keys()
        }


def _owner(pod: Object) -> str:
    references = pod["metadata"].get("ownerReferences") or ()
    return next((one["uid"] for one in references if one.get("controller")), "")
