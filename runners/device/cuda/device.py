"""An NVIDIA GPU as a device: taken alone, its clock locked, watched while it runs, always given back.

Clock locking follows what boards really hold: the highest SM clock may be cut by the power limit, so the lock is
verified under load by the power-cap bit and lowered until it holds. A marker file survives a crash, so that the next
start undoes a lock that was left.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runners.device.base import Conditions
from runners.device.cuda.nvml import ClockEvent, Nvml, RealNvml, TimedNvml
from runners.device.cuda.poller import Poller, events_of
from runners.errors import DeviceError
from runners.measure.protocol import Flag, WarmUp
from service.contract import EnvironmentReport

WARM_UP = WarmUp(block_s=0.05, tolerance=0.005, limit_s=5.0)
CLOCK_TOLERANCE = 0.01
CANARY_NOMINAL_S = 0.02
TIMING_METHOD = "cuda events behind a delay kernel"
CACHE_POLICY = "warm"
COMPARABLE_FACTS = (
    "cache_policy",
    "canary_reference_s",
    "clock",
    "cuda_driver",
    "driver",
    "ecc",
    "gpu_model",
    "gpu_uuid",
    "mig",
    "pcie_width",
    "power_limit_w",
    "timing_method",
    "vbios",
)


class CudaDevice:
    """One board; `wanted_mhz` is the SM clock that `kernelwatch tune` found to hold, None leaves it unlocked."""

    kind = "cuda"
    warm_up = WARM_UP
    prepares_beside = False  # a second process on the board would be timed along

    def __init__(self, *, nvml: Nvml, state_dir: Path, wanted_mhz: int | None = None) -> None:
        self._nvml = nvml
        self._state_dir = state_dir
        self._wanted_mhz = wanted_mhz
        self._locked_mhz: int | None = None
        self._own_pids = {os.getpid()}
        self._poller = Poller(nvml)
        self._undo_forgotten_lock()

    @property
    def canary_reference_s(self) -> float:
        """Boards of one model differ by up to 22 %, and each has series of its own: any constant serves."""
        return CANARY_NOMINAL_S

    @property
    def _marker(self) -> Path:
        return self._state_dir / "gpu_clock_locked"

    def environment(self, canary_reference_s: float | None = None) -> EnvironmentReport:
        """Facts of board, driver and clock state."""
        found = self._nvml.facts() | {
            "clock": f"{self._locked_mhz} MHz" if self._locked_mhz else "unlocked",
            "timing_method": TIMING_METHOD,
            "cache_policy": CACHE_POLICY,
            "canary_reference_s": repr(canary_reference_s or self.canary_reference_s),
        }
        return EnvironmentReport(
            device=found.get("gpu_model", "unavailable"),
            comparable_key="cuda-" + _digest({name: found.get(name, "unavailable") for name in COMPARABLE_FACTS}),
            fingerprint=_digest(found),
            facts=found,
        )

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Lock the board against other runners, refuse foreign processes, fix the clock, poll; undo it all."""
        self._state_dir.mkdir(parents=True, exist_ok=True)
        with (self._state_dir / "gpu.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise DeviceError("another runner measures on this GPU") from error
            foreign = set(self._nvml.read().pids) - self._own_pids
            if foreign:
                raise DeviceError(f"foreign processes run on the GPU: {', '.join(map(str, sorted(foreign)))}")
            self._lock_clock()
            self._poller.start()
            try:
                yield
            finally:
                self._poller.stop()
                self._unlock_clock()

    def hold(self, pid: int, *, threads: int) -> tuple[Flag, ...]:
        """The board is already ours; from now on this process is no foreigner."""
        del threads
        self._own_pids.add(pid)
        return () if self._locked_mhz or self._wanted_mhz is None else (Flag.CLOCK_NOT_HELD,)

    def look(self, pid: int) -> Conditions:
        """Poll once and remember how far the readings have come."""
        del pid
        self._poller.poll()
        if self._poller.failed is not None:
            raise self._poller.failed
        last = self._poller.readings[-1]
        readings = {"at": float(len(self._poller.readings)), "ecc": float(last.ecc_uncorrected)}
        return Conditions(0.0, readings)

    def judge(self, before: Conditions, after: Conditions, reply: dict[str, Any]) -> tuple[Flag, ...]:
        """Flags of everything the board showed from the look before to the look after."""
        seen = self._poller.readings[int(before.readings["at"]) - 1 : int(after.readings["at"])]
        if after.readings["ecc"] > before.readings["ecc"]:
            raise DeviceError("the GPU reports uncorrectable memory errors")
        flags: set[Flag] = set()
        events = events_of(seen)
        if events.throttled:
            flags.add(Flag.THROTTLED)
        if events & ClockEvent.SW_POWER_CAP:
            flags.add(Flag.POWER_CAPPED)
        if any(set(r.pids) - self._own_pids for r in seen):
            flags.add(Flag.CONTENDED)
        if self._locked_mhz and any(r.sm_clock_mhz < self._locked_mhz * (1 - CLOCK_TOLERANCE) for r in seen):
            flags.add(Flag.CLOCK_NOT_HELD)
        if reply.get("host_bound"):
            flags.add(Flag.HOST_BOUND)
        if reply.get("working_set_bytes", 0) and reply["working_set_bytes"] < reply.get("cold_bytes", 0):
            flags.add(Flag.WARM_THOUGH_COLD)
        return tuple(sorted(flags))

    def look_around(self) -> Conditions:
        """Nothing: each block already asks the board who else is on it."""
        return Conditions(0.0, {})

    def judge_session(self, before: Conditions, after: Conditions) -> tuple[Flag, ...]:
        """Nothing beyond what each block has earned."""
        del before, after
        return ()

    def _lock_clock(self) -> None:
        if self._wanted_mhz is None:
            return
        self._marker.write_text(f"{self._wanted_mhz}\n")
        try:
            self._nvml.lock_sm_clock(self._wanted_mhz)
        except PermissionError:
            self._marker.unlink()
            return
        self._locked_mhz = self._wanted_mhz

    def _unlock_clock(self) -> None:
        if self._locked_mhz is not None:
            self._nvml.unlock_sm_clock()
            self._locked_mhz = None
            self._marker.unlink(missing_ok=True)

    def _undo_forgotten_lock(self) -> None:
        if self._marker.exists():
            self._nvml.unlock_sm_clock()
            self._marker.unlink()


def open_cuda(*, state_dir: Path, index: int = 0) -> CudaDevice:
    """The real board; raises DeviceError with a plain sentence when there is none."""
    kept = state_dir / "gpu_clock_mhz"
    wanted = int(kept.read_text()) if kept.exists() else None
    return CudaDevice(nvml=TimedNvml(RealNvml(index)), state_dir=state_dir, wanted_mhz=wanted)


def highest_clock_that_holds(nvml: Nvml, load: Callable[[], Iterator[None]]) -> int | None:
    """The highest SM clock that holds: no power-cap bit and within 1 % of the lock while `load()` runs.

    `load` yields between launches of a long tensor-core kernel on random data: zeros draw less power and would
    flatter the board. None when no clock holds or this user may not lock; the clock is given back either way.
    """
    try:
        for mhz in nvml.supported_sm_clocks_mhz():
            nvml.lock_sm_clock(mhz)
            readings = [nvml.read() for _ in load()]
            capped = events_of(readings) & ClockEvent.SW_POWER_CAP
            held = all(r.sm_clock_mhz >= mhz * (1 - CLOCK_TOLERANCE) for r in readings)
            if readings and held and not capped and not events_of(readings).throttled:
                return mhz
    except PermissionError:
        return None
    finally:
        _give_clock_back(nvml)
    return None


def _give_clock_back(nvml: Nvml) -> None:
    try:
        nvml.unlock_sm_clock()
    except PermissionError:
        return


def _digest(found: dict[str, str]) -> str:
    text = "\n".join(f"{name}={found[name]}" for name in sorted(found))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
