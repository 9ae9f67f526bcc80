"""When a channel may be disturbed, in hours of a clock on the wall."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from service.domain.timetable import timetable_of


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NIGHT = {"quiet": "22:00-07:00", "zone": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2030-01-10T20:59", None),  # 21:59 in Berlin
        ("2030-01-10T21:00", "2030-01-11T06:00"),  # 22:00 in Berlin, an hour before UTC in winter
        ("2030-01-11T05:59", "2030-01-11T06:00"),
        ("2030-01-11T06:00", None),
        ("2030-07-10T20:00", "2030-07-11T05:00"),  # summer: two hours
        ("2030-03-30T22:00", "2030-03-31T05:00"),  # the night in which summer time begins
    ],
)
def test_quiet_hours_end_when_the_clock_on_the_wall_says_so(now, until):
    assert timetable_of(NIGHT).held_until(at(now)) == (at(until) if until else None)


def test_quiet_hours_within_a_day():
    lunch = timetable_of({"quiet": "12:00-13:30"})
    assert lunch.held_until(at("2030-01-10T12:30")) == at("2030-01-10T13:30")
    assert lunch.held_until(at("2030-01-10T23:00")) is None


def test_a_daily_digest_holds_everything_until_its_hour():
    daily = timetable_of({"daily": "09:00", "zone": "Asia/Tokyo", "quiet": "22:00-07:00"})
    assert daily.held_until(at("2030-01-10T00:00")) == at("2030-01-11T00:00")
    assert daily.held_until(at("2030-01-09T23:59")) == at("2030-01-10T00:00")


def test_a_channel_without_hours_is_told_at_once():
    assert timetable_of({"to": ["a@example.org"]}).held_until(at("2030-01-10T03:00")) is None


@pytest.mark.parametrize("config", [{"quiet": "22-7"}, {"quiet": "07:00-07:00"}, {"daily": "9 am"}, {"zone": "Mars"}])
def test_hours_that_cannot_be_read_are_refused_with_a_sentence(config):
    with pytest.raises(ValueError, match=r"write|is not"):
        timetable_of(config)
