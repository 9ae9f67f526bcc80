"""An NVIDIA GPU as a device: taken alone, its clock locked, watched while it runs, always given back.

Watched means: clocks, power, temperature, clock events, memory errors and processes, 20 times a second during blocks.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from runners.device.base import Conditions
from runners.device.cuda.clock import CLOCK_TOLERANCE, ClockLock, KnownClocks, Load, highest_clock_that_holds
from runners.device.cuda.nvml import ClockEvent, GpuReading, Nvml, RealNvml, TimedNvml
from runners.device.cuda.nvrtc import toolchain_version
from runners.device.cuda.poller import Poller, events_of
from runners.errors import DeviceError
from runners.measure.protocol import Flag, WarmUp
from service.contract import DeviceHealth, EnvironmentReport

WARM_UP = WarmUp(block_s=0.05, tolerance=0.005, limit_s=5.0, least_s=0.3)
CLOCK_LOOKS = 4  # the last readings of a warm-up, 0.15 s, among which the clock must stand still
CANARY_NOMINAL_S = 0.02
TIMING_METHOD = "cuda events behind a delay kernel, graph replay"  # or the metric says `_plain`
CACHE_POLICY = "by metric: time is warm, time_cold flushed or rotated"
LEAVING_LOOKS = 20  # at processes that may be about to leave the board
LEAVING_PAUSE_S = 0.25
KNOWN_CLOCKS = "gpu_clocks.json"
COMPARABLE_FACTS = (
    "cache_policy",
    "canary_reference_s",
    "clock",
    "cuda_driver",
    "cupy",
    "driver",
    "ecc",
    "gpu_model",
    "gpu_uuid",
    "mig",
    "nvrtc",
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

    def __init__(
        self,
        *,
        nvml: Nvml,
        state_dir: Path,
        wanted_mhz: int | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._nvml = nvml
        self._pause = pause
        self._state_dir = state_dir
        self._wanted_mhz = wanted_mhz
        self._lock = ClockLock(nvml, state_dir / "gpu_clock_locked")
        self._own_pids = {os.getpid()}
        self._children: set[int] = set()
        self._poller = Poller(nvml)
        self._xid_told = 0
        with self._alone() as alone:
            if alone:  # else a runner that is alive holds the lock, and needs it
                self._lock.undo_forgotten()

    @property
    def canary_reference_s(self) -> float:
        """Boards of one model differ by up to 22 %, and each has series of its own: any constant serves."""
        return CANARY_NOMINAL_S

    def hello(self) -> dict[str, str]:
        """Which board to open: CUDA numbers boards by speed, NVML by slot."""
        return {"gpu_uuid": self.gpu_uuid}

    def environment(self, canary_reference_s: float | None = None) -> EnvironmentReport:
        """Facts of board, driver and clock state."""
        found = self._nvml.facts() | {
            "clock": f"{self._lock.mhz} MHz" if self._lock.mhz else "unlocked",
            "cupy": _version("cupy-cuda13x"),
            "nvrtc": toolchain_version(),
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
        with self._alone() as alone:
            if not alone:
                raise DeviceError("another runner measures on this GPU")
            self._lock.undo_forgotten()
            self._children.clear()
            self._refuse_foreigners()
            try:
                if self._wanted_mhz is not None:
                    self._lock.take(self._wanted_mhz)
                self._poller.start()
                yield
            finally:
                self._poller.stop()
                self._lock.give_back()

    def _refuse_foreigners(self) -> None:
        """Wait a little first: the driver lists a process that was killed until its memory is given back."""
        for _ in range(LEAVING_LOOKS):
            foreign = set(self._nvml.read().pids) - self._own_pids
            if not foreign:
                return
            self._pause(LEAVING_PAUSE_S)
        raise DeviceError(f"foreign processes run on the GPU: {', '.join(map(str, sorted(foreign)))}")

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other process of ours works on the board; it cannot begin to while this lasts."""
        self._state_dir.mkdir(parents=True, exist_ok=True)
        with (self._state_dir / "gpu.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def find_clock(self, load: Load) -> int | None:
        """Find the highest SM clock that holds under `load`, keep it for later sessions, and lock it in them.

        None when none holds or this user may not lock: sessions are then "unlocked", and their key says so.
        """
        with self.taken():
            found = highest_clock_that_holds(self._lock, load)
        self._remember(found)
        return found

    def forget_clock(self) -> int | None:
        """Leave the clock alone from now on; what was kept."""
        kept = self._wanted_mhz
        self._remember(None)
        return kept

    def _remember(self, mhz: int | None) -> None:
        KnownClocks(self._state_dir / KNOWN_CLOCKS).remember(self.gpu_uuid, mhz)
        self._wanted_mhz = mhz

    @property
    def gpu_uuid(self) -> str:
        """The board's own name."""
        return self._nvml.facts()["gpu_uuid"]

    def hold(self, pid: int, *, threads: int) -> tuple[Flag, ...]:
        """The board is already ours; from now on this process is no foreigner."""
        del threads
        self._children = {child for child in self._children if Path(f"/proc/{child}").exists()} | {pid}
        self._own_pids |= family_of(pid)
        return () if self._lock.mhz or self._wanted_mhz is None else (Flag.CLOCK_NOT_HELD,)

    def look(self, pid: int) -> Conditions:
        """Poll once and remember how far the readings have come."""
        del pid
        self._poller.poll()
        if self._poller.failed is not None:
            raise self._poller.failed
        last = self._poller.readings[-1]
        readings = {"at": float(len(self._poller.readings)), "ecc": float(last.ecc_uncorrected)}
        return Conditions(0.0, readings)

    def clock_stood(self, before: Conditions, after: Conditions) -> bool:
        """Whether the last readings of a warm-up lie within 1 % of each other."""
        clocks = [r.sm_clock_mhz for r in self._between(before, after)[-CLOCK_LOOKS:]]
        return max(clocks) <= min(clocks) * (1 + CLOCK_TOLERANCE)

    def _between(self, before: Conditions, after: Conditions) -> list[GpuReading]:
        return self._poller.readings[int(before.readings["at"]) - 1 : int(after.readings["at"])]

    def judge(self, before: Conditions, after: Conditions, reply: dict[str, Any]) -> tuple[Flag, ...]:
        """Flags of everything the board showed from the look before to the look after."""
        seen = self._between(before, after)
        if after.readings["ecc"] > before.readings["ecc"]:
            raise DeviceError("the GPU reports uncorrectable memory errors")
        flags: set[Flag] = set()
        events = events_of(seen)
        if events.throttled:
            flags.add(Flag.THROTTLED)
        if events & ClockEvent.SW_POWER_CAP:
            flags.add(Flag.POWER_CAPPED)
        if any(foreigners(r.pids, self._own_pids, children=len(self._children)) for r in seen):
            flags.add(Flag.CONTENDED)
        if self._lock.mhz and any(r.sm_clock_mhz < self._lock.mhz * (1 - CLOCK_TOLERANCE) for r in seen):
            flags.add(Flag.CLOCK_NOT_HELD)
        if reply.get("host_bound"):
            flags.add(Flag.HOST_BOUND)
        if stays_warm(reply):
            flags.add(Flag.WARM_THOUGH_COLD)
        return tuple(sorted(flags))

    def health(self) -> DeviceHealth | None:
        """Memory errors, driver errors and the slowest answer since it was asked last; a silent NVML has only that."""
        slowest_s, self._poller.slowest_s = self._poller.slowest_s, 0.0
        last = self._poller.readings[-1] if self._poller.readings else None
        seen = last.xid_errors if last is not None else self._xid_told
        found = DeviceHealth(
            ecc_uncorrected=last.ecc_uncorrected if last is not None else 0,
            xid_errors=max(0, seen - self._xid_told),
            slowest_nvml_call_s=slowest_s,
        )
        self._xid_told = seen
        return found

    def look_around(self) -> Conditions:
        """Nothing: each block already asks the board who else is on it."""
        return Conditions(0.0, {})

    def judge_session(self, before: Conditions, after: Conditions) -> tuple[Flag, ...]:
        """Nothing beyond what each block has earned."""
        del before, after
        return ()


def open_cuda(*, state_dir: Path) -> CudaDevice:
    """The real board; raises DeviceError with a plain sentence when there is none."""
    nvml = TimedNvml(RealNvml(visible_board(os.environ.get("CUDA_VISIBLE_DEVICES"))))
    known = KnownClocks(state_dir / KNOWN_CLOCKS)
    return CudaDevice(nvml=nvml, state_dir=state_dir, wanted_mhz=known.of(nvml.facts()["gpu_uuid"]))


def visible_board(visible: str | None) -> int | str:
    """The first board that CUDA may use: its index or UUID, as CUDA_VISIBLE_DEVICES names it; 0 when it names none."""
    first = (visible or "").split(",")[0].strip()
    return int(first) if first.isdecimal() else first or 0


def foreigners(seen: Collection[int], own: Collection[int], *, children: int) -> set[int]:
    """Processes on the board that are not ours.

    In a container NVML may show process numbers of the host, under which our own children are strangers: when none of
    ours is seen, as many as we started count as ours.
    """
    strange = set(seen) - set(own)
    renumbered = not set(seen) & set(own) and len(strange) <= children
    return set() if renumbered else strange


def family_of(pid: int, procfs: Path = Path("/proc")) -> set[int]:
    """A process and all that descend from it: under a sandbox, the one on the board is a grandchild."""
    found, waiting = set(), [pid]
    while waiting:
        at = waiting.pop()
        found.add(at)
        for children in (procfs / str(at) / "task").glob("*/children"):
            try:
                waiting += [int(child) for child in children.read_text().split()]
            except OSError:  # it has ended meanwhile
                continue
    return found


def _digest(found: dict[str, str]) -> str:
    text = "\n".join(f"{name}={found[name]}" for name in sorted(found))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unavailable"


def stays_warm(reply: dict[str, Any]) -> bool:
    """Whether a block that was to be cold touched too little to push its buffers out of the cache (F12)."""
    return bool(reply.get("working_set_bytes", 0) < reply.get("cold_bytes", 0))
