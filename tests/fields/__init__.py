"""What the scheduler model does with each field of a pod's spec and of a node.

``fields.txt`` has one line per field of each type that a PodSpec, a NodeSpec or a NodeStatus is made of, as the API
server's schema has them: ``Type.field``, the Kubernetes versions that have it, and a verdict:

- ``modelled``: kube-scheduler's decision depends on it, and so does the model's;
- ``named``: kube-scheduler's decision depends on it, and the model says so: pods with it are ``Unpredicted``;
- ``off``: it would matter, but the API server drops it unless an alpha feature is switched on;
- ``none``: no plug-in of kube-scheduler's filters or scores nodes by it.

``python -m tests.fields`` writes the file anew from the real API servers. Fields that are new get the verdict ``?``,
which no test lets pass: whoever brings a new version judges them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = "/openapi/v3/api/v1"
"""Where an API server has the schema."""
FILE = Path(__file__).with_name("fields.txt")
VERDICTS = ("modelled", "named", "off", "none")
_CORE = "io.k8s.api.core.v1."
_ROOTS = ("PodSpec", "NodeSpec", "NodeStatus")


@dataclass(frozen=True)
class Field:
    """One line of the file."""

    name: str
    """``Type.field``, the type without its package."""
    versions: tuple[str, ...]
    """``1.36``, ascending."""
    verdict: str


def minor(version: str) -> str:
    """Return ``1.36`` of ``1.36.3``."""
    return ".".join(version.split(".")[:2])


def read() -> list[Field]:
    """Return the lines of the file."""
    lines = (line.split() for line in FILE.read_text().splitlines())
    return [Field(name, tuple(versions.split(",")), verdict) for name, versions, verdict in lines]


def write(schemas: Mapping[str, Any]) -> None:
    """Write the file for the schemas of some versions (``1.36`` -> OpenAPI document); verdicts are kept."""
    verdicts = {field.name: field.verdict for field in (read() if FILE.exists() else ())}
    versions: dict[str, list[str]] = {}
    for version, schema in schemas.items():
        for name in fields_of(schema):
            versions.setdefault(name, []).append(version)
    FILE.write_text(
        "".join(
            f"{name} {','.join(versions[name])} {verdicts.get(name, '?')}\n"
            for name in sorted(versions)
        )
    )


def fields_of(schema: Mapping[str, Any]) -> set[str]:
    """Return the fields of all types that a pod's spec and a node are made of in a schema."""
    types = schema["components"]["schemas"]
    waiting = [_CORE + root for root in _ROOTS]
    reached = set(waiting)
    names: set[str] = set()
    while waiting:
        current = waiting.pop()
        for field, of_field in types[current].get("properties", {}).items():
            names.add(f"{current.rpartition('.')[2]}.{field}")
            new = set(_references(of_field)) - reached
            reached |= new
            waiting += new
    return names


def _references(schema: Any) -> Iterator[str]:
    """Yield the types that a schema refers to, wherever."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key == "$ref":
                yield value.rpartition("/")[2]
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)
