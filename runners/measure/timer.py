"""Timers: how a prepared launch becomes raw seconds on two clocks.

A timer is the one place that reads clocks around a launch. The CPU timer is below; the CUDA event timer lives with
its device. Both answer the same Protocol, so the child and every fault test use either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns
from typing import Protocol

SAMPLE_MIN_S = 50e-6  # a sample this long is 100x the cost of reading both clocks


@dataclass(frozen=True, slots=True)
class Launches:
    """Raw seconds of consecutive launches; `wall_s[i]` and `cpu_s[i]` are the same launch on two clocks."""

    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]


class LaunchTimer(Protocol):
    """Times launches of a prepared kernel."""

    def time_launches(self, run: Callable[[], object], *, count: int, inner: int) -> Launches:
        """Time `count` samples of `inner` launches each; the figures are per launch."""


class CpuTimer:
    """Wall and thread-CPU clocks of the operating system, bound before any kernel could replace them."""

    def __init__(self) -> None:
        self._wall_clock, self._cpu_clock = perf_counter_ns, thread_time_ns

    def time_launches(self, run: Callable[[], object], *, count: int, inner: int) -> Launches:
        """Read both clocks close around each sample; the CPU clock sits inside, so it never exceeds the wall clock."""
        wall_clock, cpu_clock = self._wall_clock, self._cpu_clock
        wall, cpu = [], []
        for _ in range(count):
            wall_start, cpu_start = wall_clock(), cpu_clock()
            for _ in range(inner):
                run()
            cpu_end, wall_end = cpu_clock(), wall_clock()
            wall.append((wall_end - wall_start) * 1e-9 / inner)
            cpu.append((cpu_end - cpu_start) * 1e-9 / inner)
        return Launches(tuple(wall), tuple(cpu))


def inner_launches(launch_s: float) -> int:
    """How many launches one sample needs to be long against the clocks' resolution."""
    if launch_s <= 0:
        return 1000
    return max(1, min(1000, round(SAMPLE_MIN_S / launch_s)))
