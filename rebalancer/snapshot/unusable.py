"""Which object of a file it is that has a value with which no snapshot can be made.

API servers admit no such object, so nothing looks for them beforehand: only when making the snapshot has failed.
"""

from __future__ import annotations

import numpy as np

from rebalancer.snapshot.build import Settled
from rebalancer.snapshot.measured import PodUse
from rebalancer.snapshot.pod_table import PodRows, SettledPods
from rebalancer.wire import objects as o

UNUSABLE = (ArithmeticError, LookupError, TypeError, ValueError)
"""What such a value raises."""

_NO_PODS = SettledPods(PodRows(), (), (), ())


def unusable_object(settled: Settled) -> str | None:
    """Return kind, namespace and name of the first object that fails by itself; None if none does."""
    nodes = {node.metadata.name: node for node in settled.objects.get("Node", ())}
    for kind, objects in settled.objects.items():
        for one in objects:
            meta = one.metadata
            alone = {kind: (one,)}
            if kind == "CSINode" and meta.name in nodes:
                alone["Node"] = (nodes[meta.name],)
            if _fails(Settled(_NO_PODS, alone, PodUse())):
                return _named(kind, meta)
    return _unusable_pod(settled.pods)


def _unusable_pod(pods: SettledPods) -> str | None:
    """Return the first pod of the first class that fails by itself."""
    _, first = np.unique(pods.cls, return_index=True)
    for cls, row in enumerate(first.tolist()):
        rows = pods.rows.take(np.array([row], np.intp))
        rows.cls[0] = 0
        of_class = pods.classes[cls]
        alone = SettledPods(rows, (of_class,), pods.node_names, pods.states)
        if _fails(Settled(alone, {}, PodUse())):
            name = o.ObjectMeta(name=rows.name[0], namespace=of_class.controller.namespace)
            return _named("Pod", name)
    return None


def _fails(settled: Settled) -> bool:
    try:
        settled.snapshot(captured_at=0.0, version=(1, 36))
    except UNUSABLE:
        return True
    return False


def _named(kind: str, meta: o.ObjectMeta) -> str:
    return f"{kind} {f'{meta.namespace}/' if meta.namespace else ''}{meta.name}"
