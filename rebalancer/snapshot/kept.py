"""What was worked out for one snapshot and holds for the next: results of functions whose arguments are still the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Memo:
    """Keeps results while they are asked for again and again.

    For functions that depend on nothing but their arguments, and arguments that never change: then the same objects
    give the same result. An object that was read again is another one, even if it says the same.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}
        self._now: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}
        """Function and identities of the arguments -> arguments, which keep these identities theirs, and result."""

    def of(self, make: Callable[..., T], *arguments: Any) -> T:
        """Return ``make(*arguments)``, made now or kept."""
        key = (make, *map(id, arguments))
        known = self._now.get(key)
        if known is None:
            known = self._before.get(key) or (arguments, make(*arguments))
            self._now[key] = known
        result: T = known[1]
        return result

    def forget_unused(self) -> None:
        """Forget what was not asked for since this was called last, unless that is most: what a kept result was made of."""
        if 2 * len(self._now) >= len(self._before):
            self._before, self._now = self._now, {}


class NoMemo(Memo):
    """A memo that keeps nothing, for a single snapshot. A real memo would keep all its objects in memory."""

    def of(self, make: Callable[..., T], *arguments: Any) -> T:
        """Return ``make(*arguments)``."""
        return make(*arguments)
