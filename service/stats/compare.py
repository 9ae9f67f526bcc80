"""Two sides, few figures: the verdict on before and after without a history.

Used for reports of others, for release comparisons and wherever no series exists. Pure.

Statistic: difference of mean logarithms; the variance of one figure is pooled over both sides and shrunk to a prior
of `PRIOR_SD` worth `PRIOR_N` figures (scaled inverse chi-square; Gelman et al., Bayesian Data Analysis, 3rd ed.,
section 3.3), which keeps two equal figures from looking like a quiet machine; interval from Student's t. One figure
a side says nothing about noise: then the floor is `UNKNOWN_NOISE`, or the spread of the samples where it is told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from service.stats.verdict import (
    Better,
    Floors,
    Judgement,
    Surroundings,
    Verdict,
    by_direction,
    environment_reason,
    refusal,
)

PRIOR_SD, PRIOR_N = 0.01, 4.0
UNKNOWN_NOISE = 0.02
MODE_GAP = 4.0
"""Two groups of figures are two modes when their gap is this many times the spread within them."""


def compare(
    before: Sequence[float],
    after: Sequence[float],
    *,
    better: Better,
    sample_sd: float | None = None,
    floors: Floors | None = None,
    surroundings: Surroundings | None = None,
) -> Judgement:
    """Judge `after` against `before`: figures of repeated runs, one unit, all above zero.

    `sample_sd` is the relative sd of single samples behind one figure a side, where that is all that is known. Raises
    ValueError for an empty side or a figure that is no positive number.
    """
    floors, around = floors or Floors(), surroundings or Surroundings()
    left, right = _logs("before", before), _logs("after", after)
    outside = refusal(around, math.exp(float(np.median(right))), better)
    if outside is not None:
        return outside
    effect, low, high = _interval(left, right)
    shift = _mode_shift(left, right)
    if shift:
        return Judgement(Verdict.BIMODAL, shift, effect, low, high)
    step = abs(math.exp(float(left.mean()))) * abs(effect)
    if step <= floors.timer_steps * floors.timer_step:
        return Judgement(Verdict.NO_CHANGE, "less than the timer can tell", effect, low, high)
    single = left.size == right.size == 1
    if single:
        need = max(floors.min_effect, UNKNOWN_NOISE if sample_sd is None else sample_sd)
        seen = abs(effect) > need
        why = f"one figure a side, floor {need:.1%}"
    else:
        nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
        seen = nearest > floors.min_effect
        why = f"{low:+.1%} to {high:+.1%} over {left.size} and {right.size} figures"
    if seen:
        moved = environment_reason(around, effect, floors)
        if moved is not None:
            return Judgement(Verdict.ENVIRONMENT, moved, effect, low, high)
        return Judgement(by_direction(effect, better), f"{effect:+.1%}; {why}", effect, low, high)
    blind = not single and abs(effect) > floors.min_effect and max(abs(low), abs(high)) > floors.blind_above
    verdict = Verdict.CANNOT_TELL if blind else Verdict.NO_CHANGE
    return Judgement(verdict, f"{effect:+.2%} does not stand out; {why}", effect, low, high)


def _logs(side: str, values: Sequence[float]) -> NDArray[np.float64]:
    if not values:
        raise ValueError(f"the side {side!r} has no figures")
    for index, value in enumerate(values):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"figure {index} of {side!r} is {value}: every figure must be finite and above zero")
    return np.log(np.asarray(values, dtype=np.float64))


def _interval(left: NDArray[np.float64], right: NDArray[np.float64]) -> tuple[float, float, float]:
    squares = float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum())
    dof = PRIOR_N + left.size + right.size - 2
    variance = (PRIOR_N * PRIOR_SD**2 + squares) / dof
    difference = float(right.mean() - left.mean())
    reach = float(stdtrit(dof, 0.975)) * math.sqrt(variance * (1 / left.size + 1 / right.size))
    return math.expm1(difference), math.expm1(difference - reach), math.expm1(difference + reach)


def _mode_shift(left: NDArray[np.float64], right: NDArray[np.float64]) -> str:
    """Say how the share of a second mode moved, or nothing.

    One side holds a single level, the other splits at its widest gap into that level and another one.
    """
    for single, mixed, name in ((left, right, "after"), (right, left, "before")):
        if mixed.size < 4 or single.size < 3:
            continue
        ordered = np.sort(mixed)
        gaps = np.diff(ordered)
        cut = int(gaps.argmax()) + 1
        low, high = ordered[:cut], ordered[cut:]
        within = max(float(np.ptp(low)), float(np.ptp(high)), float(np.ptp(single)), PRIOR_SD)
        near, far = (low, high) if abs(low.mean() - single.mean()) < abs(high.mean() - single.mean()) else (high, low)
        if gaps[cut - 1] > MODE_GAP * within and abs(near.mean() - single.mean()) < within:
            gap = math.expm1(abs(float(far.mean() - near.mean())))
            return f"{far.size} of {mixed.size} figures {name} lie on a second level {gap:.0%} away"
    return ""
