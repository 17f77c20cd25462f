"""Suggest the name that was meant, for error messages on an unknown one."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Callable, Collection
from itertools import takewhile

FEW = 8
"""Maximum number of object names that a message lists."""
_MANY = 1000
"""Maximum number of names that are compared: comparing is slow."""


def closest(word: object, known: Collection[str]) -> str | None:
    """Return the known name that starts with ``word``, or else the most similar one; None if none is similar.

    Of many names only those with the longest common prefix are compared.
    """
    lower = {one.lower(): one for one in sorted(known)}
    written = str(word).lower()
    begun = [name for name in lower if name.startswith(written)]
    if len(begun) == 1 and len(written) > 2:
        return lower[begun[0]]
    names = list(lower)
    if len(names) > _MANY:
        names = heapq.nlargest(_MANY, names, key=lambda name: _common_prefix(name, written))
    matches = difflib.get_close_matches(written, names, n=1, cutoff=0.6)
    return lower[matches[0]] if matches else None


def did_you_mean(
    word: object,
    known: Collection[str],
    *,
    show: Callable[[str], str] = str,
    listed: int | None = None,
) -> str:
    """Return ``; did you mean X?``, or a list of all known names if none is similar; empty if there are none.

    ``show``: formats the name that is suggested. ``listed``: more names than that are not listed.
    """
    if (name := closest(word, known)) is not None:
        return f"; did you mean {show(name)}?"
    if not known or (listed is not None and len(known) > listed):
        return ""
    return f"; known here: {', '.join(sorted(known))}"


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix of two names."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
