"""Paired comparison of two commits measured interleaved in one run.

The unit of replication is the pair of processes: processes differ by allocations and layout, launches within one do
not, so an interval over launches alarms on identical code in 12-17 % of comparisons and one over pairs in 2-5 %
(Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013, give the argument). Each process gives one
number, the median over its blocks of log(kernel / canary); the effect is the mean of the pairs' differences and its
interval Student's t over pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of one workload of one commit: per block the median seconds, its canary's seconds, and its process."""

    process: Sequence[int]
    median_s: Sequence[float]
    canary_s: Sequence[float]


@dataclass(frozen=True, slots=True)
class PairedEffect:
    """Head over base: `effect` = ratio - 1, with its interval at `confidence`, over `pairs` pairs of processes."""

    effect: float
    low: float
    high: float
    z: float
    p_value: float
    pairs: int
    confidence: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval leaves out "no difference"."""
        return self.low > 0 or self.high < 0


def process_levels(blocks: Blocks) -> dict[int, float]:
    """Return per process the median over its blocks of log(kernel / canary)."""
    groups: dict[int, list[float]] = {}
    for process, kernel, canary in zip(blocks.process, blocks.median_s, blocks.canary_s, strict=True):
        if kernel > 0 and canary > 0:
            groups.setdefault(process, []).append(math.log(kernel / canary))
    return {process: float(np.median(levels)) for process, levels in groups.items()}


def paired_effect(base: Blocks, head: Blocks, *, confidence: float = 0.99) -> PairedEffect | None:
    """Return the effect of head over base, or None when fewer than three pairs of processes exist."""
    left, right = process_levels(base), process_levels(head)
    shared = sorted(left.keys() & right.keys())
    if len(shared) < 3:
        return None
    differences = np.array([right[process] - left[process] for process in shared])
    count = differences.size
    mean = float(differences.mean())
    # One tick of a nanosecond clock on a millisecond kernel is the least spread that can be believed.
    se = max(float(differences.std(ddof=1)) / math.sqrt(count), 1e-6)
    reach = float(stdtrit(count - 1, 0.5 + confidence / 2)) * se
    z = mean / se
    return PairedEffect(
        effect=math.expm1(mean),
        low=math.expm1(mean - reach),
        high=math.expm1(mean + reach),
        z=z,
        p_value=float(2 * stdtr(count - 1, -abs(z))),
        pairs=count,
        confidence=confidence,
    )
