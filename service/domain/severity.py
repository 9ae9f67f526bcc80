"""Severity: how loudly to say it, from the size of a change, the tier of what changed, and what it does to a model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from service.contract import Tier


class Severity(StrEnum):
    """From a note to an incident."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


ORDER = tuple(Severity)
_STEPS = ((0.30, Severity.CRITICAL), (0.10, Severity.HIGH), (0.05, Severity.MEDIUM))
LOWERED = {Tier.NIGHTLY: 1, Tier.WEEKLY: 2}  # levels, where no model's step is known to feel it
WIDE = 0.25  # of the repository's series: no accident of one shape
STEP_MIN = 0.01  # of a model's step: people feel it


@dataclass(frozen=True, slots=True)
class StepImpact:
    """What a change does to one step of a model; with terms missing the step is a lower bound, so this is an upper."""

    mix: str
    effect: float
    missing: int
    terms: int

    def __str__(self) -> str:
        known = f", of {self.terms - self.missing} of its {self.terms} kernels" if self.missing else ""
        return f"{'at most ' if self.missing else ''}{self.effect * 100:+.1f} % of the step of {self.mix}{known}"


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a change reaches: series of how many, the most watched tier among them, and steps of known models."""

    series: int
    of_series: int
    steps: tuple[StepImpact, ...] = ()
    tier: Tier = Tier.CORE

    @property
    def share(self) -> float:
        """The share of the repository's series."""
        return self.series / self.of_series if self.of_series else 0.0


@dataclass(frozen=True, slots=True)
class Rating:
    """A severity and why it is that."""

    severity: Severity
    reason: str


def severity_of(effect: float) -> Severity:
    """Return the severity of a relative change of its clearest series, by its size alone."""
    size = abs(effect)
    return next((severity for bound, severity in _STEPS if size >= bound), Severity.LOW)


def rate(effect: float, reach: Reach) -> Rating:
    """Return the severity by size, up where it reaches far, down where only rarely measured shapes moved.

    A change that is felt in a model's step goes up and never down: the step is what people wait for.
    """
    base = severity_of(effect)
    size = f"{effect * 100:+.1f} %"
    felt = max(reach.steps, key=lambda step: abs(step.effect), default=None)
    if felt is not None and abs(felt.effect) >= STEP_MIN:
        return Rating(_shift(base, 1), f"{size}, raised: {felt}")
    if felt is None and reach.tier is not Tier.CORE:
        return Rating(_shift(base, -LOWERED[reach.tier]), f"{size}, lowered: only shapes of the {reach.tier} tier")
    if reach.series > 1 and reach.share >= WIDE:
        return Rating(_shift(base, 1), f"{size}, raised: {reach.series} of {reach.of_series} series")
    return Rating(base, f"{size} in {reach.series} of {reach.of_series} series")


def _shift(severity: Severity, levels: int) -> Severity:
    return ORDER[min(max(ORDER.index(severity) + levels, 0), len(ORDER) - 1)]


def at_least(severity: str, floor: str) -> bool:
    """Whether `severity` reaches `floor`."""
    return ORDER.index(Severity(severity)) >= ORDER.index(Severity(floor))


def in_words(severity: str, *, gain: bool) -> str:
    """A severity as people read it: an improvement is nobody's incident, so its size is said instead."""
    return _GAINS[Severity(severity)] if gain else severity


_GAINS = {
    Severity.LOW: "small gain",
    Severity.MEDIUM: "gain",
    Severity.HIGH: "large gain",
    Severity.CRITICAL: "very large gain",
}
