"""JSON templates: each ``$name`` in a string is replaced by a value.

The template is parsed before it is filled in, so a value cannot change the structure of the JSON.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator, Mapping
from typing import Any


def fill(template: Any, values: Mapping[str, str]) -> bytes:
    """Return the request body: the template as JSON with its placeholders replaced."""
    return json.dumps(_fill(template, values), ensure_ascii=False).encode()


def _fill(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return string.Template(value).safe_substitute(values)
    if isinstance(value, list):
        return [_fill(item, values) for item in value]
    if isinstance(value, dict):
        # Keys stay as they are: "$schema" is one.
        return {key: _fill(item, values) for key, item in value.items()}
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def names_in(template: Any) -> Iterator[str]:
    """Yield the names of the placeholders in a template."""
    for text in _texts(template):
        yield from string.Template(text).get_identifiers()
