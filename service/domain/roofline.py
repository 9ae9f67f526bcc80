"""How near a kernel is to what its device could do: the roofline, from a time, its FLOPs and its compulsory bytes.

Peaks are a formula, not a list of numbers: multiprocessors x multiply-adds per clock x 2 x clock. Datasheets quote it
at the boost clock; under a power cap the clock is lower, so a share at the *observed* clock is given as well, which
stays steady. Roofline: Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009. Multiprocessors, rates and
clocks: the vendors' architecture papers and datasheets; the test compares every product with the datasheet's figure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

IMPLAUSIBLE_ABOVE = 1.0
CANARY_FLOPS = 2.0 * 192**3  # the work of the runners' canary, a product of that side
CANARY_TRUSTED_UP_TO = 1.25  # the canary comes within a few percent of a core's rate, but it is no datasheet
DTYPES = ("f32", "tf32", "bf16", "f16", "fp8")
CACHED_BYTES = 256e6  # compulsory traffic below the largest last-level cache of these devices need not touch memory
SLACK = 0.95  # clocks may exceed the datasheet's and figures are normalised by a canary


class Bound(StrEnum):
    """What limits a kernel on a device."""

    COMPUTE = "compute"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a device could do. `fma_per_clock` is per multiprocessor and dtype, dense, with wide accumulation."""

    name: str
    multiprocessors: int
    tensor_clock_hz: float
    vector_clock_hz: float
    memory_bytes_per_s: float
    fma_per_clock: Mapping[str, int] = field(default_factory=dict)
    trusted_up_to: float = IMPLAUSIBLE_ABOVE  # a share above it is an error of the measurement

    def peak_flop_per_s(self, dtype: str, clock_hz: float | None = None) -> float | None:
        """Peak rate of a dtype at `clock_hz` (the datasheet's clock by default), or None where it has no such unit."""
        rate = self.fma_per_clock.get(dtype)
        if rate is None:
            return None
        datasheet_hz = self.vector_clock_hz if dtype == "f32" else self.tensor_clock_hz
        return self.multiprocessors * rate * 2.0 * (datasheet_hz if clock_hz is None else clock_hz)


def _hopper(name: str, memory_bytes_per_s: float) -> Device:
    return Device(
        name=name,
        multiprocessors=132,
        tensor_clock_hz=1.83e9,
        vector_clock_hz=1.98e9,
        memory_bytes_per_s=memory_bytes_per_s,
        fma_per_clock={"f32": 128, "tf32": 1024, "bf16": 2048, "f16": 2048, "fp8": 4096},
    )


