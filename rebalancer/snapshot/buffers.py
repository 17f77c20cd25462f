"""CapacityBuffers: room that the cluster keeps for future pods, added to a snapshot as pods that do not exist.

The API is Cluster Autoscaler's (``autoscaling.x-k8s.io``, ``apis/capacitybuffer``), which also sees each chunk of a buffer as a
pod (``processors/capacitybuffer/pod_list_processor.go``). What a chunk is, and how many there are, is read from ``spec``: the
status is written by a controller that is a part of Cluster Autoscaler, and that need not run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.snapshot.columns import Bools, Ints, StringColumn, freeze
from rebalancer.snapshot.model import MEASURED, Buffer, PodClass, Pods, Snapshot
from rebalancer.snapshot.native_nodes import LINUX, OS_LABEL, required_keys
from rebalancer.snapshot.nodes import pod_requests, score_requests
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import CAPACITY_BUFFERS
from rebalancer.wire.pods import PodState
from rebalancer.wire.quantity import parse_resource

_Number = TypeVar("_Number", bound=np.generic)
STRATEGIES = (None, "", "buffer.x-k8s.io/active-capacity", "active-capacity")
"""The provisioning strategies that need room which is available at once; the others are vendors' own."""
MAX_CHUNKS = 1000
"""The maximum number of chunks of one buffer that are counted; more are ignored."""


def fold_buffers(
    buffers: Iterable[o.CapacityBuffer],
    templates: Iterable[o.PodTemplateObject],
    snapshot: Snapshot,
) -> tuple[Buffer, ...]:
    """Return the buffers as ``spec`` has them, by namespace and name; ``templates``: those that they name."""
    named = {(one.metadata.namespace, one.metadata.name): one.template for one in templates}

    def fold(of: o.CapacityBuffer) -> Buffer:
        ref, meta = of.spec.pod_template_ref, of.metadata
        template = None if ref is None else named.get((meta.namespace, ref.name))
        resolved = _resolve(of, template, snapshot)
        if isinstance(resolved, str):
            return Buffer(meta.namespace, meta.name, meta.uid, 0, {}, o.SchedulingSpec(), resolved)
        return resolved

    return tuple(sorted(map(fold, buffers), key=lambda one: (one.namespace, one.name)))


def explain_left_out(snapshot: Snapshot) -> Iterator[str]:
    """Yield which buffers do not count, and why not."""
    for one in snapshot.buffers or ():
        if one.problem:
            yield f"the CapacityBuffer {one.namespace}/{one.name} does not count: {one.problem}"


def _resolve(
    of: o.CapacityBuffer, template: o.PodTemplate | None, snapshot: Snapshot
) -> Buffer | str:
    """Return a buffer, or why it does not count, in words.

    ``template``: what ``podTemplateRef`` names; None where it names none, or there is none of that name.
    """
    spec = of.spec
    if spec.provisioning_strategy not in STRATEGIES:
        return f"its strategy {spec.provisioning_strategy} is not known"
    replicas: int | None = None
    if spec.pod_template_ref is not None:
        if template is None:
            return f"there is no PodTemplate {spec.pod_template_ref.name}"
        labels, pod = template.metadata.labels or {}, _on_linux(template.spec)
    elif spec.scalable_ref is not None:
        workload = _find_workload(spec.scalable_ref, of.metadata.namespace, snapshot)
        if workload is None:
            return f"no pods of {spec.scalable_ref.kind} {spec.scalable_ref.name} show what it asks for"
        (labels, pod), replicas = workload
    else:
        return "it names neither a podTemplateRef nor a scalableRef"
    try:
        chunks = _count_chunks(spec, replicas, pod_requests(pod))
    except ValueError as error:
        return str(error)
    if chunks is None:
        return "neither replicas, percentage nor limits say how many chunks it has"
    meta = of.metadata
    return Buffer(meta.namespace, meta.name, meta.uid, min(MAX_CHUNKS, chunks), labels, pod)


def _find_workload(
    ref: o.BufferReference, namespace: str, snapshot: Snapshot
) -> tuple[tuple[o.Labels, o.SchedulingSpec], int] | None:
    """Return the labels and the spec of the pods that a workload makes next, and its replicas; None if it has no pods."""
    for cls in snapshot.classes:
        if cls.owner < 0:
            continue
        owner = snapshot.owners[cls.owner]
        if (owner.kind, owner.namespace, owner.name) == (ref.kind, namespace, ref.name):
            template, systems = (
                snapshot.classes[cls.replacement],
                snapshot.systems_of(cls.replacement),
            )
            # A chunk has no Ready pods by itself: those of the workload say where it runs.
            spec = _on(template.spec, min(systems)) if len(systems) == 1 else template.spec
            return (template.labels, spec), owner.replicas
    return None


def _on_linux(spec: o.SchedulingSpec) -> o.SchedulingSpec:
    """Return the spec of a template as one for Linux, unless it names an operating system, or selects nodes by it."""
    return spec if OS_LABEL in required_keys(spec) else _on(spec, LINUX)


def _on(spec: o.SchedulingSpec, system: str) -> o.SchedulingSpec:
    return spec if spec.os is not None else msgspec.structs.replace(spec, os=o.PodOS(system))


