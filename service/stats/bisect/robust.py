"""The likelihood of each plausible arrangement with its own weights for the runs.

One outlier must not decide, and what is an outlier depends on the arrangement: a slow run of a commit is ordinary if
the step lies before it.  So each arrangement gets its own Student-t regression (Lange, Little and Taylor, 1989) of the
runs on step sizes, block offsets and build offsets, and a Laplace approximation of its marginal likelihood (Tierney
and Kadane, 1986).  All share one bound of the curvature, so a step never overshoots (Hunter and Lange, 2004).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.stats.bisect.drift import Offsets
from service.stats.bisect.evidence import Floats, Ints
from service.stats.bisect.likelihood import Hypotheses
from service.stats.bisect.prior import Prior

ITERATIONS = 8
STUDENT_DF = 5.0


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs in batch order: signed log time, measured level and block of each."""

    log_s: Floats
    level: Ints
    block: Ints


@dataclass(frozen=True, slots=True)
class Effects:
    """Random effects of the runs: block offsets, then (where builds differ) an own offset of each level."""

    starts: Ints
    block: Ints
    one_hot: Floats  # (runs, levels), or (runs, 0)
    level: Ints
    inverse: Floats  # prior precision, in units of 1/noise variance
    bound: Floats  # inverse of (largest data precision + prior precision)

    def sums(self, values: Floats) -> Floats:
        """(H, runs) -> (H, effects)."""
        blocks = np.add.reduceat(values, self.starts, axis=1)
        return np.concatenate([blocks, values @ self.one_hot], axis=1)

    def spread(self, effects: Floats) -> Floats:
        """(H, effects) -> (H, runs)."""
        out = effects[:, self.block]
        if self.one_hot.shape[1]:
            out = out + effects[:, len(self.starts) + self.level]
        return np.asarray(out)


@dataclass(frozen=True, slots=True)
class RobustFit:
    """Per arrangement: log joint with its prior ("none" last), sizes, their variances; then the shared noise."""

    log_joint: Floats
    sizes: Floats
    size_variances: Floats
    weight: Floats  # of the runs, averaged over the arrangements
    variance: float


def effects_of(runs: Runs, prior: Offsets, build_offset_variance: float) -> Effects:
    """Random effects for these runs; `build_offset_variance` is in units of the noise variance."""
    starts = np.flatnonzero(np.diff(runs.block, prepend=-1))
    levels = int(runs.level.max()) + 1 if build_offset_variance > 0 else 0
    one_hot = (runs.level[:, None] == np.arange(levels)[None, :]).astype(np.float64)
    count = len(starts)
    inverse = np.zeros((count + levels, count + levels))
    inverse[:count, :count] = np.linalg.inv(prior.covariance)
    index = np.arange(count, count + levels)
    if levels:
        inverse[index, index] = 1.0 / build_offset_variance
    counts = np.zeros_like(inverse)
    counts[:count, :count] = np.diag(np.diff(np.append(starts, len(runs.block))))
    if levels:
        table = np.bincount(runs.block * levels + runs.level, minlength=count * levels).reshape(count, levels)
        counts[:count, count:], counts[count:, :count] = table, table.T
        counts[index, index] = table.sum(axis=0)
    bound = np.linalg.inv((STUDENT_DF + 1.0) / STUDENT_DF * counts + inverse)
    return Effects(starts, runs.block, one_hot, runs.level, inverse, bound)


