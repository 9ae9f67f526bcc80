"""Times launches on a GPU by events, behind a delay kernel so that the host is ahead of the device.

One sample: flush the L2 (when asked), a delay, an event, the launches, an event. The host queues everything behind the
delay; when the device had left the delay before the host was done, it may have waited for the host: the sample is
taken again behind a longer delay, and counted as host-bound when that does not help either. This rule does not look at
the time that was measured. Events come through a Protocol, so every rule is tested with scripted events.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from runners.measure.timer import Launches

EVENT_RESOLUTION_S = 0.5e-6
SAMPLE_MIN_S = 100 * EVENT_RESOLUTION_S
SAMPLE_TARGET_S = 10 * SAMPLE_MIN_S  # so that the cost of two events is below 0.5 % however many launches they enclose
LAUNCHES_MAX = 1024
FLUSH_FACTOR = 2  # write so many times the L2
ROTATE_FACTOR = 5  # or rotate buffers of so many times the L2
DELAY_S = 100e-6
DELAY_MAX_S = 20e-3
DELAY_MARGIN = 2.0  # the delay is so many times what queueing took the last time
TRIES = 3  # of a sample for which the host was late


class CaptureError(Exception):
    """Launches that no graph can hold; the message says why."""


@dataclass(frozen=True, slots=True)
class Captured:
    """Launches recorded into a graph: `replay` queues them all, `dot` is the driver's description of the nodes."""

    replay: Callable[[], object]
    dot: str


class Events(Protocol):
    """What a GPU offers for timing."""

    @property
    def l2_bytes(self) -> int:
        """The size of the level-two cache."""

    def delay(self, seconds: float) -> None:
        """Queue a kernel that spins for so long."""

    def record(self) -> Any:
        """Queue an event and return it."""

    def elapsed_s(self, start: Any, stop: Any) -> float:
        """Wait for `stop` and return the device's seconds between the two."""

    def passed(self, event: Any) -> bool:
        """Whether the device has already passed an event."""

    def flush_l2(self, size_bytes: int) -> None:
        """Queue a write of so many bytes."""

    def capture(self, runs: list[Callable[[], object]]) -> Captured:
        """Record the launches of `runs`, in order, without executing them; raises CaptureError."""

    def host_s(self) -> float:
        """The host's clock."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What two events enclose: `run` called `calls` times makes `launches` launches; the L2 is flushed before."""

    run: Callable[[], object]
    calls: int
    launches: int
    flush_bytes: int = 0


@dataclass(slots=True)
class CudaTimer:
    """The event timer; `host_bound` counts the samples for which the host never got ahead."""

    events: Events
    delay_s: float = DELAY_S
    host_bound: int = 0
    samples: int = 0

    def time_launches(self, run: Callable[[], object], *, count: int, inner: int) -> Launches:
        """Samples of `inner` plain launches each, in a warm cache."""
        return self.time_interval(Interval(run, calls=inner, launches=inner), count=count)

    def time_interval(self, interval: Interval, *, count: int) -> Launches:
        """Device seconds per launch; both clocks are the device's, for the host's says nothing of the kernel."""
        device = tuple(self._sample_s(interval) / interval.launches for _ in range(count))
        return Launches(device, device)

    def _sample_s(self, interval: Interval) -> float:
        self.samples += 1
        seconds, ahead = self._try_s(interval)
        for _ in range(TRIES - 1):
            if ahead:
                break
            self.delay_s = min(2 * self.delay_s, DELAY_MAX_S)
            seconds, ahead = self._try_s(interval)
        self.host_bound += not ahead
        return seconds

    def _try_s(self, interval: Interval) -> tuple[float, bool]:
        """Seconds of one interval, and whether the host was ahead of the device all the time."""
        events = self.events
        if interval.flush_bytes:
            events.flush_l2(interval.flush_bytes)
        events.delay(self.delay_s)
        start = events.record()
        begun_s = events.host_s()
        for _ in range(interval.calls):
            interval.run()
        stop = events.record()
        ahead = not events.passed(start)
        queueing_s = events.host_s() - begun_s
        seconds = events.elapsed_s(start, stop)
        self.delay_s = min(max(self.delay_s, DELAY_MARGIN * queueing_s), DELAY_MAX_S) if ahead else self.delay_s
        return seconds, ahead


def launches_per_sample(launch_s: float) -> int:
    """So many launches, a power of two, that the interval is long against the events' resolution and cost.

    At least 100 times the resolution is asked for; the target is ten times that, because the two events themselves
    cost about two microseconds, and a kernel that crosses the border between two numbers of launches must not seem to
    change by more than a few tenths of a percent.
    """
    if not math.isfinite(launch_s) or launch_s <= 0:
        return LAUNCHES_MAX
    return int(min(LAUNCHES_MAX, 2 ** max(0, math.ceil(math.log2(SAMPLE_TARGET_S / launch_s)))))


def rotation_count(buffer_bytes: int, l2_bytes: int) -> int:
    """How many copies of a kernel's buffers to rotate through so that none is found in the cache again (fault F12)."""
    if buffer_bytes <= 0:
        return 1
    return max(1, math.ceil(ROTATE_FACTOR * l2_bytes / buffer_bytes))