DEVICES: tuple[Device, ...] = (
    Device(
        name="NVIDIA A100",
        multiprocessors=108,
        tensor_clock_hz=1.41e9,
        vector_clock_hz=1.41e9,
        memory_bytes_per_s=2.04e12,
        fma_per_clock={"f32": 64, "tf32": 512, "bf16": 1024, "f16": 1024},
    ),
    _hopper("NVIDIA H100", 3.35e12),
    _hopper("NVIDIA H200", 4.8e12),
    Device(
        name="NVIDIA B200",
        multiprocessors=148,
        tensor_clock_hz=1.856e9,
        vector_clock_hz=2.11e9,
        memory_bytes_per_s=8.0e12,
        fma_per_clock={"f32": 128, "tf32": 2048, "bf16": 4096, "f16": 4096, "fp8": 8192},
    ),
    Device(
        name="NVIDIA L40S",
        multiprocessors=142,
        tensor_clock_hz=2.49e9,
        vector_clock_hz=2.52e9,
        memory_bytes_per_s=0.864e12,
        fma_per_clock={"f32": 128, "bf16": 512, "f16": 512, "fp8": 1024},
    ),
    Device(
        name="AMD Instinct MI300X",
        multiprocessors=304,
        tensor_clock_hz=2.1e9,
        vector_clock_hz=2.1e9,
        memory_bytes_per_s=5.3e12,
        fma_per_clock={"f32": 128, "tf32": 512, "bf16": 1024, "f16": 1024, "fp8": 2048},
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a time means. Shares are of the binding roof; None where the device or its clock is not known."""

    flop_per_s: float
    bytes_per_s: float
    intensity_flop_per_byte: float | None
    bound: Bound | None
    share_of_datasheet: float | None
    share_at_clock: float | None
    trusted_up_to: float = IMPLAUSIBLE_ABOVE

    @property
    def implausible(self) -> bool:
        """Faster than the device could be: an alarm about the measurement, never a record."""
        shares = (self.share_of_datasheet, self.share_at_clock)
        return any(share is not None and share > self.trusted_up_to for share in shares)


def find_device(name: str) -> Device | None:
    """The device whose name begins `name`, such as `NVIDIA H200` for `NVIDIA H200 141GB HBM3e`; None if unknown."""
    matches = [device for device in DEVICES if name.lower().startswith(device.name.lower())]
    return max(matches, default=None, key=lambda device: len(device.name))


def canary_device(name: str, canary_s: float) -> Device:
    """A CPU core whose only roof is its canary's rate: what its caches hold has no one memory roof."""
    return measured_device(name, flop_per_s=CANARY_FLOPS / canary_s, bytes_per_s=math.inf)


def dtype_of(benchmark: str) -> str | None:
    """The dtype that a benchmark's name says (`gemm_mma_bf16`, `gemm_bf16_cublas`); None when it says none."""
    said = [part for part in benchmark.split("_") if part in DTYPES]
    return said[-1] if said else None


def clock_of(fact: str) -> float | None:
    """The clock in Hz of an environment's fact such as `1410 MHz`; None when the clock was not locked."""
    locked = re.fullmatch(r"(\d+(?:\.\d+)?) MHz", fact)
    return float(locked[1]) * 1e6 if locked else None


def measured_device(name: str, *, flop_per_s: float, bytes_per_s: float) -> Device:
    """A device without a datasheet (a CPU core): its roofs are what the canaries reached, as one unit at 1 Hz."""
    return Device(
        name=name,
        multiprocessors=1,
        tensor_clock_hz=flop_per_s / 2.0,
        vector_clock_hz=flop_per_s / 2.0,
        memory_bytes_per_s=bytes_per_s,
        fma_per_clock={"f32": 1},
        trusted_up_to=CANARY_TRUSTED_UP_TO,
    )


def floor_s(
    device: Device, dtype: str, *, flops: float, size_bytes: float, clock_hz: float | None = None
) -> float | None:
    """The least time that the roofs allow: max(FLOPs / peak, bytes / bandwidth)."""
    peak = device.peak_flop_per_s(dtype, clock_hz)
    if peak is None:
        return None
    return max(flops / peak, size_bytes / device.memory_bytes_per_s)


def least_believable_s(device_name: str, *, flops: float, size_bytes: float) -> float | None:
    """The time below which no figure can be true, or None for a device without a datasheet.

    The dtype of a stored workload is not known, so the fastest unit of the device counts; memory traffic counts only
    where it cannot be served from a cache. It refuses what is impossible, not what is unlikely.
    """
    device = find_device(device_name)
    if device is None:
        return None
    rates = [device.peak_flop_per_s(dtype) for dtype in device.fma_per_clock]
    compute_s = flops / max(rate for rate in rates if rate is not None)
    memory_s = size_bytes / device.memory_bytes_per_s if size_bytes > CACHED_BYTES else 0.0
    return SLACK * max(compute_s, memory_s)


def view(
    time_s: float,
    *,
    flops: float,
    size_bytes: float,
    dtype: str,
    device: Device | None,
    clock_hz: float | None = None,
) -> View:
    """Derive everything that is shown from one stored time."""
    if not time_s > 0.0:
        raise ValueError(f"a time must be positive, not {time_s}")
    datasheet_s = None if device is None else floor_s(device, dtype, flops=flops, size_bytes=size_bytes)
    clocked_s = None
    if device is not None and clock_hz is not None:
        clocked_s = floor_s(device, dtype, flops=flops, size_bytes=size_bytes, clock_hz=clock_hz)
    bound = None
    if device is not None and datasheet_s is not None:
        bound = Bound.MEMORY if size_bytes / device.memory_bytes_per_s >= datasheet_s else Bound.COMPUTE
    return View(
        flop_per_s=flops / time_s,
        bytes_per_s=size_bytes / time_s,
        intensity_flop_per_byte=flops / size_bytes if size_bytes > 0.0 else None,
        bound=bound,
        share_of_datasheet=None if datasheet_s is None else datasheet_s / time_s,
        share_at_clock=None if clocked_s is None else clocked_s / time_s,
        trusted_up_to=IMPLAUSIBLE_ABOVE if device is None else device.trusted_up_to,
    )


def ratio_to_control(time_s: float, control_s: float) -> float:
    """How many times faster than the vendor library; 1.0 is a draw."""
    return control_s / time_s
