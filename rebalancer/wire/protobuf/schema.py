"""The message classes of ``objects.proto`` and ``stored.proto``, from their compiled descriptors.

Descriptors are used rather than generated Python code, because such code runs only with the versions of the protobuf
package that its compiler was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from sys import intern
from typing import Any, TypeVar

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from rebalancer.wire.protobuf import BrokenListError
from rebalancer.wire.times import rfc3339

DESCRIPTION = Path(__file__).with_name("objects.binpb")
STORED = Path(__file__).with_name("stored.binpb")


@cache
def _pool(description: Path) -> descriptor_pool.DescriptorPool:
    # A pool of our own: names cannot meet those of another library in the process.
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(description.read_bytes())
    for file in files.file:
        pool.Add(file)
    return pool


@cache
def message(name: str) -> Any:
    """Return the class of a message in ``objects.proto``; its fields are known at run time only.

    Raises:
        KeyError: there is no such message.
    """
    return _message(DESCRIPTION, f"rebalancer.wire.{name}")


@cache
def message_of_stored(name: str) -> Any:
    """Return the class of a message of ``stored.proto``.

    Raises:
        KeyError: there is no such message.
    """
    return _message(STORED, f"rebalancer.stored.{name}")


def _message(description: Path, name: str) -> Any:
    return message_factory.GetMessageClass(_pool(description).FindMessageTypeByName(name))


@contextmanager
def as_broken_list(problem: str) -> Iterator[None]:
    """Convert the exceptions of protobuf and msgspec on malformed messages into a BrokenListError.

    Text is decoded on access: a field that is not UTF-8 raises only then.
    """
    try:
        yield
    except (DecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BrokenListError(f"{problem}: {error}") from None


def text(value: str | bytes) -> str:
    """Return the value of a string field; invalid UTF-8 is converted as the server does for JSON.

    The server accepts such bytes in fields that it does not validate, such as an image's name, and protobuf returns
    them unchanged.
    """
    return value if isinstance(value, str) else value.decode(errors="replace")


def share_text(value: str | bytes) -> str:
    """Return ``value`` as a string object shared by all equal values, which saves memory."""
    return intern(text(value))


T = TypeVar("T")
_MEMO = 4096
_Convert = Callable[[Any], Any]


def to_struct(of: Any, struct: type[T]) -> T:
    """Return a message as a struct with the same field names.

    Raises:
        msgspec.ValidationError: a value does not fit the struct.
    """
    return msgspec.convert(plain(of), struct)


def plain(of: Any) -> dict[str, Any]:
    """Return the set fields of a message by name; quantities and times as text."""
    plan = _PLANS.get(of.DESCRIPTOR.full_name)
    if plan is None:
        plan = _PLANS[of.DESCRIPTOR.full_name] = _plan(of.DESCRIPTOR)
    fields = {}
    for field, value in of.ListFields():
        name, convert = plan[field.number]
        fields[name] = value if convert is None else convert(value)
    return fields


_PLANS: dict[str, dict[int, tuple[str, _Convert | None]]] = {}


def _plan(descriptor: Any) -> dict[int, tuple[str, _Convert | None]]:
    return {field.number: (field.name, _conversion(field)) for field in descriptor.fields}


def _conversion(field: Any) -> _Convert | None:
    """Return a function that converts the values of a field to plain data; None if they are plain already."""
    if field.type == field.TYPE_BYTES:
        return _of_bytes(field)
    of = field.message_type
    if of is not None and of.GetOptions().map_entry:
        inner = _conversion(of.fields_by_name["value"])
        # A map's order is the process's own; JSON from the server is in order of the keys.
        if inner is None:
            return share
        return lambda entries: {
            share_text(key): inner(entries[key]) for key in sorted(entries, key=text)
        }
    if field.type == field.TYPE_STRING:
        one: _Convert | None = share_text  # owners, keys and operators repeat from object to object
    else:
        one = None if of is None else _SPECIAL.get(of.full_name, plain)
    if field.has_presence:  # every field that is not repeated, in proto2
        return one
    return list if one is None else lambda values: [one(value) for value in values]


def _of_bytes(field: Any) -> _Convert:
    """Return a function that converts a bytes field; KeyError if its content type is not declared."""
    name = HELD_AS_BYTES[f"{field.containing_type.name}.{field.name}"]
    if name == "":
        return lambda _: {}
    parse = message(name).FromString
    if name in _ENTRIES:
        value = _ENTRIES[name]
        return lambda entries: {
            text(entry.key): value(entry) for entry in sorted(map(parse, entries), key=_key)
        }
    # Tolerations, affinities and requests repeat from workload to workload.
    one = lru_cache(_MEMO)(lambda item: plain(parse(item)))
    return one if field.has_presence else lambda items: list(map(one, items))


def _key(entry: Any) -> str:
    return text(entry.key)


_ENTRIES: dict[str, _Convert] = {
    "StringEntry": lambda entry: text(entry.value),
    "QuantityEntry": lambda entry: text(entry.value.string),
}

HELD_AS_BYTES = {
    "PodMeta.labels": "StringEntry",
    "PodMeta.annotations": "StringEntry",
    "WorkloadMeta.annotations": "StringEntry",
    "PodSpec.nodeSelector": "StringEntry",
    "PodSpec.affinity": "Affinity",
    "PodSpec.tolerations": "Toleration",
    "PodSpec.overhead": "QuantityEntry",
    "PodSpec.topologySpreadConstraints": "TopologySpreadConstraint",
    "PodSpec.schedulingGates": "SchedulingGate",
    "PodSpec.resourceClaims": "ResourceClaim",
    "PodSpec.resources": "ResourceRequirements",
    "Container.ports": "ContainerPort",
    "Container.resources": "ResourceRequirements",
    "Container.restartPolicyRules": "RestartRule",
    "ContainerStatus.allocatedResources": "QuantityEntry",
    "ContainerStatus.resources": "ResourceRequirements",
    "PodStatus.allocatedResources": "QuantityEntry",
    "PodStatus.resources": "ResourceRequirements",
    "VolumeSource.hostPath": "",
    "VolumeSource.ephemeral": "",
    "NodeStatus.images": "ContainerImage",
}
"""Field of ``objects.proto`` that is declared as bytes -> the message that it is; empty where only its presence is read."""


def plain_volume(volume: Any) -> dict[str, Any]:
    """Return a Volume with its source inlined, as in JSON."""
    return {"name": text(volume.name), **plain(volume.volumeSource)}


def _int_or_string(of: Any) -> int | str:
    """Return an IntOrString as in JSON; ``intstr.Type``: 0 is a number, 1 a string."""
    return share_text(of.strVal) if of.type == 1 else int(of.intVal)


def share(entries: Any) -> dict[str, str]:
    """Return a map of strings, ordered by key, in which equal strings are one shared object.

    The name of an app occurs in the labels of its pods and workloads and in all of their selectors.
    """
    return {share_text(key): share_text(entries[key]) for key in sorted(entries, key=text)}


def time_text(of: Any) -> str | None:
    """Return a Time as in JSON; the zero time (an empty message) is null there."""
    return rfc3339(of.seconds) if of.HasField("seconds") else None


_SPECIAL: dict[str, _Convert] = {
    message("Time").DESCRIPTOR.full_name: time_text,
    message("Quantity").DESCRIPTOR.full_name: lambda quantity: share_text(quantity.string),
    message("Volume").DESCRIPTOR.full_name: plain_volume,
    message("IntOrString").DESCRIPTOR.full_name: _int_or_string,
}
