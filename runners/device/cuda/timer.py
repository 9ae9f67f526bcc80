"""Times launches on a GPU by events, behind a delay kernel so that the host is ahead of the device.

One sample: flush the L2 (cold) or not (warm), start an event, n launches, stop an event. The host queues everything
behind a delay; when the delay ended before the host was done, the device waited for the host and the sample is
`host_bound`. Events come through a Protocol, so every rule is tested with scripted events.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from runners.measure.timer import Launches

EVENT_RESOLUTION_S = 0.5e-6
SAMPLE_MIN_S = 100 * EVENT_RESOLUTION_S
FLUSH_FACTOR = 2  # write so many times the L2
ROTATE_FACTOR = 5  # or rotate buffers of so many times the L2


class Events(Protocol):
    """What a GPU offers for timing."""

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

    def host_s(self) -> float:
        """The host's clock."""


@dataclass(slots=True)
class CudaTimer:
    """The event timer; `flush_bytes` 0 leaves the cache warm."""

    events: Events
    flush_bytes: int = 0
    delay_s: float = 200e-6
    host_bound: int = 0
    samples: int = 0

    def time_launches(self, run: Callable[[], object], *, count: int, inner: int) -> Launches:
        """Device seconds per launch in `wall_s`, host seconds spent queueing per launch in `cpu_s`."""
        device, host = [], []
        for _ in range(count):
            if self.flush_bytes:
                self.events.flush_l2(self.flush_bytes)
            self.events.delay(self.delay_s)
            start = self.events.record()
            queued_s = self.events.host_s()
            for _ in range(inner):
                run()
            stop = self.events.record()
            queued_s = self.events.host_s() - queued_s
            self.host_bound += self.events.passed(start)
            self.samples += 1
            device.append(self.events.elapsed_s(start, stop) / inner)
            host.append(queued_s / inner)
        return Launches(tuple(device), tuple(host))


def launches_per_sample(launch_s: float) -> int:
    """So many launches that the interval is at least 100 times the events' resolution."""
    if not math.isfinite(launch_s) or launch_s <= 0:
        return 1000
    return max(1, min(1000, math.ceil(SAMPLE_MIN_S / launch_s)))


def rotation_count(buffer_bytes: int, l2_bytes: int) -> int:
    """How many copies of a kernel's buffers to rotate through so that none is found in the cache again (fault F12)."""
    if buffer_bytes <= 0:
        return 1
    return max(1, math.ceil(ROTATE_FACTOR * l2_bytes / buffer_bytes))
