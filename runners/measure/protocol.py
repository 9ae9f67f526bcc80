"""The rules by which times become figures, pure over what a timer says.

Nothing here reads a clock or starts a process: blocks of raw launches go in, figures with intervals and flags come
out, so every rule is tested with scripted times. The design is that of Kalibera and Jones, "Rigorous benchmarking in
reasonable time" (ISMM 2013): replicate at the level where the variance is, which is the process, and take Student's t
over processes, never over launches.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.contract import ProtocolParams, SampleBlock

OFF_CPU_SHARE_MAX = 0.02  # above it the wall clock measures the neighbours, not the kernel
DRIFT_MIN = 0.01
BIMODAL_GAP_MIN = 0.02
CONTENDED_BLOCK_SHARE = 0.10
THROTTLED_SHARE_MAX = 0.30  # of blocks; above it nothing is said
MIN_PROCESSES = 4  # an interval over fewer fresh processes says too little to stop on
MIN_LAUNCHES = 3
MAX_LAUNCHES = 400

# Standard error of the median of n normal values, relative to that of their mean; sqrt(pi/2) for large n.
_MEDIAN_COST = {1: 1.0, 2: 1.0, 3: 1.160, 4: 1.092, 5: 1.198, 6: 1.135, 7: 1.214, 8: 1.160, 9: 1.223, 10: 1.176}
_MEDIAN_COST_LIMIT = math.sqrt(math.pi / 2)


class Clock(StrEnum):
    """Which clock a figure was taken on."""

    WALL = "wall"
    CPU = "cpu"


class Flag(StrEnum):
    """What was odd while measuring; flags explain a figure, they never remove it."""

    THROTTLED = "throttled"
    POWER_CAPPED = "power_capped"
    CONTENDED = "contended"
    HOST_BOUND = "host_bound"
    DRIFT = "drift"
    BIMODAL = "bimodal"
    NO_STEADY_STATE = "no_steady_state"
    CLOCK_NOT_HELD = "clock_not_held"
    IMPLAUSIBLE = "implausible"
    WARM_THOUGH_COLD = "warm_though_cold"
    SECOND_PENALTY = "second_penalty"
    SHORT_OF_TIME = "short_of_time"


@dataclass(frozen=True, slots=True)
class Figure:
    """A history point: seconds at the reference canary, with the half-width of its 95 % interval."""

    value_s: float
    half_width_s: float | None  # None for a single process: no spread was seen
    clock: Clock
    processes: int
    log_sd: float | None
    flags: tuple[Flag, ...]

    @property
    def relative_half_width(self) -> float | None:
        """Half-width divided by the value."""
        return None if self.half_width_s is None else self.half_width_s / self.value_s


def t_quantile(confidence: float, degrees: int) -> float:
    """Two-sided Student quantile: P(|T| <= q) = confidence."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def usable(block: SampleBlock) -> bool:
    """Whether the times of a block can be times at all: positive, finite, both clocks, a framed canary (fault F8)."""
    times = (*block.wall_s, block.canary_wall_s)
    return (
        len(block.wall_s) > 0
        and len(block.wall_s) == len(block.cpu_s)
        and all(math.isfinite(t) and t > 0 for t in times)
        and all(math.isfinite(t) and t >= 0 for t in (*block.cpu_s, block.canary_cpu_s))
    )


def off_cpu_share(blocks: Sequence[SampleBlock]) -> float:
    """The share of wall time in which the launching thread was not running."""
    wall_s = sum(map(sum, (b.wall_s for b in blocks)))
    cpu_s = sum(map(sum, (b.cpu_s for b in blocks)))
    return 0.0 if wall_s <= 0 else max(0.0, 1.0 - cpu_s / wall_s)


