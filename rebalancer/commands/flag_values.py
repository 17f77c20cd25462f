"""Parse the values of flags, so that commands receive parsed values instead of text."""

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
    """Return a click callback that parses a flag with ``parse``; without a value it returns None.

    A ValueError of ``parse`` becomes the error message.
    """

    def read(_context: click.Context, _flag: click.Parameter, text: str | None) -> Value | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


def named(parse: Callable[[str, str], Value]) -> Callback[Value | None]:
    """Return a click callback that calls ``parse`` with the flag's name and text; without a value it returns None.

    A PolicyError of ``parse``, which names the flag, ends the command.
    """

    def read(_context: click.Context, flag: click.Parameter, text: str | None) -> Value | None:
        return None if text is None else parse(flag.opts[0], text)

    return read


def reference(flag: str, text: str) -> tuple[str, str]:
    """Parse ``NAMESPACE/NAME`` as a pair.

    Raises:
        PolicyError: the text has another form.
    """
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise PolicyError([f"{flag} {text}: write NAMESPACE/NAME"])
    return namespace, name


def duration(flag: str, text: str) -> float:
    """Parse ``90s``, ``5m`` or ``1h30m``; return seconds.

    Raises:
        PolicyError: the text has another form.
    """
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise PolicyError([f"{flag}: {error}"]) from None


def label_selector(flag: str, text: str) -> LabelSelector | None:
    """Parse the label selector of a flag; None for an empty one, which selects everything.

    Raises:
        PolicyError: the text is not a selector.
    """
    # The policy's models are imported where a selector is given: commands without one load no policy.
    from rebalancer.policy.select import parse_selector  # noqa: PLC0415

    try:
        return parse_selector(text).wire() if text else None
    except PolicyError as error:
        raise PolicyError([f"{flag} {text}: {error}"]) from None


def select(flag: str, text: str) -> Select:
    """Parse a ``select`` in the syntax of a policy.

    Raises:
        PolicyError: the text is not a ``select``.
    """
    from rebalancer.policy.load import parse_select  # noqa: PLC0415

    return parse_select(text, flag)
