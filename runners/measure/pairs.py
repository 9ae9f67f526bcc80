"""Two versions compared by pairs of processes, with looks that spend a fixed error: pure, over blocks.

Per pair of processes the estimate is the median over its quartets (ABBA or BAAB) of the log ratio; over all it is
their mean, and its interval is Student's t over pairs, never over launches. Looking at 5, 10, 20 and 40 pairs with
error levels that sum to 5 % keeps the chance of a false alarm at 5 % although one may stop early (alpha spending:
Lan and DeMets, Biometrika 70, 1983; by the Bonferroni inequality the sum bounds it for any dependence).
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from runners.measure.protocol import THROTTLED_SHARE_MAX, Clock, Flag, choose_clock, t_quantile, usable
from service.contract import SampleBlock

LOOKS = ((5, 0.005), (10, 0.010), (20, 0.015), (40, 0.020))
PAIRS_MIN = LOOKS[0][0]
LOG_SD_MIN = 1e-6  # clocks tick in nanoseconds: less spread than this is not believed


class Verdict(StrEnum):
    """What a comparison says of one workload; only the two kinds of `same` and an improvement are good news."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    SAME = "same"
    SAME_CODE = "same (identical code)"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not comparable"
    WRONG_RESULT = "wrong result"


@dataclass(frozen=True, slots=True)
class Look:
    """The state of a comparison after some pairs: head over base, its interval at the look's level, the verdict."""

    ratio: float
    low: float
    high: float
    pairs: int
    alpha: float
    verdict: Verdict | None  # None: go on
    clock: Clock
    flags: tuple[Flag, ...]


def pair_log_ratios(base: Sequence[SampleBlock], head: Sequence[SampleBlock], clock: Clock) -> list[float]:
    """Per pair of processes, the median over its quartets of log(head / base) on `clock`.

    A quartet with a throttled block is dropped whole: that rule does not look at the time.
    """
    merged: defaultdict[int, list[tuple[int, bool, float | None]]] = defaultdict(list)
    for is_head, blocks in ((False, base), (True, head)):
        for block in blocks:
            spoilt = Flag.THROTTLED in block.flags or not usable(block)
            seconds = statistics.median(block.cpu_s if clock is Clock.CPU else block.wall_s)
            log_s = None if spoilt or seconds <= 0 else math.log(seconds)
            merged[block.process].append((block.order, is_head, log_s))
    ratios = []
    for _, blocks_of_pair in sorted(merged.items()):
        quartets = _quartets(sorted(blocks_of_pair, key=lambda b: b[0]))
        if quartets:
            ratios.append(statistics.median(quartets))
    return ratios


def _quartets(ordered: list[tuple[int, bool, float | None]]) -> list[float]:
    ratios = []
    for start in range(0, len(ordered) - 3, 4):
        quartet = ordered[start : start + 4]
        if any(log_s is None for _, _, log_s in quartet):
            continue
        heads = [log_s for _, is_head, log_s in quartet if is_head and log_s is not None]
        bases = [log_s for _, is_head, log_s in quartet if not is_head and log_s is not None]
        if len(heads) == len(bases) == 2:
            ratios.append(statistics.fmean(heads) - statistics.fmean(bases))
    return ratios


def common_clock(base: Sequence[SampleBlock], head: Sequence[SampleBlock], *, threads: int) -> Clock:
    """One clock for both sides: CPU time as soon as either was pushed off its core."""
    clocks = {choose_clock([b for b in side if usable(b)], threads=threads) for side in (base, head)}
    return Clock.CPU if Clock.CPU in clocks else Clock.WALL


def lost_share(base: Sequence[SampleBlock], head: Sequence[SampleBlock]) -> float:
    """The share of blocks that throttling or a lying clock spoilt."""
    blocks = [*base, *head]
    spoilt = sum(Flag.THROTTLED in b.flags or not usable(b) for b in blocks)
    return spoilt / len(blocks) if blocks else 0.0


