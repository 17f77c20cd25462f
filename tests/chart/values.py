"""The chart's values: their defaults, and what its schema knows of."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import yaml

from chart.tools import schema
from rebalancer.registry import Registry
from tests.chart.helm import CHART

Path = tuple[str, ...]


def shipped() -> dict[str, bytes]:
    """Return the files of the built-in policy."""
    folder = resources.files("rebalancer.policy") / "default"
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if not entry.is_dir()}


def values() -> dict[str, Any]:
    """Return the defaults."""
    loaded: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return loaded


def leaves(properties: Mapping[str, Any], prefix: Path = ()) -> Iterator[Path]:
    """Yield the paths of all values that do something; those with the policy's keys and free ones are whole."""
    for name, definition in properties.items():
        inner = definition.get("properties")
        if inner and name not in ("policy", "strategies"):
            yield from leaves(inner, (*prefix, name))
        elif name not in ("global", "runNow"):
            yield (*prefix, name)


@cache
def own_paths() -> Sequence[Path]:
    """Return the paths of all values of the schema, but for what Helm itself hands to every chart."""
    return list(leaves(schema.values_schema(Registry.installed())["properties"]))
