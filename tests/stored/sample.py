"""A value of a type in which no field has its default: what is stored has every key then."""

from typing import Any

import msgspec
from msgspec import inspect


def sample_of(kind: Any, name: str = "") -> Any:
    """Return a value of ``kind``; texts are the names of their fields, so equal types give equal values."""
    return msgspec.convert(_plain(inspect.type_info(kind), name), kind)


def _plain(info: inspect.Type, name: str) -> Any:
    if isinstance(info, inspect.StructType | inspect.DataclassType):
        return {one.encode_name: _plain(one.type, one.encode_name) for one in info.fields}
    if isinstance(info, inspect.UnionType):
        return _plain(
            next(one for one in info.types if not isinstance(one, inspect.NoneType)), name
        )
    if isinstance(info, inspect.DictType):
        return {f"key-of-{name}": _plain(info.value_type, f"value-of-{name}")}
    if isinstance(info, inspect.VarTupleType | inspect.ListType):
        return [_plain(info.item_type, f"item-of-{name}")]
    if isinstance(info, inspect.TupleType):
        return [_plain(one, f"{name}-{i}") for i, one in enumerate(info.item_types)]
    if isinstance(info, inspect.EnumType):
        return list(info.cls)[-1].value
    return _VALUES.get(type(info), name)


_VALUES = {inspect.BoolType: True, inspect.IntType: 7, inspect.FloatType: 0.5}


def values_of(kind: Any) -> dict[str, list[Any]]:
    """Return the values of each enumeration in a type, by its name."""
    found: dict[str, list[Any]] = {}
    rest = [inspect.type_info(kind)]
    while rest:
        info = rest.pop()
        if isinstance(info, inspect.EnumType):
            found[info.cls.__name__] = sorted(one.value for one in info.cls)
        if isinstance(info, inspect.StructType | inspect.DataclassType):
            rest += [one.type for one in info.fields]
        rest += [
            part
            for name in ("types", "item_types")
            for part in getattr(info, name, ())
            if isinstance(part, inspect.Type)
        ]
        rest += [getattr(info, name) for name in ("item_type", "value_type") if hasattr(info, name)]
    return found