def alpha_after(pairs: int, *, family: int = 1) -> float:
    """The level that the look at `pairs` may spend: that of the first planned look not before it.

    A session that ends between looks takes the next one early, which is fixed by time, not by the result. `family`
    comparisons of one question ("did anything regress?") share the level.
    """
    for planned, alpha in LOOKS:
        if pairs <= planned:
            return alpha / family
    return LOOKS[-1][1] / family


def look(log_ratios: Sequence[float], *, floor: float, alpha: float, last: bool) -> tuple[float, float, Verdict | None]:
    """(mean, half-width, verdict) of log ratios at one look.

    An alarm needs an interval without zero and an effect of at least `floor`; `same` needs the whole interval inside
    the floor; at the last look everything else is inconclusive.
    """
    mean = statistics.fmean(log_ratios)
    log_sd = max(statistics.stdev(log_ratios), LOG_SD_MIN)
    half = t_quantile(1 - alpha, len(log_ratios) - 1) * log_sd / math.sqrt(len(log_ratios))
    if abs(mean) > half and abs(math.expm1(mean)) >= floor:
        return mean, half, Verdict.REGRESSION if mean > 0 else Verdict.IMPROVEMENT
    if abs(mean) + half < math.log1p(floor):
        return mean, half, Verdict.SAME
    return mean, half, Verdict.INCONCLUSIVE if last else None


def judge(
    base: Sequence[SampleBlock],
    head: Sequence[SampleBlock],
    *,
    threads: int,
    floor: float,
    family: int = 1,
    last: bool,
) -> Look | None:
    """Look at the pairs so far; None when there are fewer than two.

    Fewer pairs than the first planned look never carry a verdict: the last look then says inconclusive.
    """
    clock = common_clock(base, head, threads=threads)
    log_ratios = pair_log_ratios(base, head, clock)
    if len(log_ratios) < 2:
        return None
    pairs = len(log_ratios)
    alpha = alpha_after(pairs, family=family)
    mean, half, verdict = look(log_ratios, floor=floor, alpha=alpha, last=last)
    if pairs < PAIRS_MIN:
        verdict = Verdict.INCONCLUSIVE if last else None
    flags = pair_flags(base, head)
    if lost_share(base, head) > THROTTLED_SHARE_MAX:
        verdict = Verdict.INCONCLUSIVE if last else None
    return Look(
        ratio=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        pairs=pairs,
        alpha=alpha,
        verdict=verdict,
        clock=clock,
        flags=flags,
    )


def pair_flags(base: Sequence[SampleBlock], head: Sequence[SampleBlock]) -> tuple[Flag, ...]:
    """Flags that both sides together earn, and the states that only one of them was in."""
    from runners.measure.protocol import figure_flags

    flags: set[Flag] = set()
    for side in (base, head):
        kept = [b for b in side if usable(b)]
        if kept:
            flags.update(figure_flags(kept, clock=Clock.WALL, lost=len(side) - len(kept)))
    capped = [sum(Flag.POWER_CAPPED in b.flags for b in side) / max(len(side), 1) for side in (base, head)]
    if abs(capped[0] - capped[1]) > 0.5:
        flags.add(Flag.CLOCK_NOT_HELD)  # one side ran capped, the other did not: not the same machine
    if second_penalty(base, head) > 0.01:
        flags.add(Flag.SECOND_PENALTY)
    return tuple(sorted(flags))


def second_penalty(base: Sequence[SampleBlock], head: Sequence[SampleBlock]) -> float:
    """How much slower the later blocks of quartets are than the earlier ones; the palindrome cancels it (fault F5)."""
    early, late = [], []
    merged: defaultdict[int, list[SampleBlock]] = defaultdict(list)
    for block in (*base, *head):
        if usable(block):
            merged[block.process].append(block)
    for blocks in merged.values():
        ordered = sorted(blocks, key=lambda b: b.order)
        for start in range(0, len(ordered) - 3, 4):
            logs = [math.log(statistics.median(b.wall_s)) for b in ordered[start : start + 4]]
            early.append(logs[0] + logs[1])
            late.append(logs[2] + logs[3])
    if not early:
        return 0.0
    return statistics.median(b - a for a, b in zip(early, late, strict=True)) / 2
