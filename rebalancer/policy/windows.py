"""Windows: the times when moves are allowed.

Windows with ``allow``: moves are allowed while at least one of them is open; without any, always. While a window
with ``deny`` is open, moves are never allowed.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from rebalancer.base.plain_text import quote_value
from rebalancer.policy.values import PositiveDuration, Section

if TYPE_CHECKING:
    from croniter import croniter

# A cron expression that does not match within nine years (two leap days) never does.
_EPOCH = datetime(2023, 1, 1)  # noqa: DTZ001 (wall-clock time of no particular zone)
_NEVER_AFTER_YEARS = 9
# Clocks change by two hours at most (Antarctica/Troll); zones no longer move across the date line.
_MAX_SHIFT = timedelta(hours=3)
# Without the extensions of croniter, some of which give random times.
_CRON_FIELD = re.compile(
    r"(?:[0-9*,/?#L-]|sun|mon|tue|wed|thu|fri|sat"
    r"|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)+\Z",
    re.ASCII | re.IGNORECASE,
)


def _valid_cron(text: str) -> str:
    fields = text.split()
    if len(fields) != 5 or not all(_CRON_FIELD.match(field) for field in fields):
        raise ValueError(
            f"{quote_value(text)} is no cron expression of five fields (minute hour day month weekday), "
            'like "0 22 * * *"'
        )
    try:
        _cron(text, _EPOCH).get_next(datetime)
    except (ValueError, KeyError, AttributeError):
        raise ValueError(
            f"{quote_value(text)} is no cron expression that ever matches: minutes are 0-59, hours 0-23, days 1-31,"
            " months 1-12, weekdays 0-7 (Sunday is 0 and 7), and the days have to be in the months"
        ) from None
    return text


def _cron(text: str, start: datetime) -> croniter:
    # Imported here: most policies have no windows, and croniter imports twenty modules.
    from croniter import croniter  # noqa: PLC0415

    return croniter(text, start, max_years_between_matches=_NEVER_AFTER_YEARS)


def _valid_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise ValueError(
            f"{quote_value(name)} is no time zone of the IANA database; write for example Asia/Tokyo, or UTC"
        ) from None
    return name


_MINUTE, _HOUR, _OTHER = r"[0-5]?\d", r"([01]?\d|2[0-3])", r"[0-9A-Za-z*,/?#-]+"


def _list_of(value: str) -> str:
    """Return a regular expression of a field of cron: values, ranges and steps, separated by commas."""
    part = rf"(\*|\?|{value}(-{value})?)(/\d+)?"
    return f"{part}(,{part})*"


CRON_PATTERN = r"^\s*" + r"\s+".join([_list_of(_MINUTE), _list_of(_HOUR), *[_OTHER] * 3]) + r"\s*$"
"""The pattern that an editor and Helm check before a run does: five fields, minutes below 60 and hours below 24."""

Cron = Annotated[
    str,
    AfterValidator(_valid_cron),
    WithJsonSchema({"type": "string", "pattern": CRON_PATTERN, "examples": ["0 22 * * *"]}),
]


_EITHER = [
    {"required": [key], "properties": {key: {"type": "string"}}} for key in ("allow", "deny")
]


class Window(Section, json_schema_extra={"oneOf": _EITHER}):
    """A time in which moves are allowed or denied. It opens when ``allow`` or ``deny`` matches, for the time ``for``.

    The expression is in wall-clock time of ``timeZone``, ``for`` is elapsed time. When clocks are set forward, an
    opening in the skipped hour is at the time of the change. When they are set back, an opening in the repeated hour
    is the first one only, unless the hour field is a wildcard. These are cron(8)'s rules.
    """

    allow: Cron | None = Field(
        default=None,
        description="Cron expression of five fields: when a time begins in which moves are allowed.",
    )
    deny: Cron | None = Field(
        default=None,
        description="The same for a time in which no moves are allowed, whatever other windows allow.",
    )
    for_: PositiveDuration = Field(alias="for", description="How long it stays open, like 8h.")
    time_zone: Annotated[str, AfterValidator(_valid_zone)] = Field(
        default="UTC", description="IANA time zone of the cron expression, like Asia/Tokyo."
    )

    @model_validator(mode="after")
    def _allows_or_denies(self) -> Window:
        if (self.allow is None) == (self.deny is None):
            raise ValueError("a window has either allow or deny, with a cron expression")
        return self

    @property
    def expression(self) -> str:
        """The cron expression that opens the window."""
        return self.allow or self.deny or ""

    def is_open(self, now: float) -> bool:
        """Return whether the window is open at ``now`` (Unix seconds)."""
        return self.closes(now) is not None

    def closes(self, now: float) -> float | None:
        """Return when the window that is open at ``now`` closes (Unix seconds); None if it is not open."""
        end = self.end_of_last(now)
        return end if end is not None and now < end else None

    def end_of_last(self, now: float) -> float | None:
        """Return when the window closes that opened last before ``now``, or at it (Unix seconds); None if none has."""
        # All openings have the same length, so the latest one decides.
        last = self._last_start(now)
        return None if last is None else last + self.for_.total_seconds()

    def openings(self, now: float) -> Iterator[float]:
        """Yield the times after ``now`` at which the window opens, in order (Unix seconds)."""
        from croniter import CroniterError  # noqa: PLC0415

        cron = self._cron(self._wall(now) - _MAX_SHIFT)
        upcoming: list[float] = []
        last = now
        while True:
            try:
                starts = self._instants(cron.get_next(datetime))
            except CroniterError:  # The calendar ends.
                return
            for start in starts:
                heapq.heappush(upcoming, start)
            # Wall-clock order may differ from time order: look ahead by the largest difference.
            while upcoming and upcoming[0] <= starts[0] - _MAX_SHIFT.total_seconds():
                start = heapq.heappop(upcoming)
                if start > last:
                    last = start
                    yield start

    def next_opening(self, now: float) -> float | None:
        """Return the first time after ``now`` at which the window opens; None if there is none."""
        return next(self.openings(now), None)

    def _last_start(self, now: float) -> float | None:
        from croniter import CroniterError  # noqa: PLC0415

        wall, margin = self._wall(now), self._margin(now)
        # One second later, because get_prev returns times strictly before.
        cron = self._cron(wall + margin + timedelta(seconds=1))
        best: float | None = None
        while True:
            try:
                at = cron.get_prev(datetime)
            except CroniterError:
                return best
            starts = [start for start in self._instants(at) if start <= now]
            best = max([*starts, *([best] if best is not None else [])], default=None)
            # Beyond the margin, wall-clock order is time order; beyond ``for``, the window has closed.
            if at < wall - margin and (best is not None or at < wall - self.for_ - margin):
                return best
            if best is not None and not margin:
                return best

    def _cron(self, start: datetime) -> croniter:
        # In wall-clock time without a zone, because croniter's rules for clock changes differ from ours.
        return _cron(self.expression, start)

    def _wall(self, now: float) -> datetime:
        return datetime.fromtimestamp(now, ZoneInfo(self.time_zone)).replace(
            tzinfo=None, microsecond=0
        )

    def _margin(self, now: float) -> timedelta:
        """Return by how much wall-clock order and time order can differ around ``now``."""
        zone, reach = ZoneInfo(self.time_zone), _MAX_SHIFT.total_seconds()
        return abs(_offset(zone, now - reach) - _offset(zone, now + reach))

    def _instants(self, wall: datetime) -> tuple[float, ...]:
        """Return the Unix seconds at which the zone's wall clock shows ``wall``."""
        zone = ZoneInfo(self.time_zone)
        first = wall.replace(tzinfo=zone).timestamp()
        second = wall.replace(tzinfo=zone, fold=1).timestamp()
        if first == second:
            return (first,)
        if first < second:  # In the repeated hour.
            return (first, second) if self.expression.split()[1].startswith("*") else (first,)
        return (_change(zone, second, first),)


