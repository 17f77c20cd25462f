"""The templates of a notice's body: those that are shipped, and files."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from rebalancer.base.errors import PolicyError
from rebalancer.base.json_template import names_in
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
