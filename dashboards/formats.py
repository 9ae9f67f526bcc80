"""How numbers, moments and certainty are written; pure, and the same on every page.

Numbers keep four significant digits, a narrow no-break space before the unit (SI Brochure, 9th ed., section 5.4.3)
and a real minus sign. Size and certainty are never mixed: "+14.2 % ± 0.8 %" is a size, "certain" is a certainty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from service.domain.severity import in_words
from service.domain.states import Direction

THIN = "\u202f"
MINUS = "\u2212"
NOTHING = "\u2013"
SECOND = "s"
SHA_LENGTH = 9

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_RATE_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


class Certainty(StrEnum):
    """How sure we are that a number moved, apart from how far it moved."""

    CERTAIN = "certain"
    LIKELY = "likely"
    UNSURE = "not sure"


def certainty(*, low: float, high: float, confirmed: bool) -> Certainty:
    """Say how sure a change is.

    Certain: the interval is clear of zero and an interleaved re-run of both commits confirmed it. Likely: the interval
    is clear of zero. Otherwise not sure, however large the effect looks.
    """
    if not low * high > 0:
        return Certainty.UNSURE
    return Certainty.CERTAIN if confirmed else Certainty.LIKELY


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit in which a time reads best: (seconds in one unit, its symbol)."""
    for size, symbol in _TIME_UNITS:
        if abs(seconds) >= size * 0.99995:
            return size, symbol
    return _TIME_UNITS[-1]


def digits(value: float, *, significant: int = 4) -> str:
    """A number with so many significant digits, never in exponent form, with a real minus sign."""
    if not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    exponent = int(f"{value:.{significant - 1}e}".partition("e")[2])  # after rounding: 0.99996 has the exponent 0
    places = max(0, significant - 1 - exponent)
    return f"{value:,.{min(places, 12)}f}".replace(",", THIN).replace("-", MINUS)


def seconds(value: float | None) -> str:
    """A time: "412.3 µs"."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return f"0{THIN}s"
    size, symbol = time_unit(value)
    return f"{digits(value / size)}{THIN}{symbol}"


def figure(value: float | None, *, unit: str) -> str:
    """A series' value in its unit; seconds are shown in the part of a second that reads best."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if unit == SECOND:
        return seconds(value)
    return f"{digits(value)}{THIN}{unit}" if unit else digits(value)


def half_width(value: float | None, half: float | None) -> str:
    """The half-width of an interval relative to its value: "± 0.3 %"."""
    if value is None or half is None or value == 0 or not math.isfinite(half / value):
        return ""
    return f"±{THIN}{_percent_digits(abs(half / value))}{THIN}%"


def _percent_digits(ratio: float) -> str:
    percent = abs(ratio) * 100
    if percent >= 100:
        return f"{percent:.0f}"
    return f"{percent:.1f}" if percent >= 0.1 or percent == 0 else f"{percent:.2f}"


def percent(ratio: float | None) -> str:
    """A signed relative change: "+14.2 %"."""
    if ratio is None or not math.isfinite(ratio):
        return NOTHING
    shown = _percent_digits(ratio)
    sign = "" if float(shown) == 0 else ("+" if ratio > 0 else MINUS)
    return f"{sign}{shown}{THIN}%"


def share(ratio: float | None) -> str:
    """An unsigned share: "97.3 %"."""
    if ratio is None or not math.isfinite(ratio):
        return NOTHING
    return f"{_percent_digits(ratio)}{THIN}%"


def effect(value: float, low: float, high: float) -> str:
    """A change with its 95 % interval as plus-minus: "+14.2 % ± 0.8 %"."""
    half = abs(high - low) / 2
    return f"{percent(value)} ±{THIN}{_percent_digits(half)}{THIN}%"


def change_words(value: float, *, better: str = "lower", unit: str = SECOND) -> str:
    """What a relative change means to the user: "14.2 % slower"."""
    worse = value > 0 if better == "lower" else value < 0
    word = ("slower" if worse else "faster") if unit == SECOND else ("worse" if worse else "better")
    return f"{_percent_digits(value)}{THIN}% {word}"


def rate(work: float, value_s: float | None, unit: str) -> str:
    """Work per second: "1.234 TFLOP/s"; empty when there is no work or no time."""
    if not work or value_s is None or not math.isfinite(value_s) or value_s <= 0:
        return ""
    per_second = work / value_s
    for size, prefix in _RATE_PREFIXES:
        if per_second >= size:
            return f"{digits(per_second / size)}{THIN}{prefix}{unit}/s"
    return f"{digits(per_second)}{THIN}{unit}/s"


def axes(values: Mapping[str, Any]) -> str:
    """A workload's axes: "m=512 n=512 k=512"."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def short(sha: str | None) -> str:
    """The first characters of a commit id."""
    return sha[:SHA_LENGTH] if sha else NOTHING


def moment(when: datetime | None) -> str:
    """A moment in UTC, to the minute."""
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC") if when else NOTHING


def duration(value_s: float | None) -> str:
    """A length of time for people: "84 s", "12 min 5 s", "3 h 20 min", "4 d 2 h"."""
    if value_s is None or not math.isfinite(value_s):
        return NOTHING
    if value_s < 10:
        return f"{value_s:.1f}{THIN}s"
    whole = round(value_s)
    if whole < 120:
        return f"{whole}{THIN}s"
    minutes, left_s = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}{THIN}min {left_s}{THIN}s" if left_s else f"{minutes}{THIN}min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}{THIN}h {minutes}{THIN}min" if minutes else f"{hours}{THIN}h"
    days, hours = divmod(hours, 24)
    return f"{days}{THIN}d {hours}{THIN}h" if hours else f"{days}{THIN}d"


def ago(then: datetime | None, now: datetime) -> str:
    """How long ago: "3 h ago", or "in 5 min"."""
    if then is None:
        return "never"
    passed_s = (now - then).total_seconds()
    steps = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
    size, unit = next(((size, unit) for size, unit in steps if abs(passed_s) >= size), steps[-1])
    shown = f"{abs(passed_s) / size:.0f}{THIN}{unit}"
    return f"{shown} ago" if passed_s >= 0 else f"in {shown}"


def plural(count: int, one: str, many: str = "") -> str:
    """A count with its noun: "1 series", "3 shapes"."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def loudness(severity: str, direction: str) -> str:
    """How loudly to say a change: the severity of a regression, the size of an improvement."""
    return in_words(severity, gain=direction == Direction.IMPROVEMENT)


def sentence(code: str | None) -> str:
    """An enum's value as words: `wrong_result` becomes "wrong result"."""
    return (code or NOTHING).replace("_", " ")
