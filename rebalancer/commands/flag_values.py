"""The values that texts of flags stand for; ``flags`` reads them, so that commands get no text to parse."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from rebalancer.base.durations import parse_duration
from rebalancer.base.errors import PolicyError

if TYPE_CHECKING:
    from rebalancer.policy.select import Select
    from rebalancer.wire.objects import LabelSelector

Value = TypeVar("Value")
Callback = Callable[[click.Context, click.Parameter, str | None], Value]
"""What click calls with the text of a flag."""


def parsed(parse: Callable[[str], Value]) -> Callback[Value | None]:
    """Return a callback that reads a flag with ``parse``, whose ValueError says what is wrong; None without a value."""

    def read(_context: click.Context, _flag: click.Parameter, text: str | None) -> Value | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


def named(parse: Callable[[str, str], Value]) -> Callback[Value | None]:
    """Return a callback that reads a flag with ``parse``, given the name of the flag and its text; None without one.

    A PolicyError of ``parse`` ends the command, and names the flag.
    """

    def read(_context: click.Context, flag: click.Parameter, text: str | None) -> Value | None:
        return None if text is None else parse(flag.opts[0], text)

    return read


def reference(flag: str, text: str) -> tuple[str, str]:
    """Return ``NAMESPACE/NAME`` as a pair.

    Raises:
        PolicyError: it is something else.
    """
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise PolicyError([f"{flag} {text}: write NAMESPACE/NAME"])
    return namespace, name


def duration(flag: str, text: str) -> float:
    """Return ``90s``, ``5m`` or ``1h30m`` in seconds.

    Raises:
        PolicyError: it is something else.
    """
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise PolicyError([f"{flag}: {error}"]) from None


def label_selector(flag: str, text: str) -> LabelSelector | None:
    """Return the label selector that a flag gives; None for an empty one, which selects all.

    Raises:
        PolicyError: it is none.
    """
    # The policy's models are imported where a selector is given: commands without one load no policy.
    from rebalancer.policy.select import parse_selector  # noqa: PLC0415

    try:
        return parse_selector(text).wire() if text else None
    except PolicyError as error:
        raise PolicyError([f"{flag} {text}: {error}"]) from None


def select(flag: str, text: str) -> Select:
    """Return the pods that a flag selects in the words of a policy.

    Raises:
        PolicyError: it is no ``select``.
    """
    from rebalancer.policy.load import parse_select  # noqa: PLC0415

    return parse_select(text, flag)
