"""Whether a runner may be trusted: its canary against its own past, signs of a sick board, standing A/A. Pure rules.

Three answers come together in a runner's standing:

- A job is bad when its canary leaves the runner's own 30-day median. Three bad jobs in a row, or one hard fault, begin
  the quarantine: canary jobs only, until ten in a row are clean. The past is that of jobs under the same conditions,
  clean ones and odd ones that came and went, without what led to a quarantine: a sick runner does not become its own
  norm. A person who knows better releases it, and its past begins anew.
- The limit is 2 % (compute) or 3 % (memory), or twice as far as nineteen in twenty of the runner's own jobs lay off
  their median, where that is more (four standard deviations of a normal spread, and more where the tails are heavy). A
  board that is ours alone holds its canary within fractions of a percent; on a shared host with neighbours the compute
  canary was seen 5 to 12 % slow in one short job of six, and the memory canary half as slow again: three such jobs in a
  row say nothing of its health. A job's figure is the lower quartile of its canaries, because neighbours slow some of
  them and a sick machine all, and what the harness itself saw disturbed is not judged.
- A comparison in twenty is secretly of a commit with itself. The share of those that alarm, with its exact binomial
  interval (Clopper and Pearson, Biometrika 26, 1934), is the false-alarm rate that people are shown; above a tenth the
  runner's word is advisory: it measures on, but gives no verdict that wakes anybody.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby

from service.contract import RunReason
from service.domain.states import JobVerdict, Standing

STANDING_SHARE = 1 / 20
ROLLING_COMPARISONS = 60
ADVISORY_SHARE = 0.10
COMPUTE_LIMIT = 0.02
MEMORY_LIMIT = 0.03
REACH = 2.0  # times as far as USUAL of its own jobs a canary may be off
USUAL = 0.95
BAD_JOBS_IN_A_ROW = 3
CLEAN_JOBS_TO_RETURN = 10
JOBS_OF_A_MEDIAN = 10  # fewer jobs say too little of a runner's past
PAST = timedelta(days=30)
NVML_CALL_LIMIT_S = 2.0
CONFIDENCE = 0.95
JUDGING_REASONS = frozenset({RunReason.CONFIRM, RunReason.VERIFY, RunReason.BISECTION, RunReason.PULL_REQUEST})
"""Runs whose outcome is a verdict that people hear of; an advisory runner does not get them."""


@dataclass(frozen=True, slots=True)
class JobHealth:
    """What one job showed of its runner; `contended`: others had the core in too many of its blocks."""

    compute_canary_s: float | None = None
    memory_canary_s: float | None = None
    contended: bool = False
    ecc_uncorrected: int = 0  # since the board was last reset, not of this job
    xid_errors: int = 0
    pcie_width: int | None = None
    slowest_nvml_call_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Past:
    """A runner's canaries of 30 days under the same conditions, and what its board had shown before."""

    compute_canaries_s: Sequence[float] = ()
    memory_canaries_s: Sequence[float] = ()
    ecc_uncorrected: int = 0
    widest_pcie: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What one job says of its runner, and the sentence that explains it (none for a clean one)."""

    verdict: JobVerdict
    sentence: str | None = None


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


def reasons_for(standing: Standing) -> frozenset[RunReason]:
    """Return the kinds of runs that a runner may be given."""
    if standing is Standing.QUARANTINED:
        return frozenset({RunReason.CANARY})
    return frozenset(RunReason) - (JUDGING_REASONS if standing is Standing.ADVISORY else frozenset())


def is_standing_aa(run_id: int) -> bool:
    """Whether a comparison is followed by one with itself: one in twenty, drawn from its id, the same each time."""
    return draw(f"aa:{run_id}") < STANDING_SHARE


def draw(text: str) -> float:
    """Return a number in [0, 1) that looks random and depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / 2.0**56


def alarm_rate(alarmed: Sequence[bool]) -> AlarmRate | None:
    """Return the rolling rate over the last comparisons, newest last; None before the first."""
    last = alarmed[-ROLLING_COMPARISONS:]
    if not last:
        return None
    n, k = len(last), sum(last)
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if k == 0 else _share_where(lambda p: 1 - _at_most(k - 1, n, p) >= tail)
    high = 1.0 if k == n else _share_where(lambda p: _at_most(k, n, p) <= tail)
    return AlarmRate(k, n, k / n, low, high)


def _at_most(k: int, n: int, p: float) -> float:
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))