def choose_clock(blocks: Sequence[SampleBlock], *, threads: int) -> Clock:
    """Thread CPU time when others took the core from a single-threaded kernel, wall time otherwise."""
    if threads == 1 and off_cpu_share(blocks) > OFF_CPU_SHARE_MAX and _cpu_clock_counts(blocks):
        return Clock.CPU
    return Clock.WALL


def _cpu_clock_counts(blocks: Sequence[SampleBlock]) -> bool:
    return all(b.canary_cpu_s > 0 and all(t > 0 for t in b.cpu_s) for b in blocks)


def block_log_ratio(block: SampleBlock, clock: Clock) -> float:
    """Log of the block's median launch over its canary, both on `clock`."""
    if clock is Clock.CPU:
        return math.log(statistics.median(block.cpu_s) / block.canary_cpu_s)
    return math.log(statistics.median(block.wall_s) / block.canary_wall_s)


def process_log_ratios(blocks: Sequence[SampleBlock], clock: Clock) -> dict[int, float]:
    """Per process, the median over its blocks of the log ratio to the canary."""
    by_process: defaultdict[int, list[float]] = defaultdict(list)
    for block in blocks:
        by_process[block.process].append(block_log_ratio(block, clock))
    return {process: statistics.median(logs) for process, logs in sorted(by_process.items())}


def history_figure(blocks: Sequence[SampleBlock], *, threads: int, reference_s: float) -> Figure | None:
    """Reduce all blocks of one workload of one commit to its history point.

    The point is the median over processes of kernel / canary on the same clock, times `reference_s` (the canary's
    seconds on this pool), so it is in seconds. Blocks that the hardware throttled are left out, by a rule that does not
    look at their time. None when no block carries usable times, or too many were throttled.
    """
    whole = [b for b in blocks if usable(b)]
    kept = [b for b in whole if Flag.THROTTLED not in b.flags]
    if not kept or mostly_throttled(blocks):
        return None
    clock = choose_clock(kept, threads=threads)
    logs = list(process_log_ratios(kept, clock).values())
    value_s = math.exp(statistics.median(logs)) * reference_s
    log_sd = statistics.stdev(logs) if len(logs) > 1 else None
    half_width_s = None
    if log_sd is not None:
        cost = _MEDIAN_COST.get(len(logs), _MEDIAN_COST_LIMIT)
        half_log = t_quantile(0.95, len(logs) - 1) * cost * log_sd / math.sqrt(len(logs))
        half_width_s = value_s * math.expm1(min(half_log, 10.0))
    flags = figure_flags(whole, clock=clock, lost=len(blocks) - len(whole))
    return Figure(value_s, half_width_s, clock, len(logs), log_sd, flags)


def mostly_throttled(blocks: Sequence[SampleBlock]) -> bool:
    """Whether the hardware slowed so many blocks down that the rest is no fair picture."""
    return sum(Flag.THROTTLED in b.flags for b in blocks) > THROTTLED_SHARE_MAX * len(blocks)


def figure_flags(blocks: Sequence[SampleBlock], *, clock: Clock, lost: int = 0) -> tuple[Flag, ...]:
    """The flags that a whole workload earns from its blocks."""
    flags = set()
    for flag in {f for b in blocks for f in b.flags}:
        share = sum(flag in b.flags for b in blocks) / len(blocks)
        if flag in set(Flag) and (flag != Flag.CONTENDED or share > CONTENDED_BLOCK_SHARE):
            flags.add(Flag(flag))
    if off_cpu_share(blocks) > OFF_CPU_SHARE_MAX:
        flags.add(Flag.CONTENDED)
    if lost:
        flags.add(Flag.IMPLAUSIBLE)
    logs = [block_log_ratio(b, clock) for b in sorted(blocks, key=lambda b: (b.process, b.order))]
    if drifts(logs):
        flags.add(Flag.DRIFT)
    if bimodal(list(process_log_ratios(blocks, clock).values())):
        flags.add(Flag.BIMODAL)
    return tuple(sorted(flags))