def _count_chunks(
    spec: o.CapacityBufferSpec, replicas: int | None, requests: Mapping[str, int]
) -> int | None:
    """Return the number of chunks, the larger of replicas and percentage, within the limits; None if it is not given."""
    asked = [] if spec.replicas is None else [spec.replicas]
    if spec.percentage is not None and replicas is not None:
        asked.append(max(1, math.ceil(replicas * spec.percentage / 100)))
    within = [
        parse_resource(name, amount) // requests[name]
        for name, amount in (spec.limits or {}).items()
        if requests.get(name, 0) > 0
    ]
    if not asked and not within:
        return None
    return max(0, min([*([max(asked)] if asked else []), *within]))


def with_buffers(snapshot: Snapshot) -> Snapshot:
    """Return ``snapshot`` with a pending pod for each chunk in the place of its buffers.

    They come after its own pods and classes, whose rows do not change.
    """
    buffers = [one for one in snapshot.buffers or () if one.chunks]
    if not buffers:
        return snapshot
    first = len(snapshot.classes)
    classes = [_class(one, first + number) for number, one in enumerate(buffers)]
    amounts = [pod_requests(one.spec) for one in buffers]
    added = sorted(
        {name for of in amounts for name in of if name != "pods"} - {*snapshot.resources}
    )
    resources = (*snapshot.resources, *added)
    nodes, requests = snapshot.nodes, _columns(amounts, resources)
    measured = [resources.index(name) for name in MEASURED]
    usage = snapshot.usage
    if usage is not None:
        # Of what was never measured the requests count.
        usage = replace(usage, classes=freeze(np.hstack([usage.classes, requests[measured]])))
    return replace(
        snapshot,
        buffers=(),
        usage=usage,
        resources=resources,
        nodes=replace(
            nodes,
            allocatable=_more_rows(nodes.allocatable, len(added)),
            capacity=_more_rows(nodes.capacity, len(added)),
        ),
        classes=(*snapshot.classes, *classes),
        requests=freeze(np.hstack([_more_rows(snapshot.requests, len(added)), requests])),
        scored=freeze(
            np.hstack(
                [
                    snapshot.scored,
                    _columns([score_requests(one.spec) for one in buffers], ("cpu", "memory")),
                ]
            )
        ),
        pods=_with_chunks(snapshot, buffers, first),
        namespaces={**{one.namespace: {} for one in buffers}, **snapshot.namespaces},
    )


def _class(of: Buffer, index: int) -> PodClass:
    return PodClass(
        namespace=of.namespace,
        labels=of.labels,
        spec=of.spec,
        owner=-1,
        controller_kind=CAPACITY_BUFFERS.kind,
        controller_group=CAPACITY_BUFFERS.group,
        controller_uid=of.uid,
        replacement=index,
        unreadable=None,
    )


def _columns(amounts: Sequence[Mapping[str, int]], resources: Sequence[str]) -> Ints:
    return np.array([[of.get(name, 0) for of in amounts] for name in resources], np.int64)


def _more_rows(amounts: Ints, rows: int) -> Ints:
    return freeze(np.vstack([amounts, np.zeros((rows, amounts.shape[1]), np.int64)]))


def _with_chunks(snapshot: Snapshot, buffers: Sequence[Buffer], first: int) -> Pods:
    pods, chunks = snapshot.pods, list(_chunks(buffers))
    size = len(chunks)
    zeros = np.zeros(size)
    cls = [first + number for number, _, _ in chunks]
    return replace(
        pods,
        name=pods.name.concat(StringColumn(name for _, name, _ in chunks)),
        uid=pods.uid.concat(StringColumn(uid for _, _, uid in chunks)),
        cls=_longer(pods.cls, np.array(cls)),
        node=_longer(pods.node, zeros - 1),
        # The youngest, so that pods which exist take their room first.
        created=_longer(pods.created, zeros + snapshot.captured_at),
        ready_since=_longer(pods.ready_since, zeros),
        deletion_cost=_longer(pods.deletion_cost, zeros),
        flags=_longer(pods.flags, zeros),
        state=_longer(pods.state, zeros + len(pods.states)),
        states=(*pods.states, PodState("Pending", "")),
    )


def _longer(
    column: NDArray[_Number], more: NDArray[np.floating[Any] | np.integer[Any]]
) -> NDArray[_Number]:
    return freeze(np.concatenate([column, more.astype(column.dtype)]))


def _chunks(buffers: Sequence[Buffer]) -> Iterator[tuple[int, str, str]]:
    """Yield (number of the buffer, name, uid) of each chunk; names of CapacityBuffers' are those that Cluster Autoscaler gives."""
    for number, of in enumerate(buffers):
        for chunk in range(1, of.chunks + 1):
            kind = "capacity-buffer-" if of.namespace else ""
            yield number, f"{kind}{of.name}-{chunk}", f"{of.uid}-{chunk}"


def find_chunks(snapshot: Snapshot) -> Bools:
    """Return the pods (P,) that are chunks of buffers."""
    of_class = np.array(
        [cls.controller_kind == CAPACITY_BUFFERS.kind for cls in snapshot.classes] or [False], bool
    )
    chunks: Bools = of_class[snapshot.pods.cls]
    return chunks


def place_chunks(snapshot: Snapshot, nodes: Mapping[int, int]) -> Snapshot:
    """Return ``snapshot`` with chunks (pod -> node) on nodes, whose room they then occupy."""
    if not nodes:
        return snapshot
    placed = snapshot.pods.node.copy()
    placed[list(nodes)] = list(nodes.values())
    return replace(snapshot, pods=replace(snapshot.pods, node=freeze(placed)))