def _share_where(holds: Callable[[float], bool]) -> float:
    """Return the least share in [0, 1] at which a condition holds that holds from there on, by halving."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def judge_job(job: JobHealth, past: Past) -> Finding:
    """Say what one job shows: a fault, a canary that is off, or nothing odd.

    A contended job whose canary is off is not judged: the neighbours explain it, and their flag is on its figures. Nor
    is one that ended before its first canary.
    """
    found = fault(job, past)
    if found:
        return Finding(JobVerdict.FAULT, found)
    off = excess("compute", job.compute_canary_s, past.compute_canaries_s, floor=COMPUTE_LIMIT) or excess(
        "memory", job.memory_canary_s, past.memory_canaries_s, floor=MEMORY_LIMIT
    )
    if off is None:
        return Finding(JobVerdict.UNJUDGED if job.compute_canary_s is None else JobVerdict.CLEAN)
    if job.contended:
        return Finding(JobVerdict.UNJUDGED, f"{off}, while others had the core")
    return Finding(JobVerdict.BAD, off)


def fault(job: JobHealth, past: Past) -> str:
    """Return a hard fault that needs no repetition, as a sentence; empty when there is none.

    The board counts memory errors until it is reset: only a count that has changed since the job before is news.
    """
    if job.ecc_uncorrected and job.ecc_uncorrected != past.ecc_uncorrected:
        return f"{job.ecc_uncorrected} uncorrectable memory errors"
    if job.xid_errors:
        return f"{job.xid_errors} driver errors (Xid)"
    if job.pcie_width is not None and past.widest_pcie is not None and job.pcie_width < past.widest_pcie:
        return f"its PCIe link is x{job.pcie_width}, it was x{past.widest_pcie}"
    if job.slowest_nvml_call_s >= NVML_CALL_LIMIT_S:
        return f"an NVML call took {job.slowest_nvml_call_s:.1f} s"
    return ""


def excess(name: str, value_s: float | None, past_s: Sequence[float], *, floor: float) -> str | None:
    """Return how far a canary is off its own median, when that is too far; None otherwise or without a past."""
    median_s = own_median_s(past_s)
    if value_s is None or median_s is None:
        return None
    off, limit = value_s / median_s - 1, own_limit(past_s, floor=floor)
    if abs(off) <= limit:
        return None
    return f"its {name} canary is {off:+.1%} off its own median (limit {limit:.1%})"


def own_median_s(past_s: Sequence[float]) -> float | None:
    """Return the median of a runner's canaries; None with too few, or of nothing."""
    if len(past_s) < JOBS_OF_A_MEDIAN:
        return None
    return statistics.median(past_s) or None


def own_limit(past_s: Sequence[float], *, floor: float) -> float:
    """Return how far off a canary may be, relative: `floor`, or twice what is usual for this runner if that is more."""
    median_s = statistics.median(past_s)
    off = sorted(abs(value / median_s - 1) for value in past_s)
    return max(floor, REACH * quantile(off, USUAL))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` of an ordered sample lies, between neighbours by proportion."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def without_streaks(jobs: Sequence[JobVerdict]) -> list[int]:
    """Return which jobs (oldest first) make a runner's past: not the newest bad ones, nor what led to a quarantine."""
    kept: list[int] = []
    start = 0
    for verdict, group in groupby(jobs):
        length = len(list(group))
        ended = start + length < len(jobs)
        if verdict is JobVerdict.CLEAN or (ended and length < BAD_JOBS_IN_A_ROW):
            kept.extend(range(start, start + length))
        start += length
    return kept


def judge(current: Judgement, jobs: Iterable[Finding], alarmed: Sequence[bool]) -> Judgement:
    """Return a runner's standing after its newest job, from its standing before, its jobs (newest last) and its A/A."""
    judged = [job for job in jobs if job.verdict is not JobVerdict.UNJUDGED]
    last = judged[-1] if judged else Finding(JobVerdict.CLEAN)
    bad = _trailing(judged, {JobVerdict.BAD, JobVerdict.FAULT})
    if last.verdict is JobVerdict.FAULT or bad >= BAD_JOBS_IN_A_ROW:
        reason = last.sentence or ""
        kept = current.standing is Standing.QUARANTINED  # what began it says more than what it showed since
        return current if kept else Judgement(Standing.QUARANTINED, reason)
    clean = _trailing(judged, {JobVerdict.CLEAN})
    if current.standing is Standing.QUARANTINED and clean < CLEAN_JOBS_TO_RETURN:
        return current
    rate = alarm_rate(alarmed)
    if rate is not None and rate.comparisons == ROLLING_COMPARISONS and rate.share > ADVISORY_SHARE:
        return Judgement(Standing.ADVISORY, f"{rate.alarms} of its last {rate.comparisons} A/A comparisons alarmed")
    if current.standing is Standing.QUARANTINED:
        return Judgement(Standing.TRUSTED, f"{clean} clean jobs in a row")
    if current.standing is Standing.ADVISORY:
        return Judgement(Standing.TRUSTED, "its A/A comparisons alarm seldom enough again")
    return current


def _trailing(jobs: Sequence[Finding], verdicts: set[JobVerdict]) -> int:
    count = 0
    for job in reversed(jobs):
        if job.verdict not in verdicts:
            break
        count += 1
    return count