def fit(
    runs: Runs,
    hypotheses: Hypotheses,
    prior: Prior,
    effects: Effects,
    *,
    sizes: Floats,
    variance: float,
    noise_prior: tuple[float, float],
) -> RobustFit:
    """Fit all `hypotheses` and "none" together, from these `sizes`; `noise_prior` is (variance, runs)."""
    first, second = _design(runs.level, hypotheses)
    free = np.concatenate([prior.variances, np.zeros((1, 2))]) > 0
    precision = np.where(free, 1.0 / np.where(free, np.concatenate([prior.variances, np.ones((1, 2))]), 1.0), 1.0)
    mean = np.where(free, np.concatenate([prior.means, np.zeros((1, 2))]), 0.0)
    sizes = np.concatenate([sizes, np.zeros((1, 2))])
    freedom = noise_prior[1] + max(
        len(runs.log_s) - len(effects.bound) + float((effects.bound * effects.inverse).sum()), 0.0
    )
    base = runs.log_s[None, :] - first * sizes[:, :1] - second * sizes[:, 1:]
    offset = effects.sums(base) @ effects.bound * ((STUDENT_DF + 1.0) / STUDENT_DF)
    for _ in range(ITERATIONS):
        residual = base - effects.spread(offset)
        weight = (STUDENT_DF + 1.0) / (STUDENT_DF + residual**2 / variance)
        pull = weight * residual
        inertia = offset @ effects.inverse
        to_offset = effects.sums(pull) - inertia
        wx, wz = weight * first, weight * second
        cross_x, cross_z = effects.sums(wx), effects.sums(wz)
        lean_x, lean_z = cross_x @ effects.bound, cross_z @ effects.bound
        p11 = _dot(wx, first) - _dot(lean_x, cross_x) + variance * precision[:, 0]
        p12 = _dot(wx, second) - _dot(lean_x, cross_z)
        p22 = _dot(wz, second) - _dot(lean_z, cross_z) + variance * precision[:, 1]
        g1 = _dot(pull, first) - _dot(lean_x, to_offset) - variance * precision[:, 0] * (sizes - mean)[:, 0]
        g2 = _dot(pull, second) - _dot(lean_z, to_offset) - variance * precision[:, 1] * (sizes - mean)[:, 1]
        det = p11 * p22 - p12 * p12
        move = np.stack([(p22 * g1 - p12 * g2) / det, (p11 * g2 - p12 * g1) / det], axis=1)
        sizes = sizes + move
        offset = offset + (to_offset - cross_x * move[:, :1] - cross_z * move[:, 1:]) @ effects.bound
        base = runs.log_s[None, :] - first * sizes[:, :1] - second * sizes[:, 1:]
        residual = base - effects.spread(offset)
        log_joint = -0.5 * (STUDENT_DF + 1.0) * np.log1p(residual**2 / (STUDENT_DF * variance)).sum(axis=1)
        log_joint -= 0.5 * _dot(offset @ effects.inverse, offset) / variance
        log_joint -= 0.5 * (precision * (sizes - mean) ** 2).sum(axis=1)
        log_joint -= 0.5 * np.log(det / (variance**2 * precision[:, 0] * precision[:, 1]))
        log_joint += prior.log_prior
        share = np.exp(log_joint - log_joint.max())
        share /= share.sum()
        square = float(share @ _dot(weight * residual, residual))
        previous, variance = variance, (noise_prior[1] * noise_prior[0] + square) / freedom
    spread = previous * np.stack([p22 / det, p11 / det], axis=1)
    return RobustFit(log_joint, sizes[:-1], spread[:-1], share @ weight, variance)


def _dot(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.einsum("hn,hn->h", a, b))


def _design(level: Ints, hypotheses: Hypotheses) -> tuple[Floats, Floats]:
    """(H + 1, runs) how much of the first and the second size each run has; the last row is "none"."""
    after = (level[None, :] > np.arange(int(level.max(initial=0)) + 1)[:, None]).astype(np.float64)
    after = np.concatenate([after, np.zeros((1, len(level)))])  # index -1 is "never"

    def pick(gap: Ints) -> Floats:
        return np.asarray(after[np.where((gap < 0) | (gap >= len(after) - 1), -1, gap)])

    none = np.zeros((1, len(level)))
    first = np.concatenate([pick(hypotheses.first) - pick(hypotheses.closes), none])
    return first, np.concatenate([pick(hypotheses.second), none])
