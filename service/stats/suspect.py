"""Suspicion: whether one new point stands apart from the stable segment before it.

The change-point detector needs three points of a new level. This test needs one, and is therefore only good for
ordering an interleaved re-run of the two commits, never for telling anybody.

Statistic: the predictive z of a normal model with a scaled-inverse-chi-square prior on the variance (Gelman et al.,
Bayesian Data Analysis, 3rd ed., section 3.3): with n baseline points of mean m, the next one is at m with variance
s2 (1 + 1/n) + se2, s2 = (nu0 s0^2 + sum of squares) / (nu0 + n - 1). The prior keeps two lucky points from looking
like a quiet series. The predictive distribution is Student's t with nu0 + n - 1 degrees of freedom, which
gives the p-value. O(n).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from scipy.special import stdtr


@dataclass(frozen=True, slots=True)
class SuspectRule:
    """When a point is suspicious: |z| at least `z` and |effect| at least `min_effect` (both relative)."""

    z: float = 3.5
    min_effect: float = 0.02
    prior_sd: float = 0.01
    prior_n: float = 4.0


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A point that stands apart: `before` and `after` in the series' unit, `effect` = after / before - 1."""

    before: float
    after: float
    effect: float
    sd: float
    z: float
    p_value: float
    """Two-sided, of one point; not corrected for how many points or series were looked at."""


def suspect(
    baseline: Sequence[float], value: float, *, se: float = 0.0, rule: SuspectRule | None = None
) -> Suspicion | None:
    """Return how far `value` stands from `baseline` (both positive, same unit), or None when it does not.

    Raises ValueError for an empty baseline and for values that are not finite and positive.
    """
    rule = rule or SuspectRule()
    if not baseline:
        raise ValueError("a suspicion needs at least one baseline point")
    for number in (*baseline, value):
        if not (math.isfinite(number) and number > 0):
            raise ValueError(f"points must be finite and positive, got {number!r}")
    logs = [math.log(x) for x in baseline]
    centre = median(logs)
    squares = sum((x - centre) ** 2 for x in logs)
    dof = rule.prior_n + len(logs) - 1
    variance = (rule.prior_n * rule.prior_sd**2 + squares) / dof
    shift = math.log(value) - centre
    spread = math.sqrt(variance * (1 + 1 / len(logs)) + se * se)
    effect = math.expm1(shift)
    if abs(shift) < rule.z * spread or abs(effect) < rule.min_effect:
        return None
    z = shift / spread
    p_value = 2.0 * float(stdtr(dof, -abs(z)))
    return Suspicion(before=math.exp(centre), after=value, effect=effect, sd=spread, z=z, p_value=p_value)
