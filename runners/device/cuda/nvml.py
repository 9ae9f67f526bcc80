"""NVML behind a small Protocol, every call with a time-out: a driver in trouble hangs, and must not hang us.

`nvidia-ml-py` is imported only when a real GPU is opened; tests script the same Protocol.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Protocol, TypeVar, cast

from runners.errors import DeviceError

CALL_TIMEOUT_S = 2.0
Answer = TypeVar("Answer")


class ClockEvent(IntFlag):
    """Why clocks are below what was asked (nvmlClocksEventReasons, NVML API reference)."""

    NONE = 0
    IDLE = 0x1
    APPLICATION_CLOCKS = 0x2
    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80

    @property
    def throttled(self) -> bool:
        """Hardware or thermal protection slowed the chip: such a sample is not of the kernel."""
        return bool(self & (self.HW_SLOWDOWN | self.SW_THERMAL | self.HW_THERMAL | self.HW_POWER_BRAKE))


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One poll of the board."""

    sm_clock_mhz: int
    memory_clock_mhz: int
    power_w: float
    temperature_c: int
    events: ClockEvent
    ecc_uncorrected: int
    pids: tuple[int, ...]  # of all compute processes
    xid_errors: int = 0  # critical errors of the driver since this process began to look


class Nvml(Protocol):
    """What is asked of NVML for one board."""

    def facts(self) -> dict[str, str]:
        """UUID, model, VBIOS, driver, CUDA version, enforced power limit, ECC and MIG mode, PCIe width."""

    def read(self) -> GpuReading:
        """Clocks, power, temperature, clock events, ECC errors and all compute processes."""

    def supported_sm_clocks_mhz(self) -> tuple[int, ...]:
        """SM clocks that may be locked, highest first."""

    def lock_sm_clock(self, mhz: int) -> None:
        """Fix the SM clock; raises PermissionError for a user that may not."""

    def unlock_sm_clock(self) -> None:
        """Give the clock back to the driver."""