def drifts(logs: Sequence[float]) -> bool:
    """Whether the last third of a series in time order lies more than 1 % (and three errors) off its first third."""
    third = len(logs) // 3
    if third < 3:
        return False
    first, last = logs[:third], logs[-third:]
    step = abs(statistics.median(last) - statistics.median(first))
    noise = max(statistics.stdev(first), statistics.stdev(last)) * _MEDIAN_COST_LIMIT * math.sqrt(2 / third)
    return step > max(DRIFT_MIN, 3 * noise)


def bimodal(logs: Sequence[float]) -> bool:
    """Whether processes fall into two camps: a gap over 2 %, three times as wide as either camp, two in each."""
    ordered = sorted(logs)
    if len(ordered) < 4:
        return False
    gap, at = max((ordered[i + 1] - ordered[i], i + 1) for i in range(1, len(ordered) - 2))
    left, right = ordered[:at], ordered[at:]
    return gap > BIMODAL_GAP_MIN and gap > 3 * max(left[-1] - left[0], right[-1] - right[0])


def enough(figure: Figure | None, params: ProtocolParams) -> bool:
    """Sequential stopping of a history point: enough processes and a half-width at or below the target."""
    if figure is None or figure.processes < min(MIN_PROCESSES, params.processes):
        return False
    relative = figure.relative_half_width
    return relative is not None and relative <= params.target_half_width


def launches_for(launch_s: float, block_s: float) -> int:
    """How many launches fill a block of `block_s` seconds."""
    if launch_s <= 0:
        return MAX_LAUNCHES
    return max(MIN_LAUNCHES, min(MAX_LAUNCHES, round(block_s / launch_s)))


@dataclass(frozen=True, slots=True)
class WarmUp:
    """When a kernel counts as warm: `agreeing` consecutive medians within `tolerance`, or `limit_s` is spent.

    Before `least_s` nothing counts as warm, however well it agrees.
    """

    block_s: float
    tolerance: float
    limit_s: float
    agreeing: int = 3
    least_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Steady:
    """What warm-up found: the seconds of one launch, and whether it settled."""

    launch_s: float
    settled: bool
    spent_s: float


def warm_up(time_one: Callable[[], float], spec: WarmUp) -> Steady:
    """Launch until the medians of consecutive small blocks agree; the very first call is never counted (F1, F2)."""
    spent_s = time_one()
    medians: list[float] = []
    while True:
        block: list[float] = []
        while not block or sum(block) < spec.block_s:
            block.append(max(time_one(), 1e-9))
            if sum(block) + spent_s >= spec.limit_s and len(medians) >= spec.agreeing:
                break
        spent_s += sum(block)
        medians.append(statistics.median(block))
        recent = medians[-spec.agreeing :]
        enough_s = spent_s >= spec.least_s
        if enough_s and len(recent) == spec.agreeing and max(recent) <= min(recent) * (1 + spec.tolerance):
            return Steady(statistics.median(recent), settled=True, spent_s=spent_s)
        if spent_s >= spec.limit_s and len(medians) >= spec.agreeing:
            return Steady(min(recent), settled=False, spent_s=spent_s)


def claims_too_much(*, claimed_s: float, request_s: float) -> bool:
    """Whether a child claims more time than its parent's own clock saw pass (F8): 2 % and 0.2 ms of slack."""
    return claimed_s > request_s * 1.02 + 2e-4


def claims_too_little(
    *, claimed_s: float, request_s: float, launches: int, beside_s: float = 0.03, hidden_share: float = 0.25
) -> bool:
    """Whether a child hides most of what its parent saw pass (F10): a patched clock or work done after the stop.

    One untimed call and the canary are part of every request (`beside_s`); where only the parent's clock is known, it
    may be late by a scheduler slice. So only a claim under `hidden_share` of what is left is called a lie.
    """
    return (request_s - beside_s - claimed_s / max(launches, 1)) * hidden_share > claimed_s
