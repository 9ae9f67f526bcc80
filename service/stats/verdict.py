"""Verdicts: what a change in a series, or between two sides, means for the people who own the kernel.

Pure. The order of the questions matters and is the order of the code: may the two sides be compared at all; can the
value be true; did the surroundings move as well; is it a mode or a trend; and only then how large the step is and in
which direction. Every verdict carries its reason as a sentence. The kinds are explained in README.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from service.stats.changepoint import Change, Detection, Level


class Verdict(StrEnum):
    """What is said about a series or a comparison."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    NO_CHANGE = "no_change"
    CANNOT_TELL = "cannot_tell"
    ENVIRONMENT = "environment"
    BIMODAL = "bimodal"
    DRIFT = "drift"
    IMPLAUSIBLE = "implausible"
    NOT_COMPARABLE = "not_comparable"


class Better(StrEnum):
    """Which direction of a metric is good."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Floors:
    """Smallest effects worth a verdict; a workload may have its own."""

    min_effect: float = 0.01
    """Relative. The end of the 95 % interval that is nearer to zero must lie beyond it."""
    noise_multiple: float = 2.0
    """An effect must also exceed this many standard errors of the baseline."""
    timer_step: float = 0.0
    """Resolution of the timer, in the unit of the values."""
    timer_steps: float = 2.0
    """An effect smaller than this many timer steps is below what the clock can tell."""
    blind_above: float = 0.05
    """When no effect below this one could have been seen, silence is "cannot tell", not "no change"."""


@dataclass(frozen=True, slots=True)
class Control:
    """Something that the commit cannot have changed: a canary, the vendor's library, an untouched reference."""

    name: str
    effect: float
    se: float

    def moved(self, floor: float) -> bool:
        """Whether the control itself moved, beyond its own noise and the floor."""
        return abs(self.effect) > max(floor, 3 * self.se)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else is known about the two sides of a change."""

    differing: tuple[str, ...] = ()
    """What differs between the sides and makes them two series: device model, unit, benchmark version, epoch."""
    controls: tuple[Control, ...] = ()
    families_moved: float = 0.0
    """Share of unrelated kernel families that moved at the same commit."""
    follows: tuple[str, ...] = ()
    """Facts of the machine that changed at the same point: host, driver, clocks."""
    bound: float | None = None
    """Best value that the device can physically reach, in the unit of the values."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, its reason, and the numbers it rests on (relative effects; positive = value went up)."""

    verdict: Verdict
    reason: str
    effect: float = 0.0
    effect_low: float = 0.0
    effect_high: float = 0.0
    baseline: Level | None = None
    change: Change | None = None
    also: tuple[Verdict, ...] = field(default=())
    """Further findings that do not decide."""


FAMILIES_LIMIT = 0.30
"""A commit that moves more than this share of unrelated families is an event of the environment."""


def judge(
    found: Detection,
    *,
    better: Better,
    floors: Floors | None = None,
    surroundings: Surroundings | None = None,
    open_since: int | None = None,
) -> Judgement:
    """Judge where a series stands now, from its `Detection`.

    The baseline is the last stable segment before the latest change; while a regression is open (`open_since` = index
    of its first point) it stays the segment before that, however long the regression lasts. Steps that are small one
    by one are caught by comparing with the best stable segment as well.
    """
    floors, around = floors or Floors(), surroundings or Surroundings()
    current = found.last_level
    outside = refusal(around, current.mean, better)
    if outside is not None:
        return outside
    baseline, change = _baseline(found, open_since)
    also = (Verdict.BIMODAL,) if found.bimodal is not None else ()
    if baseline is None:
        return _without_step(found, floors, also)
    effect, low, high = _between(baseline, current)
    small = _too_small(effect, low, high, baseline, floors)
    if small:
        best = _best_before(found, better, current)
        if best is not None:
            total, total_low, total_high = _between(best, current)
            if (
                not _too_small(total, total_low, total_high, best, floors)
                and by_direction(total, better) is Verdict.REGRESSION
            ):
                reason = f"steps that add up: {total:+.1%} against the best stable level, none of them large alone"
                return Judgement(Verdict.REGRESSION, reason, total, total_low, total_high, best, change, also)
        return Judgement(Verdict.NO_CHANGE, small, effect, low, high, baseline, change, also)
    moved = environment_reason(around, effect, floors)
    if moved is not None:
        return Judgement(Verdict.ENVIRONMENT, moved, effect, low, high, baseline, change, also)
    verdict = by_direction(effect, better)
    since = " since the regression opened" if open_since is not None else ""
    reason = f"{effect:+.1%} ({low:+.1%} to {high:+.1%}) against {baseline.n} stable points{since}"
    return Judgement(verdict, reason, effect, low, high, baseline, change, also)


