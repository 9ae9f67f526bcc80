"""What is believed before measuring: how many steps, where, and how large.

The shares come from the project's decision page: no step 0.12 (0.5 when the environment changed with the alarm), two
steps 0.08, a step that was taken back beside a lasting one 0.06.  Sizes are the alarm's, with its error and 20 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from service.stats.bisect.evidence import Floats, Ints
from service.stats.bisect.likelihood import Hypotheses
from service.stats.bisect.types import BisectProblem

PRIOR_NONE = 0.12
PRIOR_NONE_CHANGED = 0.5
PRIOR_TWO = 0.08
PRIOR_BACK = 0.06
SIZE_SPREAD = 0.2
BACK_SPREAD = 0.5


@dataclass(frozen=True, slots=True)
class Prior:
    """Per arrangement: means and variances of its two sizes (H, 2); a variance of 0 means there is no such step.

    `log_prior` has one more entry, for "no step".
    """

    means: Floats
    variances: Floats
    log_prior: Floats

    def of(self, keep: Ints) -> Prior:
        """The prior of some arrangements, and of none."""
        return Prior(self.means[keep], self.variances[keep], np.append(self.log_prior[keep], self.log_prior[-1]))


def prior_of(problem: BisectProblem, hypotheses: Hypotheses, weight: Floats, levels: Ints) -> Prior:
    """The prior of `hypotheses` when `levels` are measured and the commits have these weights."""
    gap = np.diff(np.cumsum(weight)[levels])
    none = PRIOR_NONE_CHANGED if problem.environment_changed else PRIOR_NONE
    share = (1.0 - none) * _arrangement_prior(problem, hypotheses, gap, _same_gap(weight, levels))
    means, variances = _size_prior(problem, hypotheses)
    return Prior(means, variances, np.append(np.log(share + 1e-300), math.log(none)))


def _same_gap(weight: Floats, levels: Ints) -> Floats:
    """P(two commits drawn by weight, not the same, fall in this gap)."""
    square = np.concatenate([np.cumsum(weight**2), [1.0]])
    own = np.diff(square[levels])
    gap = np.diff(np.cumsum(weight)[levels])
    return np.maximum(gap**2 - own, 0.0) / max(1.0 - float((weight**2).sum()), 1e-9)


def _arrangement_prior(problem: BisectProblem, hypotheses: Hypotheses, gap: Floats, same: Floats) -> Floats:
    """Prior of each arrangement given that there is a step; steps that share a gap look like one."""
    a, k, b = hypotheses.first, hypotheses.second, hypotheses.closes
    several = len(problem.candidates) > 1
    two_share = PRIOR_TWO if several else 0.0
    back_share = PRIOR_BACK if len(problem.candidates) >= 4 else 0.0
    single, back = k < 0, b >= 0
    out = np.zeros(len(a))
    hidden = float((gap**2).sum())
    lone = (1.0 - two_share - back_share) * gap + two_share * same
    two_total = max(1.0 - float(same.sum()), 0.0)
    pair = single == back  # neither single nor taken back
    raw_pair = gap[a] * gap[k] * pair
    if raw_pair.sum() > 0:
        out += two_share * two_total * raw_pair / raw_pair.sum()
    half = np.where((k == a) | (k == b), 0.5, 1.0)
    raw_back = 2.0 * gap[a] * gap[b] * gap[k] * half * back
    total_back = float(raw_back.sum()) + hidden
    out += back_share * raw_back / total_back
    lone = lone + back_share * hidden * gap / total_back
    out[single] = lone[a[single]]
    return np.asarray(out / out.sum())


def _size_prior(problem: BisectProblem, hypotheses: Hypotheses) -> tuple[Floats, Floats]:
    """Prior mean and variance of each arrangement's two sizes, from the alarm."""
    size = abs(problem.alarm_effect)
    whole = problem.alarm_effect_se**2 + (SIZE_SPREAD * size) ** 2
    part = 0.5 * whole + (SIZE_SPREAD * size) ** 2
    single, back = hypotheses.second < 0, hypotheses.closes >= 0
    means = np.empty((len(single), 2))
    variances = np.empty((len(single), 2))
    means[:, 0] = np.where(single | back, size, 0.5 * size)
    means[:, 1] = np.where(single, 0.0, np.where(back, size, 0.5 * size))
    variances[:, 0] = np.where(single, whole, np.where(back, (BACK_SPREAD * size) ** 2, part))
    variances[:, 1] = np.where(single, 0.0, np.where(back, whole, part))
    return means, variances
