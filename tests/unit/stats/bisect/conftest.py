"""A scripted range: known levels, seeded noise, and a loop that runs what the engine asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from service.stats.bisect import (
    BisectProblem,
    Candidate,
    Failure,
    FailureKind,
    Observation,
    Outcome,
    Probe,
    Wait,
    next_step,
)

Script = Mapping[int, Sequence[float]]


def candidates(n: int, **of_position: Mapping[str, object]) -> tuple[Candidate, ...]:
    extra = {int(k[1:]): dict(v) for k, v in of_position.items()}
    return tuple(Candidate(p, f"sha{p}", **{"cost_build_s": 20.0, **extra.get(p, {})}) for p in range(1, n + 1))


def problem(n: int, **changes: object) -> BisectProblem:
    fields: dict[str, object] = {
        "candidates": candidates(n),
        "alarm_effect": 0.14,
        "alarm_effect_se": 0.01,
        "noise_sd": 0.01,
        "environment_changed": False,
        "budget_s": 1000.0,
        "measure_cost_s": 2.0,
    }
    return BisectProblem(**{**fields, **changes})


@dataclass
class Range:
    """Times of a range: base x exp(steps) x noise; `first` scripts the first noises of a position."""

    steps: Mapping[int, float]
    noise_sd: float = 0.01
    seed: int = 1
    broken: frozenset[int] = frozenset()
    shift: float = 0.0
    slope: float = 0.0  # each run of a batch is slower than the one before
    failing: float = 0.0  # share of the batches that the machine loses
    build_offset_sd: float = 0.0
    first: dict[int, list[float]] = field(default_factory=dict)
    builds: dict[int, str] = field(default_factory=dict)
    asked: list[Probe] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.script = {k: list(v) for k, v in self.first.items()}

    def level(self, position: int) -> float:
        return self.shift + sum(size for at, size in self.steps.items() if at <= position)

    def offset(self, position: int) -> float:
        return float(np.random.default_rng([self.seed, position]).normal(0, self.build_offset_sd or 0.0))

    def run(self, probe: Probe, batch: int) -> list[Observation | Failure]:
        self.asked.append(probe)
        for position in dict.fromkeys(probe.order):
            if position in self.broken:
                return [Failure(position, FailureKind.BUILD)]
        if self.rng.random() < self.failing:
            return [Failure(int(self.rng.choice(probe.order)), FailureKind.INFRASTRUCTURE)]
        out: list[Observation | Failure] = []
        mood = self.rng.normal(0, self.noise_sd)
        for index, position in enumerate(probe.order):
            noise = self.script[position].pop(0) if self.script.get(position) else self.rng.normal(0, self.noise_sd)
            seconds = 1e-3 * math.exp(self.level(position) + self.offset(position) + mood + index * self.slope + noise)
            build = self.builds.get(position, f"build{position}")
            out.append(Observation(batch, "m", "env", position, build, seconds, probe.phase))
        return out


def solve(
    task: BisectProblem, world: Range, *, log: Sequence[Observation | Failure] = (), limit: int = 400
) -> tuple[Outcome, list[Observation | Failure]]:
    entries = list(log)
    for batch in range(limit):
        step = next_step(task, entries)
        assert not isinstance(step, Wait)
        if isinstance(step, Outcome):
            return step, entries
        entries += world.run(step, 1000 + batch)
    raise AssertionError("the engine never came to an end")


@pytest.fixture
def make_problem() -> Callable[..., BisectProblem]:
    return problem


@pytest.fixture
def make_range() -> Callable[..., Range]:
    return Range


@pytest.fixture
def run_to_end() -> Callable[..., tuple[Outcome, list[Observation | Failure]]]:
    return solve
