"""The SM clock of a board: locked for a session, always given back, and found once by trying under load.

The highest clock that a board offers is often cut by its power limit, so the right lock is the highest that holds
while tensor cores work on random data (zeros draw less power and would flatter the board). It is remembered per board
in the state folder. A marker written before the lock survives a crash, so that the next start undoes a forgotten lock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runners.device.cuda.nvml import ClockEvent, Nvml
from runners.device.cuda.poller import events_of

CLOCK_TOLERANCE = 0.01
PROBE_S = 4.0  # long enough for the power cap to show, short enough to look at seven clocks
HOLD_S = 60.0  # long enough for the board to get as hot as it gets
HOLDS_MAX = 5  # full looks before the search gives up
STEPS_DOWN = 2  # after a clock that held a probe and not a full look

Load = Callable[[float], Iterator[None]]  # works for so many seconds, and yields whenever readings may be taken


@dataclass(slots=True)
class ClockLock:
    """Locks one board's SM clock and knows how to undo it, also after a crash."""

    nvml: Nvml
    marker: Path
    mhz: int | None = None

    def take(self, mhz: int) -> bool:
        """Lock at `mhz`; False for a user that may not, and then nothing was changed."""
        self.marker.parent.mkdir(parents=True, exist_ok=True)
        self.marker.write_text(f"{mhz}\n")
        try:
            self.nvml.lock_sm_clock(mhz)
        except PermissionError:
            if self.mhz is None:
                self.marker.unlink()
            return False
        self.mhz = mhz
        return True

    def give_back(self) -> None:
        """Undo the lock; the marker goes last, so a failure here is repaired at the next start."""
        if self.mhz is not None:
            self.nvml.unlock_sm_clock()
            self.mhz = None
            self.marker.unlink(missing_ok=True)

    def undo_forgotten(self) -> bool:
        """Undo what a crash left; whether there was something. A user that may not leaves it to one who may."""
        if self.mhz is not None or not self.marker.exists():
            return False
        try:
            self.nvml.unlock_sm_clock()
        except PermissionError:
            return False
        self.marker.unlink(missing_ok=True)
        return True


def holds(nvml: Nvml, load: Load, *, mhz: int, seconds: float) -> bool:
    """Whether a lock at `mhz` was kept under load: never capped by power, never throttled, within 1 %."""
    readings = [nvml.read() for _ in load(seconds)]
    events = events_of(readings)
    kept = all(reading.sm_clock_mhz >= mhz * (1 - CLOCK_TOLERANCE) for reading in readings)
    return bool(readings) and kept and not events & ClockEvent.SW_POWER_CAP and not events.throttled


def highest_clock_that_holds(
    lock: ClockLock, load: Load, *, probe_s: float = PROBE_S, hold_s: float = HOLD_S
) -> int | None:
    """The highest SM clock that holds for `hold_s`; None when none does or this user may not lock.

    Bisection with short probes (a lower clock draws less power, so holding is monotone), then full looks from there
    downwards, HOLDS_MAX at most: about six minutes in the worst case. The clock is given back either way.
    """
    clocks = sorted(lock.nvml.supported_sm_clocks_mhz(), reverse=True)

    def kept(mhz: int, seconds: float) -> bool:
        if not lock.take(mhz):
            raise PermissionError("locking the clock needs root")
        return holds(lock.nvml, load, mhz=mhz, seconds=seconds)

    try:
        at = _first_that_holds(clocks, lambda mhz: kept(mhz, probe_s))
        for _ in range(HOLDS_MAX):
            if at >= len(clocks):
                return None
            if kept(clocks[at], hold_s):
                return clocks[at]
            at += STEPS_DOWN
    except PermissionError:
        return None
    finally:
        lock.give_back()
    return None


def _first_that_holds(clocks: Sequence[int], kept: Callable[[int], bool]) -> int:
    """The index of the first clock (highest first) that passes; len(clocks) when none does."""
    low, high = 0, len(clocks)
    while low < high:
        middle = (low + high) // 2
        if kept(clocks[middle]):
            high = middle
        else:
            low = middle + 1
    return low


@dataclass(frozen=True, slots=True)
class KnownClocks:
    """Which clock each board of this host holds, in a small file of the state folder."""

    path: Path

    def of(self, gpu_uuid: str) -> int | None:
        """The clock of a board; None for one that was never looked at, or holds none."""
        return self._read().get(gpu_uuid)

    def remember(self, gpu_uuid: str, mhz: int | None) -> None:
        """Keep (or, with None, forget) the clock of a board."""
        known = self._read()
        known.pop(gpu_uuid, None)
        if mhz is not None:
            known[gpu_uuid] = mhz
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_suffix(".new")
        scratch.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        scratch.replace(self.path)

    def _read(self) -> dict[str, int]:
        if not self.path.exists():
            return {}
        return {str(uuid): int(mhz) for uuid, mhz in json.loads(self.path.read_text()).items()}
