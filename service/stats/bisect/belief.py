"""What to believe after a log: a pure function of the problem and the log.

Runs are re-weighted as in a Student-t regression (Lange, Little and Taylor, 1989): the fit is the posterior mean, and
a run far from it counts less.  The noise comes from the residuals, with the detector's figure as a prior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.stats.bisect.evidence import Evidence, Floats, Ints, collect
from service.stats.bisect.likelihood import (
    Hypotheses,
    Information,
    arrangements,
    evidence_of_steps,
    information,
    with_build_offsets,
)
from service.stats.bisect.robust import STUDENT_DF, Runs, fit
from service.stats.bisect.types import BisectProblem, Failure, Observation

PRIOR_NONE = 0.12
PRIOR_NONE_CHANGED = 0.5  # the environment changed with the alarm
PRIOR_TWO = 0.08
PRIOR_BACK = 0.06
SIZE_SPREAD = 0.2  # a step's size may differ from the alarm's by this share
BACK_SPREAD = 0.5
CORE_SHARE = 0.85  # scale of the Student core over the sd of all runs
NOISE_PRIOR_RUNS = 12.0
ROUNDS = 3
PLAUSIBLE = 96  # arrangements that get their own robust fit


@dataclass(frozen=True, slots=True)
class Belief:
    """Posterior over arrangements of steps between the measured commits."""

    evidence: Evidence
    levels: Ints  # the measured groups, with both ends, ascending; gap i lies between levels i and i+1
    hypotheses: Hypotheses
    probability: Floats  # per arrangement; sums to 1 - none
    sizes: Floats  # (H, 2) posterior mean sizes
    none: float
    gap_mass: Floats  # P(a step up in the gap)
    gap_size: Floats  # its expected size, given that there is one
    gap_size_sd: Floats
    gap_weight: Floats
    information: Information
    weight: Floats
    scale: float  # of the Student core
    effect: float
    effect_sd: float

    @property
    def level_of_run(self) -> Ints:
        """Index into `levels` of every run."""
        return np.searchsorted(self.levels, self.evidence.group).astype(np.int64)

    @property
    def run_sd(self) -> float:
        """The sd of a Gaussian run that would tell as much as one of these."""
        return self.scale * math.sqrt((STUDENT_DF + 3.0) / (STUDENT_DF + 1.0))

    def level_means(self) -> Floats:
        """(H, levels) what each arrangement expects, with the good end at 0."""
        return np.concatenate([np.zeros((len(self.probability), 1)), np.cumsum(self._steps(), axis=1)], axis=1)

    def _steps(self) -> Floats:
        return _step_table(self.hypotheses, self.sizes, len(self.levels) - 1)


def believe(problem: BisectProblem, log: Sequence[Observation | Failure]) -> Belief:
    """The posterior of `log`."""
    return believe_evidence(problem, collect(problem, log))


def believe_evidence(problem: BisectProblem, evidence: Evidence) -> Belief:
    """Alternate between belief, run weights and noise, a fixed number of rounds."""
    groups = evidence.groups
    levels = np.unique(np.concatenate([evidence.group, [0, groups.count - 1]])).astype(np.int64)
    level = np.searchsorted(levels, evidence.group).astype(np.int64)
    count = len(levels)
    cumulative = np.concatenate([np.cumsum(groups.weight), [1.0]])
    gap_weight = np.diff(cumulative[levels])
    hypotheses = arrangements(count - 1)
    log_prior = np.log(_prior(problem, hypotheses, gap_weight, _same_gap(groups.weight, levels)) + 1e-300)
    none_prior = PRIOR_NONE_CHANGED if problem.environment_changed else PRIOR_NONE
    means, variances = _size_prior(problem, hypotheses)
    offset_variance = problem.build_offset_sd**2

    prior_variance = (CORE_SHARE * problem.noise_sd) ** 2
    variance = prior_variance
    runs = len(evidence.log_s)
    blocks = int(evidence.block.max()) + 1 if runs else 0
    weight = np.ones(runs)
    for _ in range(ROUNDS):
        raw = information(
            weight=weight,
            log_s=evidence.log_s,
            level=level,
            block=evidence.block,
            levels=count,
            variance=variance,
        )
        info = with_build_offsets(raw, offset_variance)
        log_ml, sizes, size_variances = evidence_of_steps(info, hypotheses, means=means, variances=variances)
        joint = log_ml + log_prior + math.log(1 - none_prior)
        top = max(float(joint.max()), math.log(none_prior))
        probability = np.exp(joint - top)
        none = math.exp(math.log(none_prior) - top)
        total = float(probability.sum()) + none
        probability, none = probability / total, none / total
        if not runs:
            break
        steps = _step_table(hypotheses, sizes, count - 1)
        table = np.concatenate([np.zeros((len(steps), 1)), np.cumsum(steps, axis=1)], axis=1)
        mean = probability @ table
        spread = np.maximum(probability @ table**2 - mean**2, 0.0)
        if offset_variance > 0:
            inverse = np.linalg.inv(raw.matrix + np.eye(count) / offset_variance)
            mean = mean + inverse @ (raw.vector - raw.matrix @ mean)
        residual = evidence.log_s - mean[level]
        mass = np.maximum(np.bincount(evidence.block, weight, blocks), 1e-12)
        offset = np.bincount(evidence.block, weight * residual, blocks) / mass
        square = (residual - offset[evidence.block]) ** 2 + 0.25 * spread[level]
        variance = (NOISE_PRIOR_RUNS * prior_variance + float(weight @ square)) / (
            NOISE_PRIOR_RUNS + max(runs - blocks, 0)
        )
        weight = (STUDENT_DF + 1.0) / (STUDENT_DF + square / variance)

    if runs and offset_variance <= 0:
        keep = np.unique(
            np.concatenate([np.arange(hypotheses.singles), np.argsort(-probability)[:PLAUSIBLE]])
        )
        hypotheses = Hypotheses(hypotheses.first[keep], hypotheses.second[keep], hypotheses.closes[keep])
        robust = fit(
            Runs(evidence.log_s, level, evidence.block),
            hypotheses,
            means=means[keep],
            variances=variances[keep],
            log_prior=log_prior[keep] + math.log(1 - none_prior),
            none_log_prior=math.log(none_prior),
            start=(sizes[keep], variance),
            noise_prior=(prior_variance, NOISE_PRIOR_RUNS),
        )
        joint = robust.log_ml + log_prior[keep] + math.log(1 - none_prior)
        top = max(float(joint.max()), math.log(none_prior))
        probability = np.exp(joint - top)
        none = math.exp(math.log(none_prior) - top)
        total = float(probability.sum()) + none
        probability, none = probability / total, none / total
        sizes, size_variances = robust.sizes, robust.size_variances
        weight, variance = robust.weight, robust.variance
        info = information(
            weight=weight,
            log_s=evidence.log_s,
            level=level,
            block=evidence.block,
            levels=count,
            variance=variance,
        )
    gap_mass, gap_size, gap_size_sd = _gap_steps(hypotheses, probability, sizes, size_variances, count - 1)
    effect, effect_sd = _net_effect(hypotheses, probability, none, sizes, size_variances)
    return Belief(
        evidence=evidence,
        levels=levels,
        hypotheses=hypotheses,
        probability=probability,
        sizes=sizes,
        none=none,
        gap_mass=gap_mass,
        gap_size=gap_size,
        gap_size_sd=gap_size_sd,
        gap_weight=gap_weight,
        information=info,
        weight=weight,
        scale=math.sqrt(variance),
        effect=effect,
        effect_sd=effect_sd,
    )


def _same_gap(weight: Floats, levels: Ints) -> Floats:
    """P(two commits drawn by weight, not the same, fall in this gap)."""
    square = np.concatenate([np.cumsum(weight**2), [1.0]])
    own = np.diff(square[levels])
    gap = np.diff(np.cumsum(weight)[levels])
    return np.maximum(gap**2 - own, 0.0) / max(1.0 - float((weight**2).sum()), 1e-9)


def _prior(problem: BisectProblem, hypotheses: Hypotheses, gap: Floats, same: Floats) -> Floats:
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


def _step_table(hypotheses: Hypotheses, sizes: Floats, gaps: int) -> Floats:
    """(H, gaps) expected step of each arrangement in each gap."""
    table = np.zeros((len(sizes), gaps))
    rows = np.arange(len(sizes))
    np.add.at(table, (rows, hypotheses.first), sizes[:, 0])
    two = hypotheses.second >= 0
    np.add.at(table, (rows[two], hypotheses.second[two]), sizes[two, 1])
    back = hypotheses.closes >= 0
    np.add.at(table, (rows[back], hypotheses.closes[back]), -sizes[back, 0])
    return table


def _gap_steps(
    hypotheses: Hypotheses, probability: Floats, sizes: Floats, variances: Floats, gaps: int
) -> tuple[Floats, Floats, Floats]:
    """P(step up), its mean and sd, per gap."""
    two = hypotheses.second >= 0
    gap = np.concatenate([hypotheses.first, hypotheses.second[two]])
    share = np.concatenate([probability, probability[two]])
    size = np.concatenate([sizes[:, 0], sizes[two, 1]])
    variance = np.concatenate([variances[:, 0], variances[two, 1]])
    share = share * (size > 0)
    mass = np.bincount(gap, share, gaps)
    safe = np.maximum(mass, 1e-300)
    mean = np.bincount(gap, share * size, gaps) / safe
    second = np.bincount(gap, share * (size**2 + variance), gaps) / safe
    return np.minimum(mass, 1.0), mean, np.sqrt(np.maximum(second - mean**2, 0.0))


def _net_effect(
    hypotheses: Hypotheses, probability: Floats, none: float, sizes: Floats, variances: Floats
) -> tuple[float, float]:
    """Expected difference of the ends, and its sd."""
    single, back = hypotheses.second < 0, hypotheses.closes >= 0
    net = np.where(single, sizes[:, 0], np.where(back, sizes[:, 1], sizes.sum(axis=1)))
    spread = np.where(single, variances[:, 0], np.where(back, variances[:, 1], variances.sum(axis=1)))
    mean = float(probability @ net)
    second = float(probability @ (net**2 + spread))
    return mean, math.sqrt(max(second - mean**2, 0.0)) if none < 1 else 0.0
