"""JSON templates of a notice's body: ``$name`` in their texts becomes a value of the run.

The template is parsed first and filled in afterwards, so that no value can break out of its text.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from rebalancer.base.errors import PolicyError
from rebalancer.notices.message import PLACEHOLDERS

SHIPPED = ("plain", "slack", "teams")
_MOST_BYTES = 64 * 1024


def load_template(name: str) -> Any:
    """Return the template of that name, or in the file of that name, as data.

    Raises:
        PolicyError: it cannot be read, is no JSON, or has a placeholder that is unknown.
    """
    try:
        if name in SHIPPED:
            folder = resources.files("rebalancer.notices") / "templates"
            raw = (folder / f"{name}.json").read_bytes()
        else:
            with Path(name).open("rb") as stream:
                raw = stream.read(_MOST_BYTES)
        template = json.loads(raw)
    except OSError as error:
        known = ", ".join(SHIPPED)
        raise PolicyError(
            [f"--notify-template {name}: is none of {known}, and no file ({error.strerror})"]
        ) from None
    except (ValueError, RecursionError) as error:
        raise PolicyError([f"--notify-template {name}: is no JSON ({error})"]) from None
    unknown = sorted({*names_in(template)} - {*PLACEHOLDERS})
    if unknown:
        known = ", ".join(f"${one}" for one in PLACEHOLDERS)
        raise PolicyError(
            [f"--notify-template {name}: ${unknown[0]} is no placeholder; known: {known}"]
        )
    return template


def filled(template: Any, values: Mapping[str, str]) -> bytes:
    """Return the body: the template as JSON with the values in its texts."""
    return json.dumps(_filled(template, values), ensure_ascii=False).encode()


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return string.Template(value).safe_substitute(values)
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    if isinstance(value, dict):
        # Keys stay as they are: "$schema" is one.
        return {key: _filled(item, values) for key, item in value.items()}
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def names_in(template: Any) -> Iterator[str]:
    """Yield the placeholders in the texts of a template."""
    for text in _texts(template):
        yield from string.Template(text).get_identifiers()
