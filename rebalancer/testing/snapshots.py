"""Snapshots from API objects given as plain dictionaries."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.columns import freeze, sum_by_node
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.usage import MEASURED, Usage
from rebalancer.wire.lists import DECODED
from rebalancer.wire.pods import decode_page

Object = Mapping[str, Any]


def snapshot_of(
    objects: Iterable[Object],
    *,
    now: float = 1_800_000_000.0,
    version: tuple[int, int] = (1, 36),
    finished: frozenset[str] = frozenset(),
) -> Snapshot:
    """Return the snapshot of ``objects``, taken at ``now`` (Unix seconds), of any kinds in any order.

    ``finished``: the phases of pods that have ended and are kept aside.

    Raises:
        ValueError: an object is of a kind that no snapshot holds.
    """
    by_kind: dict[str, list[Object]] = {}
    for item in objects:
        by_kind.setdefault(str(item["kind"]), []).append(item)
    fold = Fold(finished)
    pods, _ = decode_page(json.dumps({"items": by_kind.pop("Pod", [])}).encode())
    fold.add_pods(pods)
    for kind, items in sorted(by_kind.items()):
        if kind not in DECODED:
            raise ValueError(f"no snapshot holds objects of kind {kind!r}")
        of_kind = DECODED[kind]
        fold.add(kind, [msgspec.convert(item, of_kind) for item in items])
    return fold.finish(captured_at=now, version=version)


def with_usage(
    snapshot: Snapshot,
    pods: Mapping[str, tuple[int, int]] | None = None,
    *,
    unknown: Collection[str] = (),
    at: float | None = None,
) -> Snapshot:
    """Return ``snapshot`` with usage measured ``at`` (Unix seconds; by default when it was captured).

    ``pods``: name of an owner -> (millicores, bytes) of each of its pods; other pods use their requests. A
    node uses the sum of its pods; ``unknown`` nodes have no measurement.
    """
    classes = snapshot.requests[[snapshot.resources.index(name) for name in MEASURED]].copy()
    for index in range(len(snapshot.classes)):
        owner = snapshot.owner_of(index)
        if owner is not None and owner.name in (pods or {}):
            classes[:, index] = (pods or {})[owner.name]
    placed = snapshot.pods.node >= 0
    cls, node = snapshot.pods.cls[placed], snapshot.pods.node[placed]
    used = sum_by_node(classes, cls, node, len(snapshot.nodes))
    known = np.array([name not in unknown for name in snapshot.nodes.names], bool)
    return replace(
        snapshot,
        usage=Usage(
            nodes=freeze(np.where(known, used, 0)),
            known=freeze(known),
            classes=freeze(classes),
            at=snapshot.captured_at if at is None else at,
        ),
    )
