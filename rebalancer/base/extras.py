"""Import the libraries of optional extras, which are not installed everywhere."""

from __future__ import annotations

import importlib
from typing import Any

from rebalancer.base.errors import PolicyError


def import_extra(module: str, extra: str, use: str) -> Any:
    """Return ``module``, a library of the extra ``extra``; ``use``: the flag or command that needs it.

    Raises:
        PolicyError: it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PolicyError(
            [f"{use} needs the extra {extra}: pip install '.[{extra}]' in a checkout ({error})"]
        ) from None
