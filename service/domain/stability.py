"""How far the processes of one measurement lie apart, and whether that is unusual for its series.

Processes are what a comparison replicates over, so their spread is what an interval is made of: one that has grown
threefold says that this measurement, not the kernel, is odd (the flag `unstable`). Seen from the runner alone it could
not be known: only the service has the series' past.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, stdev

from service.contract import SampleBlock

UNSTABLE = "unstable"
UNSTABLE_RATIO = 3.0  # times the median of its past
LEAST_UNSTABLE_SD = 0.005  # relative; below it nothing that people are told would be in doubt
PROCESSES_OF_A_SPREAD = 3
MEASUREMENTS_OF_A_PAST = 5
PAST_MEASUREMENTS = 30  # the newest of a series


def process_sd(blocks: Sequence[SampleBlock], *, clock: str) -> float | None:
    """Return the relative standard deviation of kernel / canary between processes; None with fewer than three."""
    levels: dict[int, list[float]] = {}
    for block in blocks:
        samples, canary_s = (block.cpu_s, block.canary_cpu_s) if clock == "cpu" else (block.wall_s, block.canary_wall_s)
        kernel_s = median(samples) if samples else 0.0
        if kernel_s > 0 and canary_s > 0:
            levels.setdefault(block.process, []).append(math.log(kernel_s / canary_s))
    if len(levels) < PROCESSES_OF_A_SPREAD:
        return None
    return stdev(median(logs) for logs in levels.values())


def is_unstable(spread: float | None, past: Sequence[float]) -> bool:
    """Whether processes lie more than three times as far apart as they used to in this series."""
    if spread is None or len(past) < MEASUREMENTS_OF_A_PAST:
        return False
    return spread > max(UNSTABLE_RATIO * median(past), LEAST_UNSTABLE_SD)