def refusal(around: Surroundings, value: float, better: Better) -> Judgement | None:
    """Answer the questions that come before any statistics: may the sides be compared, can the value be true."""
    if around.differing:
        return Judgement(Verdict.NOT_COMPARABLE, "the sides differ in " + ", ".join(around.differing))
    if around.bound is not None:
        beyond = value < around.bound if better is Better.LOWER else value > around.bound
        if beyond:
            reason = f"{value:.4g} is better than the device can physically reach ({around.bound:.4g})"
            return Judgement(Verdict.IMPLAUSIBLE, reason)
    return None


def _baseline(found: Detection, open_since: int | None) -> tuple[Level | None, Change | None]:
    if open_since is not None:
        before = [
            level for level in found.levels if level.start + level.n <= open_since + 1 and level.start < open_since
        ]
        opening = [c for c in found.changes if abs(c.index - open_since) <= 1]
        if before:
            return before[-1], opening[0] if opening else None
    if not found.changes:
        return None, None
    return found.levels[-2], found.changes[-1]


def _without_step(found: Detection, floors: Floors, also: tuple[Verdict, ...]) -> Judgement:
    level = found.last_level
    if found.drift is not None and abs(found.drift.total) > floors.min_effect:
        reason = f"a straight trend of {found.drift.total:+.1%} over {found.n} points, no step"
        return Judgement(Verdict.DRIFT, reason, found.drift.total, baseline=level, also=also)
    if found.smallest_detectable > floors.blind_above:
        reason = (
            f"too noisy: only steps above {_size(found.smallest_detectable)} would be seen "
            f"(noise of {_size(found.noise_floor)} a point over {found.n} points)"
        )
        return Judgement(Verdict.CANNOT_TELL, reason, baseline=level, also=also)
    reason = f"no step in {found.n} points; one of {found.smallest_detectable:.1%} would have been seen"
    return Judgement(Verdict.NO_CHANGE, reason, baseline=level, also=also)


def _size(share: float) -> str:
    """A share as people say it: 4.2 %, but 262 %."""
    return f"{share * 100:.0f} %" if share >= 1 else f"{share * 100:.1f} %"


def _between(before: Level, after: Level) -> tuple[float, float, float]:
    log_effect = math.log(after.mean / before.mean)
    se = math.hypot(before.se / before.mean, after.se / after.mean)
    return math.expm1(log_effect), math.expm1(log_effect - 1.96 * se), math.expm1(log_effect + 1.96 * se)


def _too_small(effect: float, low: float, high: float, baseline: Level, floors: Floors) -> str:
    """Say why an effect is not worth a verdict, or nothing."""
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    need = max(floors.min_effect, floors.noise_multiple * baseline.se / baseline.mean)
    if nearest <= need:
        return f"{effect:+.2%} ({low:+.2%} to {high:+.2%}) does not clear the floor of {need:.2%}"
    if abs(effect) * baseline.mean <= floors.timer_steps * floors.timer_step:
        return f"{effect:+.2%} is less than {floors.timer_steps:g} steps of the timer"
    return ""


def _best_before(found: Detection, better: Better, current: Level) -> Level | None:
    stable = [level for level in found.levels if level.n >= 3 and level.start < current.start]
    if not stable:
        return None
    return (min if better is Better.LOWER else max)(stable, key=lambda level: level.mean)


def environment_reason(around: Surroundings, effect: float, floors: Floors) -> str | None:
    """Say what else moved with the value and takes the blame from the commit, or nothing."""
    for control in around.controls:
        if control.moved(floors.min_effect) and (control.effect > 0) == (effect > 0):
            return f"the control {control.name} moved as well ({control.effect:+.1%})"
    if around.families_moved > FAMILIES_LIMIT:
        return f"{around.families_moved:.0%} of unrelated families moved at this commit"
    if around.follows:
        return "the move came with a change of " + ", ".join(around.follows)
    return None


def by_direction(effect: float, better: Better) -> Verdict:
    """Return regression or improvement."""
    worse = effect > 0 if better is Better.LOWER else effect < 0
    return Verdict.REGRESSION if worse else Verdict.IMPROVEMENT


def follows_host(hosts: Sequence[int], index: int) -> bool:
    """Return whether the hosts before and from `index` on are two disjoint sets: a move there may be the machine's."""
    return 0 < index < len(hosts) and set(hosts[:index]).isdisjoint(hosts[index:])
