"""Convert pydantic's validation errors into problems of a YAML file."""

from __future__ import annotations

import difflib
import inspect
import json
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rebalancer.base.errors import PluginError
from rebalancer.base.plain_text import quote_value
from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument

_Model = TypeVar("_Model", bound=BaseModel)

_WANTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping of keys to values",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a mapping of keys to values",
    "string_type": "text; quotes make it text",
    "tuple_type": "a list",
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def validate(
    model: type[_Model],
    data: Any,
    document: YamlDocument,
    base: KeyPath,
    also: Collection[str] = (),
) -> tuple[_Model | None, list[FileProblem]]:
    """Validate ``data`` as ``model``; return the result, or None and all problems.

    Parameters
    ----------
    document, base
        The document and the path of ``data`` in it, for lines and paths.
    also
        Further keys that are allowed beside the model's, for suggestions.
    """
    try:
        # Strict, so that "yes" is no boolean; as JSON, so that a list can become a tuple.
        text = json.dumps(data)
        return model.model_validate_json(text, strict=True, by_alias=True, by_name=False), []
    except ValidationError as error:
        errors = error.errors(include_url=False)
    return None, [_problem(model, data, detail, document, base, also) for detail in errors]


def closest(word: Any, known: Collection[str]) -> str | None:
    """Return the known name that starts with ``word``, or else the most similar one; None if none is similar."""
    lower = {one.lower(): one for one in sorted(known)}
    begun = [name for name in lower if name.startswith(str(word).lower())]
    if len(begun) == 1 and len(str(word)) > 2:
        return lower[begun[0]]
    matches = difflib.get_close_matches(str(word).lower(), list(lower), n=1, cutoff=0.6)
    return lower[matches[0]] if matches else None


def did_you_mean(word: Any, known: Collection[str]) -> str:
    """Return ``; did you mean X?``, or a list of all known names if none is similar."""
    if (name := closest(word, known)) is not None:
        return f"; did you mean {name}?"
    return f"; known here: {', '.join(sorted(known))}" if known else ""


def plugin_model(known: Mapping[str, type[_Model]], noun: str, name: str) -> type[_Model] | str:
    """Return the options model of a plug-in, or an error message if the plug-in cannot be loaded.

    Only the plug-in ``name`` is looked up in ``known``, and so imported. ``noun``: what messages call this kind of
    plug-in.
    """
    try:
        if name in known:
            return known[name]
    except PluginError as error:
        return str(error)
    return f"unknown {noun} {quote_value(name)}{did_you_mean(name, known)}"


def no_options(value: Any) -> str:
    """Return the error message for a value that cannot be the options of a plug-in."""
    return f"{quote_value(value)} should be a mapping of keys to values; {{}} takes all defaults"


def _problem(
    model: type[BaseModel],
    data: Any,
    detail: ErrorDetails,
    document: YamlDocument,
    base: KeyPath,
    also: Collection[str],
) -> FileProblem:
    kind, value = detail["type"], detail["input"]
    path = _path_in(data, detail["loc"], lacks=kind == "missing")
    if kind == "extra_forbidden":
        known = list_keys(model, path[:-1]) | (set(also) if len(path) == 1 else set())
        message = f"unknown key{did_you_mean(path[-1], known)}"
    elif kind == "missing":
        message = "is missing; add it"
    else:
        message = _value_message(kind, value, detail)
    return document.problem((*base, *path), message)


def _value_message(kind: str, value: Any, detail: ErrorDetails) -> str:
    if kind == "value_error":
        return detail["msg"].removeprefix("Value error, ")
    if kind in ("enum", "literal_error"):
        choices = [part.strip("'") for part in _choices(detail)]
        name = closest(value, choices)
        hint = f"; did you mean {name}?" if name is not None else ""
        return f"{quote_value(value)} is none of {', '.join(choices)}{hint}"
    if kind in _WANTED:
        return f"{quote_value(value)} should be {_WANTED[kind]}"
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        bound = detail.get("ctx", {}).get(name)
        text = f"{bound:g}" if isinstance(bound, float) else str(bound)
        return f"{quote_value(value)} should be {words} {text}"
    return f"{quote_value(value)} {detail['msg'].removeprefix('Input ')}"


def _choices(detail: ErrorDetails) -> Sequence[str]:
    expected = str(detail.get("ctx", {}).get("expected", ""))
    return expected.replace(" or ", ", ").split(", ")


def _path_in(data: Any, loc: Sequence[int | str], *, lacks: bool) -> KeyPath:
    """Return pydantic's location ``loc`` as a path in ``data``, without its additions (tags of unions, ``[key]``).

    ``lacks``: the last part is a missing key.
    """
    path: list[str | int] = []
    here = data
    for index, part in enumerate(loc):
        is_item = isinstance(here, list) and isinstance(part, int) and part < len(here)
        if is_item or (isinstance(here, dict) and part in here):
            here = here[part]
        elif not (lacks and index == len(loc) - 1):
            continue
        path.append(part)
    return tuple(path)


def list_keys(model: type[BaseModel], path: KeyPath) -> set[str]:
    """Return the keys of ``model`` at ``path``, as written in the file."""
    here = [model]
    for part in path:
        inner = [
            nested
            for one in here
            for name, field in one.model_fields.items()
            if part == (field.alias or name)
            for nested in _models_in(field.annotation)
        ]
        # Indices and free keys stay in the same model.
        here = inner or here
    return {field.alias or name for one in here for name, field in one.model_fields.items()}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models_in(inner)


__all__ = ["closest", "did_you_mean", "list_keys", "validate"]