class TimedNvml:
    """Runs each call in a thread and gives up after a while; the thread is left to its fate."""

    def __init__(self, nvml: Nvml, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._nvml = nvml
        self._timeout_s = timeout_s

    def facts(self) -> dict[str, str]:
        """See Nvml."""
        return self._call("facts", self._nvml.facts)

    def read(self) -> GpuReading:
        """See Nvml."""
        return self._call("read", self._nvml.read)

    def supported_sm_clocks_mhz(self) -> tuple[int, ...]:
        """See Nvml."""
        return self._call("supported clocks", self._nvml.supported_sm_clocks_mhz)

    def lock_sm_clock(self, mhz: int) -> None:
        """See Nvml."""
        self._call("lock clock", lambda: self._nvml.lock_sm_clock(mhz))

    def unlock_sm_clock(self) -> None:
        """See Nvml."""
        self._call("unlock clock", self._nvml.unlock_sm_clock)

    def _call(self, name: str, call: Callable[[], Answer]) -> Answer:
        answers: queue.SimpleQueue[tuple[Answer | None, Exception | None]] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put((call(), None))
            except Exception as error:  # noqa: BLE001 - carried over to the caller's thread and raised there
                answers.put((None, error))

        # A daemon: a call that never returns must not keep this process from ending.
        threading.Thread(target=ask, name="nvml-call", daemon=True).start()
        try:
            answer, error = answers.get(timeout=self._timeout_s)
        except queue.Empty as empty:
            raise DeviceError(f"NVML did not answer {name!r} within {self._timeout_s:g} s") from empty
        if isinstance(error, DeviceError | PermissionError):
            raise error
        if error is not None:
            raise DeviceError(f"NVML failed at {name!r}: {error}") from error
        return cast("Answer", answer)


class RealNvml:
    """One board through nvidia-ml-py, named by its index or its UUID."""

    def __init__(self, board: int | str) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise DeviceError("no NVIDIA device can be used: install the extra `gpu` (nvidia-ml-py)") from error
        self._n = pynvml
        try:
            pynvml.nvmlInit()
            by_name = isinstance(board, str)
            find = pynvml.nvmlDeviceGetHandleByUUID if by_name else pynvml.nvmlDeviceGetHandleByIndex
            self._board = find(board)
        except pynvml.NVMLError as error:
            raise DeviceError(f"there is no NVIDIA device {board} on this machine ({error})") from error
        self._xids = 0
        self._events = self._listen_for_xids()

    def facts(self) -> dict[str, str]:
        """See Nvml; what a board does not tell is "unavailable"."""
        n, board = self._n, self._board
        asked: dict[str, Callable[[], Any]] = {
            "gpu_uuid": lambda: n.nvmlDeviceGetUUID(board),
            "gpu_model": lambda: n.nvmlDeviceGetName(board),
            "vbios": lambda: n.nvmlDeviceGetVbiosVersion(board),
            "driver": n.nvmlSystemGetDriverVersion,
            "cuda_driver": n.nvmlSystemGetCudaDriverVersion,
            "power_limit_w": lambda: n.nvmlDeviceGetEnforcedPowerLimit(board) / 1000,
            "ecc": lambda: n.nvmlDeviceGetEccMode(board)[0],
            "mig": lambda: n.nvmlDeviceGetMigMode(board)[0],
            "pcie_width": lambda: n.nvmlDeviceGetCurrPcieLinkWidth(board),
        }
        return {name: self._or_unavailable(call) for name, call in asked.items()}

    def _or_unavailable(self, call: Callable[[], Any]) -> str:
        try:
            value = call()
        except self._n.NVMLError:
            return "unavailable"
        return value.decode() if isinstance(value, bytes) else str(value)

    def read(self) -> GpuReading:
        """See Nvml."""
        n, board = self._n, self._board
        try:
            ecc = n.nvmlDeviceGetTotalEccErrors(board, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, n.NVML_VOLATILE_ECC)
        except n.NVMLError:
            ecc = 0
        return GpuReading(
            sm_clock_mhz=n.nvmlDeviceGetClockInfo(board, n.NVML_CLOCK_SM),
            memory_clock_mhz=n.nvmlDeviceGetClockInfo(board, n.NVML_CLOCK_MEM),
            power_w=self._power_w(),
            temperature_c=n.nvmlDeviceGetTemperature(board, n.NVML_TEMPERATURE_GPU),
            events=ClockEvent(n.nvmlDeviceGetCurrentClocksEventReasons(board) & 0xFF),
            ecc_uncorrected=ecc,
            pids=tuple(p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(board)),
            xid_errors=self._xid_errors(),
        )

    def _listen_for_xids(self) -> Any:
        """Have NVML queue critical driver errors of the board; None where it does not offer that."""
        n = self._n
        try:
            events = n.nvmlEventSetCreate()
            n.nvmlDeviceRegisterEvents(self._board, n.nvmlEventTypeXidCriticalError, events)
        except n.NVMLError:
            return None
        return events

    def _xid_errors(self) -> int:
        """Count what is queued, without waiting for more."""
        while self._events is not None:
            try:
                self._n.nvmlEventSetWait(self._events, 0)
            except self._n.NVMLError:  # the time-out of an empty queue
                break
            self._xids += 1
        return self._xids

    def _power_w(self) -> float:
        """Power at this instant; a board that only knows its mean over the last second gives that."""
        n = self._n
        asked = [(n.NVML_FI_DEV_POWER_INSTANT, n.NVML_POWER_SCOPE_GPU)]
        try:
            (field,) = n.nvmlDeviceGetFieldValues(self._board, asked)
        except n.NVMLError:  # an older driver
            field = None
        if field is not None and field.nvmlReturn == n.NVML_SUCCESS:
            return float(field.value.uiVal) / 1000
        return float(n.nvmlDeviceGetPowerUsage(self._board)) / 1000

    def supported_sm_clocks_mhz(self) -> tuple[int, ...]:
        """See Nvml."""
        memory_mhz = max(self._n.nvmlDeviceGetSupportedMemoryClocks(self._board))
        clocks = self._n.nvmlDeviceGetSupportedGraphicsClocks(self._board, memory_mhz)
        return tuple(sorted(clocks, reverse=True))

    def lock_sm_clock(self, mhz: int) -> None:
        """See Nvml."""
        try:
            self._n.nvmlDeviceSetGpuLockedClocks(self._board, mhz, mhz)
        except self._n.NVMLError_NoPermission as error:
            raise PermissionError("locking the clock needs root") from error

    def unlock_sm_clock(self) -> None:
        """See Nvml."""
        try:
            self._n.nvmlDeviceResetGpuLockedClocks(self._board)
        except self._n.NVMLError_NoPermission as error:
            raise PermissionError("unlocking the clock needs root") from error
