"""How well each hypothesis explains the times.

Model: log time = block offset (free) + level of the commit + own offset of its build + noise.  Given weights of the
runs, all data about the levels is a quadratic form: an information matrix and a vector.  A hypothesis says that the
levels are a sum of at most three steps whose sizes have a Gaussian prior, so its marginal likelihood is closed-form
(Bishop, Pattern Recognition and Machine Learning, ch. 3.5).  Only the *gaps* between measured commits matter: all
hypotheses with their steps in the same gaps have the same likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from service.stats.bisect.drift import Offsets
from service.stats.bisect.evidence import Floats, Ints


@dataclass(frozen=True, slots=True)
class Information:
    """What the runs say about the measured levels: exp(-0.5 l'Al + h'l), up to a constant."""

    matrix: Floats
    vector: Floats


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """Every arrangement of steps in the gaps; `first` and `second` are gap numbers, -1 for none.

    `closes` is the gap in which a temporary regression ends: its step is +first, -closes, and second lasts.
    """

    first: Ints
    second: Ints
    closes: Ints

    def of(self, keep: Ints) -> Hypotheses:
        """Some of them."""
        return Hypotheses(self.first[keep], self.second[keep], self.closes[keep])

    @property
    def singles(self) -> int:
        """How many hypotheses have one step only; they come first."""
        return int(np.argmax(self.second >= 0)) if (self.second >= 0).any() else len(self.first)


@dataclass(frozen=True, slots=True)
class RunSums:
    """(blocks, levels) sums of the run weights and of the weighted log times."""

    mass: Floats
    value: Floats
    variance: float

    @classmethod
    def of(cls, *, weight: Floats, log_s: Floats, level: Ints, block: Ints, levels: int, variance: float) -> RunSums:
        """Add the runs up."""
        blocks = int(block.max()) + 1 if len(block) else 0
        key = block * levels + level
        mass, value = (np.bincount(key, v, blocks * levels).astype(float) for v in (weight, weight * log_s))
        return cls(mass.reshape(blocks, levels), value.reshape(blocks, levels), variance)

    def within_blocks(self) -> Information:
        """Free block offsets: sum over blocks of diag(W) - W W'/sum(W)."""
        total = np.maximum(self.mass.sum(axis=1), 1e-12)
        matrix = np.diag(self.mass.sum(axis=0)) - (self.mass / total[:, None]).T @ self.mass
        vector = self.value.sum(axis=0) - self.mass.T @ (self.value.sum(axis=1) / total)
        return Information(matrix / self.variance, vector / self.variance)

    def with_offsets(self, prior: Offsets) -> tuple[Information, float]:
        """Block offsets of a known prior; also the log evidence of that prior at zero levels."""
        total, offset = self.mass.sum(axis=1), self.value.sum(axis=1)
        mix = np.eye(len(total)) + prior.covariance * total[None, :]
        spread = np.linalg.solve(mix, prior.covariance)
        matrix = np.diag(self.mass.sum(axis=0)) - self.mass.T @ spread @ self.mass
        vector = self.value.sum(axis=0) - self.mass.T @ (spread @ offset)
        fitted = 0.5 * float(offset @ spread @ offset) / self.variance
        log_evidence = fitted - 0.5 * float(np.linalg.slogdet(mix)[1])
        return Information(matrix / self.variance, vector / self.variance), log_evidence


def with_build_offsets(info: Information, offset_variance: float) -> Information:
    """Integrate out each build's own offset N(0, offset_variance)."""
    if offset_variance <= 0:
        return info
    mix = np.eye(len(info.vector)) + offset_variance * info.matrix
    return Information(np.linalg.solve(mix, info.matrix), np.linalg.solve(mix, info.vector))


@lru_cache(maxsize=64)
def arrangements(gaps: int) -> Hypotheses:
    """One step; two steps; a step that was taken back beside a lasting one."""
    single = [(a, -1, -1) for a in range(gaps)]
    pair = [(a, b, -1) for a in range(gaps) for b in range(a + 1, gaps)]
    back = [(a, k, b) for a, b, _ in pair for k in (*range(a + 1), *range(b, gaps))]
    table = np.array(single + pair + back, dtype=np.int64)
    return Hypotheses(table[:, 0], table[:, 1], table[:, 2])


def evidence_of_steps(
    info: Information, hypotheses: Hypotheses, *, means: Floats, variances: Floats
) -> tuple[Floats, Floats, Floats]:
    """Log marginal likelihood against "no step", posterior means and variances of the two sizes.

    `means` and `variances` have shape (H, 2): the prior of the first and of the second size; a second variance of 0
    means that there is no second step.
    """
    suffix = np.cumsum(np.cumsum(info.matrix[::-1, ::-1], axis=0), axis=1)[::-1, ::-1]
    vector = np.cumsum(info.vector[::-1])[::-1]
    gap_matrix, gap_vector = suffix[1:, 1:], vector[1:]
    a, k, b = hypotheses.first, hypotheses.second, hypotheses.closes
    back = b >= 0
    two = k >= 0
    m11 = gap_matrix[a, a] + back * (gap_matrix[b, b] - 2 * gap_matrix[a, b])
    m12 = two * (gap_matrix[a, k] - back * gap_matrix[b, k])
    m22 = two * gap_matrix[k, k]
    v1 = gap_vector[a] - back * gap_vector[b]
    v2 = two * gap_vector[k]
    precision = np.where(variances > 0, 1.0 / np.where(variances > 0, variances, 1.0), 1.0)
    prior_mean = np.where(variances > 0, means, 0.0)
    p11, p22 = m11 + precision[:, 0], m22 + precision[:, 1]
    z1, z2 = v1 + precision[:, 0] * prior_mean[:, 0], v2 + precision[:, 1] * prior_mean[:, 1]
    det = p11 * p22 - m12 * m12
    t1, t2 = (p22 * z1 - m12 * z2) / det, (p11 * z2 - m12 * z1) / det
    log_ml = 0.5 * (t1 * z1 + t2 * z2 - (precision * prior_mean**2).sum(axis=1))
    log_ml -= 0.5 * np.log(det / (precision[:, 0] * precision[:, 1]))
    return log_ml, np.stack([t1, t2], axis=1), np.stack([p22 / det, p11 / det], axis=1)
