"""Windows: when moves are allowed. A list of windows allows what any of them allows; none, always."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter
from pydantic import AfterValidator, Field

from rebalancer.policy.params import Section, shown
from rebalancer.policy.values import Duration

# A cron expression that does not match within nine years (two leap days apart) never does.
_EPOCH = datetime(2023, 1, 1)  # noqa: DTZ001 (wall-clock time of no particular zone)
_NEVER_AFTER_YEARS = 9
# No zone has ever moved its clocks by more than a day at once.
_LARGEST_SHIFT = timedelta(hours=25)


def _valid_cron(text: str) -> str:
    if len(text.split()) != 5:
        raise ValueError(
            f"{shown(text)} is no cron expression of five fields (minute hour day month weekday), "
            'like "0 22 * * *"'
        )
    try:
        croniter(text, _EPOCH, max_years_between_matches=_NEVER_AFTER_YEARS).get_next(datetime)
    except (CroniterError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{shown(text)} is no cron expression that ever matches: {error}"
        ) from None
    return text


def _valid_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise ValueError(
            f"{shown(name)} is no time zone of the IANA database; write for example Asia/Tokyo, or UTC"
        ) from None
    return name


class Window(Section):
    """A time in which moves are allowed: it opens when ``allow`` matches, and stays open ``for`` so long.

    ``allow`` is compared with the wall clock of ``timeZone``, ``for`` is elapsed time. When clocks are
    set forward, an opening in the hour that is left out happens at the change; when they are set back,
    an opening in the repeated hour happens the first time only, unless the hour field is a wildcard.
    These are the rules of cron(8).
    """

    allow: Annotated[str, AfterValidator(_valid_cron)] = Field(
        description="Cron expression of five fields: when the window opens."
    )
    for_: Annotated[Duration, Field(gt=timedelta(0), le=timedelta(days=366))] = Field(
        alias="for", description="How long it stays open, like 8h."
    )
    time_zone: Annotated[str, AfterValidator(_valid_zone)] = Field(
        default="UTC", description="IANA time zone of the cron expression, like Asia/Tokyo."
    )

    def is_open(self, now: float) -> bool:
        """Return whether the window is open at ``now`` (Unix seconds)."""
        return self.closes(now) is not None

    def closes(self, now: float) -> float | None:
        """Return when the opening that ``now`` is in ends, or None outside."""
        # All openings last equally long, so the latest one decides.
        last = self._last_start(now)
        end = None if last is None else last + self.for_.total_seconds()
        return end if end is not None and now < end else None

    def openings(self, now: float) -> Iterator[float]:
        """Yield the moments after ``now`` at which the window opens, in order (Unix seconds)."""
        cron = self._cron(self._wall(now) - _LARGEST_SHIFT)
        last = now
        while True:
            try:
                starts = self._instants(cron.get_next(datetime))
            except CroniterError:  # The calendar ends.
                return
            for start in starts:
                if start > last:
                    last = start
                    yield start

    def next_opening(self, now: float) -> float | None:
        """Return the first moment after ``now`` at which the window opens."""
        return next(self.openings(now), None)

    def _last_start(self, now: float) -> float | None:
        cron = self._cron(self._wall(now) + _LARGEST_SHIFT)
        earliest = self._wall(now) - self.for_ - _LARGEST_SHIFT
        while True:
            try:
                wall = cron.get_prev(datetime)
            except CroniterError:
                return None
            for start in reversed(self._instants(wall)):
                if start <= now:
                    return start
            if wall < earliest:
                return None

    def _cron(self, start: datetime) -> croniter:
        # On wall-clock time without a zone, so that the rules for changing clocks are ours alone.
        return croniter(self.allow, start, max_years_between_matches=_NEVER_AFTER_YEARS)

    def _wall(self, now: float) -> datetime:
        return datetime.fromtimestamp(now, ZoneInfo(self.time_zone)).replace(tzinfo=None)

    def _instants(self, wall: datetime) -> tuple[float, ...]:
        """Return the Unix seconds at which the zone's wall clock shows ``wall``."""
        zone = ZoneInfo(self.time_zone)
        first = wall.replace(tzinfo=zone).timestamp()
        second = wall.replace(tzinfo=zone, fold=1).timestamp()
        if first == second:
            return (first,)
        if first < second:  # The hour that happens twice.
            return (first, second) if self.allow.split()[1].startswith("*") else (first,)
        return (_change(zone, second, first),)


def _change(zone: ZoneInfo, low: float, high: float) -> float:
    """Return the second in (low, high] at which the zone's offset from UTC changes."""

    def offset(at: float) -> timedelta | None:
        return datetime.fromtimestamp(at, UTC).astimezone(zone).utcoffset()

    before = offset(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if offset(middle) == before else (low, middle)
    return high


def is_open(windows: Sequence[Window], now: float) -> bool:
    """Return whether moves are allowed at ``now``: no windows at all, or one that is open."""
    return not windows or any(window.is_open(now) for window in windows)


def closes(windows: Sequence[Window], now: float) -> float | None:
    """Return when moves cease to be allowed, None for never or not now; windows that touch are joined."""
    end: float | None = None
    at = now
    # A window that never shuts (every hour for two hours) would be joined for ever: a year is enough.
    while at < now + timedelta(days=366).total_seconds():
        ends = [later for window in windows if (later := window.closes(at)) is not None]
        if not ends:
            return end
        end = at = max(ends)
    return None


def next_opening(windows: Sequence[Window], now: float) -> float | None:
    """Return the first moment after ``now`` at which one of the windows opens."""
    starts = [start for window in windows if (start := window.next_opening(now)) is not None]
    return min(starts, default=None)
