"""Plain data as JSON or YAML, and JSON templates, in whose strings each ``$name`` is replaced by a value.

JSON and YAML are for people and programs; both escape characters that are not printable. A template is parsed before
it is filled in, so a value cannot change the structure of the JSON.
"""

from __future__ import annotations

import json
import math
import string
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from rebalancer.base.plain_text import printable_json

DATA_FORMS = ("json", "yaml")


def data_text(data: Mapping[str, Any], form: str) -> str:
    """Return ``data`` as text in ``form`` (one of ``DATA_FORMS``), with the keys in order and a final newline."""
    if form == "json":
        return printable_json(json.dumps(data, indent=2, ensure_ascii=False)) + "\n"
    return yaml_text(json.loads(json.dumps(data)))


def yaml_text(data: Mapping[str, Any]) -> str:
    """Return ``data``, which has plain types only, as YAML."""
    # libyaml is ten times faster, which shows with thousands of skipped pods.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(data, Dumper=dumper, sort_keys=False, width=100)
    return text


def plain_number(value: float, digits: int = 9) -> int | float | None:
    """Return ``value`` rounded to ``digits`` significant digits.

    A whole number has no decimal point. NaN and infinity become None.
    """
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded


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
