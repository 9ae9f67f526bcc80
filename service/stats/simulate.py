"""Series whose truth is known: what the detector is tested and its alarm rates are measured with.

Noise kinds are those that benchmark histories show: Gaussian, skewed, spiky, two modes, trend, serial correlation,
a scale that changes, a coarse timer. Pure: the generator is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]


class Noise(StrEnum):
    """Kinds of noise, each of unit sd but for the spikes and the trend."""

    GAUSSIAN = "gaussian"
    SKEWED = "skewed"
    SPIKY = "spiky"
    MODES = "modes"
    TREND = "trend"
    CORRELATED = "correlated"
    UNEVEN = "uneven"
    COARSE = "coarse"


def noise(rng: np.random.Generator, kind: Noise, n: int) -> Series:
    """Draw `n` points of noise."""
    z: Series = rng.standard_normal(n)
    match kind:
        case Noise.SKEWED:
            z = (rng.gamma(2.0, 1.0, n) - 2.0) / np.sqrt(2.0)
        case Noise.SPIKY:
            z = z + np.where(rng.random(n) < 0.03, rng.uniform(5, 30, n), 0.0)
        case Noise.MODES:
            share = rng.uniform(0.15, 0.4)
            z = (z + np.where(rng.random(n) < share, 4.0, 0.0)) / np.sqrt(1 + 16 * share * (1 - share))
        case Noise.TREND:
            z = z + np.linspace(0, rng.choice([-1, 1]) * rng.uniform(2, 5), n)
        case Noise.CORRELATED:
            for i in range(1, n):
                z[i] = 0.5 * z[i - 1] + np.sqrt(0.75) * z[i]
        case Noise.UNEVEN:
            cut = int(rng.integers(n // 4, 3 * n // 4 + 1))
            z = z * np.where(np.arange(n) < cut, rng.choice([0.5, 1.0]), rng.choice([1.0, 2.0]))
        case Noise.COARSE:
            z = np.round(z / 1.5) * 1.5
        case Noise.GAUSSIAN:
            pass
    return z


def series(
    rng: np.random.Generator,
    n: int,
    *,
    steps: dict[int, float],
    cv: float,
    kind: Noise = Noise.GAUSSIAN,
    base: float = 1.0,
) -> Series:
    """Make one series: `steps` maps the first point of each new level to its relative effect, `cv` is the noise."""
    level = np.ones(n)
    for at, effect in steps.items():
        level[at:] *= 1 + effect
    values: Series = base * level * (1 + cv * noise(rng, kind, n))
    return values


@dataclass(frozen=True, slots=True)
class Fleet:
    """Histories of many kernels over the same commits, and the commits that truly moved some of them."""

    values: Series
    """Kernels x commits."""
    families: tuple[str, ...]
    """Of each kernel."""
    truth: tuple[int, ...]


def fleet(
    rng: np.random.Generator, *, kernels: int = 2000, commits: int = 200, families: int = 40, true_commits: int = 12
) -> Fleet:
    """Simulate a fleet: every true commit moves a third to all of the kernels of one to three families by 3 to 15 %."""
    names = [f"family-{i % families}" for i in range(kernels)]
    truth: list[int] = []
    while len(truth) < true_commits:
        commit = int(rng.integers(12, commits - 12))
        if all(abs(commit - other) >= 10 for other in truth):
            truth.append(commit)
    steps: list[dict[int, float]] = [{} for _ in range(kernels)]
    for commit in truth:
        touched = {f"family-{i}" for i in rng.choice(families, int(rng.integers(1, 4)), replace=False)}
        effect = float(rng.choice([-1, 1])) * rng.uniform(0.03, 0.15)
        share = rng.uniform(0.33, 1.0)
        for kernel, name in enumerate(names):
            if name in touched and rng.random() < share:
                steps[kernel][commit] = effect * rng.uniform(0.7, 1.3)
    kinds = list(Noise)
    values = np.stack(
        [
            series(rng, commits, steps=steps[k], cv=float(rng.choice([0.003, 0.01, 0.02])), kind=kinds[k % len(kinds)])
            for k in range(kernels)
        ]
    )
    return Fleet(values, tuple(names), tuple(sorted(truth)))