def _offset(zone: ZoneInfo, at: float) -> timedelta:
    return datetime.fromtimestamp(at, zone).utcoffset() or timedelta(0)


def _change(zone: ZoneInfo, low: float, high: float) -> float:
    """Return the second in (low, high] at which the zone's offset from UTC changes."""
    before = _offset(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
    return high


def is_open(windows: Sequence[Window], now: float) -> bool:
    """Return whether moves are allowed at ``now`` (Unix seconds).

    At least one window must allow them, if any has ``allow``; and none may deny them.
    """
    allowing = [window for window in windows if window.allow is not None]
    if allowing and not any(window.is_open(now) for window in allowing):
        return False
    return not any(window.is_open(now) for window in windows if window.deny is not None)


def next_allowed(sets: Sequence[Sequence[Window]], now: float) -> float | None:
    """Return the first time from ``now`` on (Unix seconds) at which all ``sets`` of windows allow moves.

    None if there is none before the end of the calendar, or among the next four hundred openings and closings.
    """
    at = now
    for _ in range(_MAX_CHANGES):
        closed = [windows for windows in sets if not is_open(windows, at)]
        if not closed:
            return at
        later = [_next_change(windows, at) for windows in closed]
        known = [time for time in later if time is not None]
        if len(known) < len(later):
            return None
        at = max(known)
    return None


_MAX_CHANGES = 400


def _next_change(windows: Sequence[Window], at: float) -> float | None:
    """Return the first time after ``at`` when closed windows may allow moves again; None if there is none."""
    denied = [
        end
        for window in windows
        if window.deny is not None and (end := window.closes(at)) is not None
    ]
    if denied:
        return max(denied)
    starts = [
        start
        for window in windows
        if window.allow is not None and (start := window.next_opening(at)) is not None
    ]
    return min(starts, default=None)
