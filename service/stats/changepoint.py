"""Change points of one series: from noisy points in commit order to levels, effects and what the noise hides.

Pure: arrays in, a frozen `Detection` out. The arithmetic is in `_changepoint.c`; the maths, its sources and
the meaning of every setting are in README.md beside this file. O(n log n) time; nothing is kept between
calls, so points that arrive late or out of order give the answer they would have given in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.stats._native import SETTING_DOUBLES, SETTING_INTS, CChange, CFacts, CLevel, CSettings, run
from service.stats.noise import remove_host_offsets

DETECTOR = "kw-cpd"
DETECTOR_VERSION = 1

TAIL_POINTS = 256
"""Points a tail call looks at: bounded work for one more point, whatever the length of the history."""

SAME_ALARM_POINTS = 5
"""A change this near a known one is the same change."""

LATE_POINTS, OVER_LINE = 40, 5.0
"""A step that took more points than this to be seen, or that explains the points no better than a straight line by this
much squared z, is a slow finding, like a trend: listed, not alarmed."""

NEW_POINTS = 5
"""Points of a new level that `smallest_detectable` supposes."""

NO_MEMORY, BAD_POINT = -1, -2
"""Answers of `_changepoint.c` that are no count."""


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """What the detector may be told; README.md says what each one does and why its default is what it is."""

    clip_sd: float = 4.5
    sd_floor: float = 1e-4
    candidate_z: float = 2.5
    penalty: float = 3.75
    gate: float = 11.5
    scan: float = 2.5
    min_effect: float = 0.002
    min_sd: float = 0.75
    run_slack: float = 0.5
    place_margin: float = 1.5
    trend_cost: float = 12.5
    min_segment: int = 3
    reach: int = 80

    def __post_init__(self) -> None:
        """Refuse settings under which the test means nothing."""
        if self.min_segment < 2 or self.reach < self.min_segment:
            raise ValueError("min_segment must be at least 2 and reach at least min_segment")
        positive = (self.clip_sd, self.sd_floor, self.penalty, self.gate, self.min_effect, self.min_sd)
        if min(positive) <= 0:
            raise ValueError("clip_sd, sd_floor, penalty, gate, min_effect and min_sd must be positive")


DEFAULT = DetectorSettings()
TAIL = DetectorSettings(penalty=3.25)
"""For one point at a time: a tail is short, and what a lower penalty lets through still has to pass `new_alarms`."""


@dataclass(frozen=True, slots=True)
class Change:
    """One step. `index` is the first point of the new level; levels are on the scale of the input."""

    index: int
    before: float
    after: float
    effect: float
    """Relative: after / before - 1."""
    effect_low: float
    effect_high: float
    """Ends of the 95 % interval of `effect`."""
    z: float
    p_value: float
    """Two-sided, corrected for having looked at every place of the series (Bonferroni over the scan)."""
    n_before: int
    n_after: int
    over_line: float
    """Squared z by which the step explains its two sides better than one straight line."""


@dataclass(frozen=True, slots=True)
class Level:
    """A stable stretch of the series, on the scale of the input: what a new point is compared with."""

    start: int
    n: int
    mean: float
    se: float


@dataclass(frozen=True, slots=True)
class ModeFinding:
    """Two levels that interleave: a property of the noise, not a change."""

    gap: float
    """Relative distance of the two levels."""
    upper_share: float
    separation: float
    """Gap over the sd within the levels."""


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """A straight trend under the steps."""

    per_point: float
    """Relative change from one point to the next."""
    total: float
    """Relative change over the series."""
    z: float


@dataclass(frozen=True, slots=True)
class Detection:
    """Everything one look at a series told."""

    changes: tuple[Change, ...]
    n: int
    noise_floor: float
    """Relative sd of one point about its level."""
    autocorrelation: float
    smallest_detectable: float
    """Relative step that five points of a new level would show in four cases of five."""
    levels: tuple[Level, ...]
    bimodal: ModeFinding | None
    drift: DriftFinding | None
    host_offsets: dict[int, float]
    """Relative offset of each host that was removed before the search; empty where hosts were not told."""

    @property
    def last_level(self) -> Level:
        """The level the series is on now."""
        return self.levels[-1]


@cache
def _c_settings(settings: DetectorSettings) -> CSettings:
    return CSettings(*(getattr(settings, name) for name in SETTING_DOUBLES + SETTING_INTS))


def _refusal(points: NDArray[np.float64], errors: NDArray[np.float64] | None, index: int) -> str:
    value = float(points[index])
    if not 0 < value < math.inf:
        return f"point {index} is {value}: every point must be a finite number above zero"
    error = math.nan if errors is None else float(errors[index])
    return f"the standard error of point {index} is {error}: it must be finite and not negative"


def detect(
    values: ArrayLike,
    *,
    se: ArrayLike | None = None,
    hosts: ArrayLike | None = None,
    settings: DetectorSettings = DEFAULT,
) -> Detection:
    """Find the steps of one series.

    `values` are the points in commit order, one number a commit, all above zero; `se` their standard errors
    on the same scale (from processes, not launches); `hosts` a small integer a point. Raises ValueError that
    names the first bad point. Objective, statistic and sources: README.md, "How a step is found".
    """
    points = np.ascontiguousarray(values, dtype=np.float64)
    if points.ndim != 1 or points.size == 0:
        raise ValueError("a series needs at least one point, as a flat array")
    errors = None if se is None else np.ascontiguousarray(se, dtype=np.float64)
    if errors is not None and errors.shape != points.shape:
        raise ValueError(f"{errors.size} standard errors for {points.size} points")
    offsets: dict[int, float] = {}
    if hosts is not None and points.min() > 0:
        points, offsets = remove_host_offsets(points, np.asarray(hosts))
    count, changes, levels, facts = run(points, errors, _c_settings(settings))
    if count == NO_MEMORY:
        raise MemoryError(f"no memory to look at {points.size} points")
    if count <= BAD_POINT:
        raise ValueError(_refusal(points, errors, BAD_POINT - count))
    slope, n = facts.slope, points.size
    return Detection(
        changes=tuple(_change(c, n=n, slope=slope) for c in changes[:count]),
        n=n,
        noise_floor=facts.noise_sd,
        autocorrelation=facts.rho,
        smallest_detectable=_smallest_detectable(levels[count], facts, n, settings),
        levels=tuple(_level(one, slope) for one in levels[: count + 1]),
        bimodal=_modes(facts),
        drift=DriftFinding(math.expm1(slope), math.expm1(slope * (n - 1)), facts.slope_z) if slope else None,
        host_offsets=offsets,
    )


def _change(c: CChange, *, n: int, slope: float) -> Change:
    effect = c.after - c.before
    trend = slope * c.index
    places = max(1.0, n / min(c.n_before, c.n_after))
    return Change(
        index=c.index,
        before=math.exp(c.before + trend),
        after=math.exp(c.after + trend),
        effect=math.expm1(effect),
        effect_low=math.expm1(effect - 1.96 * c.se),
        effect_high=math.expm1(effect + 1.96 * c.se),
        z=math.copysign(c.z, effect),
        p_value=min(1.0, places * math.erfc(c.z / math.sqrt(2))),
        n_before=c.n_before,
        n_after=c.n_after,
        over_line=c.over_line,
    )


def _level(one: CLevel, slope: float) -> Level:
    mean = math.exp(one.at + slope * (one.start + 0.5 * (one.n - 1)))
    return Level(one.start, one.n, mean, mean * one.se)


def _modes(facts: CFacts) -> ModeFinding | None:
    if facts.mode_gap <= 0:
        return None
    return ModeFinding(math.expm1(facts.mode_gap), facts.mode_share, facts.mode_separation)


def _smallest_detectable(base: CLevel, facts: CFacts, n: int, settings: DetectorSettings) -> float:
    """Step that `NEW_POINTS` points would show in four cases of five: (threshold + 0.84) x standard error."""
    need = math.sqrt(settings.gate + settings.scan * math.log(max(1.0, n / NEW_POINTS))) + 0.84
    inflation = (1 + facts.rho) / (1 - facts.rho)
    step = need * facts.noise_sd * math.sqrt(inflation * (1 / base.n + 1 / NEW_POINTS))
    return max(math.expm1(min(step, 20.0)), settings.min_effect)


def detect_many(series: Sequence[ArrayLike], *, settings: DetectorSettings = DEFAULT) -> list[Detection]:
    """Run `detect` on each of many series; a series never influences another."""
    return [detect(values, settings=settings) for values in series]


def detect_tail(
    values: ArrayLike,
    *,
    start: int = 0,
    se: ArrayLike | None = None,
    hosts: ArrayLike | None = None,
    settings: DetectorSettings = TAIL,
) -> Detection:
    """Run `detect` on the points from `start` (the last confirmed change) on.

    At most the newest `TAIL_POINTS` are looked at: bounded work for one more point. Indices in the answer
    count from the first point of `values`.
    """
    points = np.asarray(values, dtype=np.float64)
    first = max(start, points.size - TAIL_POINTS, 0)
    tail = detect(
        points[first:],
        se=None if se is None else np.asarray(se)[first:],
        hosts=None if hosts is None else np.asarray(hosts)[first:],
        settings=settings,
    )
    return _shifted(tail, first) if first else tail


def new_alarms(found: Detection, known: Iterable[int]) -> tuple[Change, ...]:
    """Return the changes that somebody should hear of now: not known yet, seen in time, and no trend.

    `known` are the indices alarmed before. A false step through a trend or correlated noise typically lies far back
    when it first passes the test, and a line does nearly as well; a true one of two sd or more is seen within twenty
    points, at the end of the series, where a line cannot follow it.
    """
    seen = list(known)
    return tuple(
        change
        for change in found.changes
        if found.n - change.index <= LATE_POINTS
        and change.over_line >= OVER_LINE
        and all(abs(change.index - i) > SAME_ALARM_POINTS for i in seen)
    )


def _shifted(found: Detection, by: int) -> Detection:
    return replace(
        found,
        changes=tuple(replace(c, index=c.index + by) for c in found.changes),
        levels=tuple(replace(level, start=level.start + by) for level in found.levels),
        n=found.n + by,
    )
