"""The words of a bisection: candidates, observations, probes, outcomes.

Positions count first-parent commits after the good end: 0 is the good end, 1..n are the candidates and n is the bad
end.  Sizes are differences of log time, so +0.10 is about ten per cent slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Why a position gave no time; none of them is evidence that the commit is slow."""

    BUILD = "build"
    CRASH = "crash"
    INFRASTRUCTURE = "infrastructure"


class Phase(StrEnum):
    """What a batch was measured for."""

    ENDS = "ends"
    SEARCH = "search"
    SANDWICH = "sandwich"
    EARLIER = "earlier"


class Verdict(StrEnum):
    """What a finished bisection says."""

    CULPRIT = "culprit"
    CULPRITS = "culprits"
    RANGE = "range"
    NO_CHANGE = "no_change"
    INCONCLUSIVE = "inconclusive"


class Reason(StrEnum):
    """Why it says so, for machines; `Outcome.reason` is the sentence for people."""

    CONFIRMED = "confirmed"
    UNBUILDABLE = "unbuildable"
    ENVIRONMENT = "environment"
    TRANSIENT = "transient"
    NOT_REPRODUCED = "not_reproduced"
    IDENTICAL_CODE = "identical_code"
    BUDGET = "budget"
    ENDS_FAILED = "ends_failed"
    INFRASTRUCTURE = "infrastructure"
    NO_PROBE_LEFT = "no_probe_left"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One first-parent commit after the good end."""

    position: int
    sha: str
    prior_weight: float = 1.0
    cost_build_s: float = 0.0
    built: bool = False
    same_as_parent: bool = False
    build: str = ""  # expected build key, where known: a time of another build is not this commit's


@dataclass(frozen=True, slots=True)
class Observation:
    """One raw time of one process, in the order in which its batch was run."""

    batch: int
    machine: str
    environment: str
    position: int
    build: str
    seconds: float
    phase: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A position that gave no time."""

    position: int
    kind: FailureKind | str


@dataclass(frozen=True, slots=True)
class BisectProblem:
    """All that is known before the first measurement.

    `budget_s` counts device-seconds of measuring; a build does not hold the device and is only a delay.
    `alarm_effect` is the log ratio bad/good that raised the alarm, `noise_sd` the sd of one log time.
    `build_offset_sd` is how much two builds of equal speed differ (code layout).  `before_level` and `after_level`
    are the alarm's stored log seconds; they only name the reason of a `no_change`.
    """

    candidates: tuple[Candidate, ...]
    alarm_effect: float
    alarm_effect_se: float
    noise_sd: float
    environment_changed: bool
    budget_s: float
    measure_cost_s: float
    workers: int = 1
    confidence: float = 0.95
    build_offset_sd: float = 0.0
    before_level: float | None = None
    after_level: float | None = None
    environment: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """One batch to run on one machine, in exactly this order."""

    position: int
    partners: tuple[int, ...]
    order: tuple[int, ...]
    runs: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing useful to start before a running probe has reported."""

    reason: str


@dataclass(frozen=True, slots=True)
class Blame:
    """One step: it lies in the candidates after `lo`, up to and with `hi`."""

    lo: int
    hi: int
    positions: tuple[int, ...]
    probability: float
    effect: float
    effect_low: float
    effect_high: float

    @property
    def sign(self) -> int:
        """+1 where the time went up."""
        return 1 if self.effect >= 0 else -1


@dataclass(frozen=True, slots=True)
class Posterior:
    """Belief after a log, for display and for the next decision."""

    commits: tuple[float, ...]  # P(a lasting step at this candidate), index 0 is position 1
    none: float
    several: float
    effect: float
    effect_low: float
    effect_high: float
    noise_sd: float
    range_lo: int  # the step lies after range_lo, up to range_hi, with 95 %
    range_hi: int
    measurements: int
    builds: int
    rejected: int  # observations of another build or environment


@dataclass(frozen=True, slots=True)
class Outlook:
    """What can be said before the start."""

    ratio: float  # alarm over noise
    runs: int  # about so many for one culprit
    seconds: float  # of the device
    warning: str  # empty when the budget should do


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict and what it rests on."""

    verdict: Verdict
    positions: tuple[int, ...]
    probability: float
    effect: float
    effect_low: float
    effect_high: float
    reason: str
    posterior: tuple[float, ...]
    measurements: int
    builds: int
    needed: str
    reason_code: Reason
    blames: tuple[Blame, ...] = ()
