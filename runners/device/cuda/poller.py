"""Watches a board at 20 Hz while blocks run: what happened between two looks is what a block is judged by."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from runners.device.cuda.nvml import ClockEvent, GpuReading, Nvml
from runners.errors import DeviceError

PERIOD_S = 0.05


@dataclass(slots=True)
class Poller:
    """Collects readings in a thread; a hanging NVML ends it, and the device says so at the next look."""

    nvml: Nvml
    period_s: float = PERIOD_S
    readings: list[GpuReading] = field(default_factory=list)
    failed: DeviceError | None = None
    slowest_s: float = 0.0  # how long NVML took to answer at worst
    clock: Callable[[], float] = time.monotonic
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to poll."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="nvml-poller", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End polling; what was read stays."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def poll(self) -> None:
        """Take one reading now."""
        asked_s = self.clock()
        try:
            self.readings.append(self.nvml.read())
        except DeviceError as error:
            self.failed = error
        self.slowest_s = max(self.slowest_s, self.clock() - asked_s)

    def _run(self) -> None:
        while self.failed is None and not self._stop.wait(self.period_s):
            self.poll()


def events_of(readings: list[GpuReading]) -> ClockEvent:
    """Every clock event that any of the readings showed."""
    found = ClockEvent.NONE
    for reading in readings:
        found |= reading.events
    return found
