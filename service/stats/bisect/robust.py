"""The likelihood of each plausible arrangement with its own weights for the runs.

One outlier must not decide, and what is an outlier depends on the arrangement: a slow run of a commit is ordinary if
the step lies before it.  So each arrangement gets its own Student-t regression (Lange, Little and Taylor, 1989) of the
runs on block offsets and step sizes, and a Laplace approximation of its marginal likelihood (Tierney and Kadane, 1986).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.stats.bisect.evidence import Floats, Ints
from service.stats.bisect.likelihood import Hypotheses

ITERATIONS = 5
STUDENT_DF = 5.0


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs in batch order: signed log time, measured level and block of each."""

    log_s: Floats
    level: Ints
    block: Ints


@dataclass(frozen=True, slots=True)
class RobustFit:
    """Per arrangement: log marginal likelihood against no step, sizes and their variances; then the shared noise."""

    log_ml: Floats
    sizes: Floats
    size_variances: Floats
    weight: Floats  # of the runs, averaged over the arrangements
    variance: float


def fit(
    runs: Runs,
    hypotheses: Hypotheses,
    *,
    means: Floats,
    variances: Floats,
    log_prior: Floats,
    none_log_prior: float,
    start: tuple[Floats, float],
    noise_prior: tuple[float, float],
) -> RobustFit:
    """Fit all `hypotheses` and "none" together; `start` is (sizes, noise variance), `noise_prior` (variance, runs)."""
    starts = np.flatnonzero(np.diff(runs.block, prepend=-1))
    first, second = _design(runs.level, hypotheses)
    count = len(hypotheses.first)
    precision = np.where(variances > 0, 1.0 / np.where(variances > 0, variances, 1.0), 1.0)
    precision = np.concatenate([precision, np.ones((1, 2))])
    prior_mean = np.concatenate([np.where(variances > 0, means, 0.0), np.zeros((1, 2))])
    sizes = np.concatenate([start[0], np.zeros((1, 2))])
    variance = start[1]
    log_prior = np.append(log_prior, none_log_prior)
    residual = _residual(runs, starts, first, second, sizes, np.ones(first.shape))
    for _ in range(ITERATIONS):
        weight = (STUDENT_DF + 1.0) / (STUDENT_DF + residual**2 / variance)
        sizes, spread, log_det = _sizes(
            runs, starts, (first, second), weight / variance, precision, prior_mean
        )
        residual = _residual(runs, starts, first, second, sizes, weight)
        log_ml = -0.5 * (STUDENT_DF + 1.0) * np.log1p(residual**2 / (STUDENT_DF * variance)).sum(axis=1)
        log_ml -= 0.5 * (precision * (sizes - prior_mean) ** 2).sum(axis=1) + 0.5 * log_det
        joint = log_ml + log_prior
        share = np.exp(joint - joint.max())
        share /= share.sum()
        square = float(share @ (weight * residual**2).sum(axis=1))
        freedom = noise_prior[1] + max(len(runs.log_s) - len(starts), 0)
        variance = (noise_prior[1] * noise_prior[0] + square) / freedom
    return RobustFit(
        log_ml=log_ml[:count] - log_ml[count],
        sizes=sizes[:count],
        size_variances=spread[:count],
        weight=share @ weight,
        variance=variance,
    )


def _design(level: Ints, hypotheses: Hypotheses) -> tuple[Floats, Floats]:
    """(H + 1, runs) how much of the first and the second size each run has; the last row is "none"."""
    after = (level[None, :] > np.arange(int(level.max(initial=0)) + 1)[:, None]).astype(np.float64)
    after = np.concatenate([after, np.zeros((1, len(level)))])  # index -1 is "never"

    def pick(gap: Ints) -> Floats:
        return np.asarray(after[np.where((gap < 0) | (gap >= len(after) - 1), -1, gap)])

    none = np.zeros((1, len(level)))
    first = np.concatenate([pick(hypotheses.first) - pick(hypotheses.closes), none])
    return first, np.concatenate([pick(hypotheses.second), none])


def _residual(
    runs: Runs, starts: Ints, first: Floats, second: Floats, sizes: Floats, weight: Floats
) -> Floats:
    """What is left after the steps and each block's weighted mean."""
    left = runs.log_s[None, :] - first * sizes[:, :1] - second * sizes[:, 1:]
    mean = np.add.reduceat(weight * left, starts, axis=1) / np.add.reduceat(weight, starts, axis=1)
    return np.asarray(left - mean[:, runs.block])


def _sizes(
    runs: Runs,
    starts: Ints,
    design: tuple[Floats, Floats],
    weight: Floats,
    precision: Floats,
    prior_mean: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Weighted least squares of the two sizes with free block offsets: means, variances, log det ratio."""
    x, z = design
    mass = np.add.reduceat(weight, starts, axis=1)
    wx, wz, wy = weight * x, weight * z, weight * runs.log_s
    bx, bz, by = (np.add.reduceat(v, starts, axis=1) for v in (wx, wz, wy))

    def inner(a: Floats, b: Floats, block_a: Floats, block_b: Floats) -> Floats:
        return np.asarray(np.einsum("hn,hn->h", a, b) - (block_a * block_b / mass).sum(axis=1))

    y = np.broadcast_to(runs.log_s, x.shape)
    p11 = inner(wx, x, bx, bx) + precision[:, 0]
    p12 = inner(wx, z, bx, bz)
    p22 = inner(wz, z, bz, bz) + precision[:, 1]
    z1 = inner(wx, y, bx, by) + precision[:, 0] * prior_mean[:, 0]
    z2 = inner(wz, y, bz, by) + precision[:, 1] * prior_mean[:, 1]
    det = p11 * p22 - p12 * p12
    sizes = np.stack([(p22 * z1 - p12 * z2) / det, (p11 * z2 - p12 * z1) / det], axis=1)
    spread = np.stack([p22 / det, p11 / det], axis=1)
    return sizes, spread, np.log(det / (precision[:, 0] * precision[:, 1]))


