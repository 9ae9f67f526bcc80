"""When a channel may be disturbed: quiet hours, and the hour of a daily digest, in the channel's own time zone.

What comes while it is quiet is told at the end, together. Hours are wall-clock hours: across a change to or from
summer time the quiet lasts an hour more or less, as people expect of a clock on the wall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """Quiet from one hour to another, or one digest a day, or neither."""

    zone: ZoneInfo
    quiet: tuple[time, time] | None = None
    daily_at: time | None = None

    def held_until(self, now: datetime) -> datetime | None:
        """Return the moment until which a message that comes at `now` is held back, in UTC; None: tell at once."""
        local = now.astimezone(self.zone)
        if self.daily_at is not None:
            return _next(local, self.daily_at)
        if self.quiet is not None and _lies_in(local.time(), self.quiet):
            return _next(local, self.quiet[1])
        return None

    def __str__(self) -> str:
        if self.daily_at is not None:
            return f"one digest a day at {self.daily_at:%H:%M} {self.zone.key}"
        if self.quiet is not None:
            return f"quiet {self.quiet[0]:%H:%M}-{self.quiet[1]:%H:%M} {self.zone.key}"
        return "at once"


def timetable_of(config: Mapping[str, Any]) -> Timetable:
    """Read `quiet` ("22:00-07:00"), `daily` ("09:00") and `zone` ("Europe/Berlin", else UTC) of a channel.

    Raises ValueError with a sentence for what cannot be read.
    """
    quiet, daily = config.get("quiet"), config.get("daily")
    try:
        zone = ZoneInfo(str(config.get("zone") or "UTC"))
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"there is no time zone {config.get('zone')!r}: write it like Europe/Berlin") from error
    return Timetable(
        zone=zone, quiet=_span(str(quiet)) if quiet else None, daily_at=_hour(str(daily)) if daily else None
    )


def _span(text: str) -> tuple[time, time]:
    start, separator, end = text.partition("-")
    if not separator or _hour(start) == _hour(end):
        raise ValueError(f"{text!r} is not a span of hours: write 22:00-07:00")
    return _hour(start), _hour(end)


def _hour(text: str) -> time:
    try:
        return datetime.strptime(text.strip(), "%H:%M").replace(tzinfo=UTC).time()
    except ValueError as error:
        raise ValueError(f"{text!r} is not an hour: write 07:00") from error


def _lies_in(moment: time, span: tuple[time, time]) -> bool:
    start, end = span
    return start <= moment < end if start < end else moment >= start or moment < end


def _next(local: datetime, hour: time) -> datetime:
    """Return the next time that a clock on the wall shows `hour`, in UTC."""
    today = datetime.combine(local.date(), hour, tzinfo=local.tzinfo)
    chosen = today if today > local else datetime.combine(local.date() + timedelta(days=1), hour, tzinfo=local.tzinfo)
    return chosen.astimezone(UTC)
