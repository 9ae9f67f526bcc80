"""Whether a runner may be trusted: standing A/A, its canary against its own past, signs of a sick board. Pure rules.

A comparison in twenty is secretly of a commit with itself; the share of those that alarm, with its exact binomial
interval (Clopper and Pearson, Biometrika 26, 1934), is the false-alarm rate that people are shown. A runner whose
canary leaves its own 30-day median takes canary jobs only, until ten in a row are clean.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

STANDING_SHARE = 1 / 20
ROLLING_COMPARISONS = 60
ADVISORY_SHARE = 0.10
COMPUTE_LIMIT = 0.02
MEMORY_LIMIT = 0.03
BAD_JOBS_IN_A_ROW = 3
CLEAN_JOBS_TO_RETURN = 10
NVML_CALL_LIMIT_S = 2.0


class Standing(StrEnum):
    """What a runner's word is worth."""

    TRUSTED = "trusted"
    ADVISORY = "advisory"  # verdicts are shown but page nobody
    QUARANTINED = "quarantined"  # canary jobs only


@dataclass(frozen=True, slots=True)
class JobHealth:
    """What one job showed of its runner."""

    compute_canary_s: float
    memory_canary_s: float | None = None
    ecc_uncorrected: int = 0
    xid_errors: int = 0
    pcie_narrowed: bool = False
    slowest_nvml_call_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AlarmRate:
    """Alarms among the last A/A comparisons, with a 95 % interval."""

    alarms: int
    comparisons: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """A runner's standing and the sentence that explains it."""

    standing: Standing
    reason: str


def is_standing_aa(draw: float) -> bool:
    """Whether this comparison is one of those made with itself; `draw` is uniform in [0, 1)."""
    return draw < STANDING_SHARE


def alarm_rate(alarmed: Sequence[bool]) -> AlarmRate | None:
    """The rolling rate over the last comparisons, newest last; None before the first."""
    from scipy.special import betaincinv

    last = alarmed[-ROLLING_COMPARISONS:]
    if not last:
        return None
    n, k = len(last), sum(last)
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, 0.025))
    high = 1.0 if k == n else float(betaincinv(k + 1, n - k, 0.975))
    return AlarmRate(k, n, k / n, low, high)


def judge(
    jobs: Sequence[JobHealth], *, median_compute_s: float | None, median_memory_s: float | None, alarmed: Sequence[bool]
) -> Judgement:
    """A runner's standing from its jobs (newest last), its own 30-day medians and its A/A comparisons.

    Quarantine begins with three bad jobs in a row or one hard fault, and ends after ten clean jobs.
    """
    reasons = [
        fault(job) or excess(job, median_compute_s=median_compute_s, median_memory_s=median_memory_s) for job in jobs
    ]
    quarantined_for, clean, bad = "", 0, 0
    for job, reason in zip(jobs, reasons, strict=True):
        clean, bad = (0, bad + 1) if reason else (clean + 1, 0)
        if reason and (fault(job) or bad >= BAD_JOBS_IN_A_ROW):
            quarantined_for = reason
        elif clean >= CLEAN_JOBS_TO_RETURN:
            quarantined_for = ""
    if quarantined_for:
        return Judgement(Standing.QUARANTINED, quarantined_for)
    rate = alarm_rate(alarmed)
    if rate is not None and rate.comparisons == ROLLING_COMPARISONS and rate.share > ADVISORY_SHARE:
        return Judgement(Standing.ADVISORY, f"{rate.alarms} of its last {rate.comparisons} A/A comparisons alarmed")
    return Judgement(Standing.TRUSTED, "its canary is where it used to be")


def fault(job: JobHealth) -> str:
    """A hard fault that needs no repetition, as a sentence; empty when there is none."""
    if job.ecc_uncorrected:
        return f"{job.ecc_uncorrected} uncorrectable memory errors"
    if job.xid_errors:
        return f"{job.xid_errors} driver errors (Xid)"
    if job.pcie_narrowed:
        return "its PCIe link is narrower than it was"
    if job.slowest_nvml_call_s > NVML_CALL_LIMIT_S:
        return f"an NVML call took {job.slowest_nvml_call_s:.1f} s"
    return ""


def excess(job: JobHealth, *, median_compute_s: float | None, median_memory_s: float | None) -> str:
    """How far a canary is off its own median, when that is too far; empty otherwise or without a past."""
    for name, value_s, median_s, limit in (
        ("compute", job.compute_canary_s, median_compute_s, COMPUTE_LIMIT),
        ("memory", job.memory_canary_s, median_memory_s, MEMORY_LIMIT),
    ):
        if value_s is None or not median_s:
            continue
        off = value_s / median_s - 1
        if abs(off) > limit:
            return f"its {name} canary is {off:+.1%} off its own median"
    return ""


def own_median_s(past_s: Sequence[float]) -> float | None:
    """The median of a runner's canaries over its last 30 days; None with fewer than ten, which say too little."""
    return statistics.median(past_s) if len(past_s) >= CLEAN_JOBS_TO_RETURN else None
