"""What a snapshot says, as something that can be compared."""

import dataclasses
from typing import Any

from rebalancer.snapshot.columns import StringColumn
from rebalancer.snapshot.labels import ClassIndex, NodeLabels
from rebalancer.snapshot.model import Snapshot

_OF_THE_MOMENT = {"captured_at", "resource_version"}


def plain(value: Any, nodes: int) -> Any:
    """A part of a snapshot as something that can be compared."""
    if isinstance(value, NodeLabels):
        return [value.of(node) for node in range(nodes)]
    if isinstance(value, StringColumn):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name), nodes)
            for field in dataclasses.fields(value)
        }
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(part, nodes) for key, part in value.items()}
    if isinstance(value, tuple):
        return [plain(part, nodes) for part in value]
    assert not isinstance(value, ClassIndex)
    return value


def contents(snapshot: Snapshot) -> dict[str, Any]:
    """All of it, in its order, but for the moment of its capture."""
    columns: dict[str, Any] = plain(snapshot, len(snapshot.nodes))
    return {name: part for name, part in columns.items() if name not in _OF_THE_MOMENT}
