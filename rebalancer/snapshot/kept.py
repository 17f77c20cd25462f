"""A cache of function results, kept from one snapshot to the next while the arguments are the same objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Memo:
    """A cache that keeps results as long as they are used again and again.

    For pure functions of immutable arguments. Arguments are compared by identity: an object that was read again is a
    different argument, even with equal content.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}
        self._now: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}
        """Function and identities of the arguments -> arguments, which keep these identities theirs, and result."""

    def of(self, make: Callable[..., T], *arguments: Any) -> T:
        """Return ``make(*arguments)``, computed now or taken from the cache."""
        key = (make, *map(id, arguments))
        known = self._now.get(key)
        if known is None:
            known = self._before.get(key) or (arguments, make(*arguments))
            self._now[key] = known
        result: T = known[1]
        return result

    def forget_unused(self) -> None:
        """Drop the results not used since the last call; keep all if most were unused."""
        if 2 * len(self._now) >= len(self._before):
            self._before, self._now = self._now, {}


class NoMemo(Memo):
    """A memo that caches nothing, for a single snapshot; a real cache would keep all objects in memory."""

    def of(self, make: Callable[..., T], *arguments: Any) -> T:
        """Return ``make(*arguments)``, computed now."""
        return make(*arguments)
