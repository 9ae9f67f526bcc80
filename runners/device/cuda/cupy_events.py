"""CuPy behind the Events Protocol, and the GPU's canaries; imported only in a child that measures a GPU."""

from __future__ import annotations

import statistics
import time
from typing import Any

from runners.device.cuda.timer import CudaTimer
from runners.measure.canary import CanaryFrame

GEMM_SIDE = 18_432  # float16, about 18 ms on an H100-class board: long enough to feel heat and the power cap
COPY_BYTES = 1 << 30
_DELAY_SOURCE = r"""
extern "C" __global__ void kernelwatch_delay(long long nanoseconds) {
    long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}
"""


class CupyEvents:
    """Events, delay kernel and L2 flush on the current stream."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._delay = cupy.RawKernel(_DELAY_SOURCE, "kernelwatch_delay")
        self._flush: Any = None

    def delay(self, seconds: float) -> None:
        """Queue a spin."""
        self._delay((1,), (1,), (int(seconds * 1e9),))

    def record(self) -> Any:
        """Queue an event."""
        event = self._cupy.cuda.Event()
        event.record()
        return event

    def elapsed_s(self, start: Any, stop: Any) -> float:
        """Seconds on the device."""
        stop.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(start, stop)) * 1e-3

    def passed(self, event: Any) -> bool:
        """Whether the device passed it."""
        return bool(event.done)

    def flush_l2(self, size_bytes: int) -> None:
        """Write a buffer of so many bytes."""
        if self._flush is None or self._flush.nbytes != size_bytes:
            self._flush = self._cupy.zeros(size_bytes, self._cupy.uint8)
        self._flush.fill(0)

    def host_s(self) -> float:
        """The host's clock."""
        return time.perf_counter()


class GpuCanary:
    """A long tensor-core product on random data (heat, power cap) and a 1 GiB copy (memory)."""

    def __init__(self, timer: CudaTimer) -> None:
        import cupy

        self._cupy = cupy
        self._timer = timer
        rng = cupy.random.default_rng(20_240_229)
        shape = (GEMM_SIDE, GEMM_SIDE)
        self._left = rng.standard_normal(shape, dtype=cupy.float32).astype(cupy.float16)
        self._right = rng.standard_normal(shape, dtype=cupy.float32).astype(cupy.float16)
        self._product = cupy.empty(shape, cupy.float16)
        self._source = cupy.ones(COPY_BYTES, cupy.uint8)
        self._target = cupy.ones(COPY_BYTES, cupy.uint8)

    def frame(self) -> CanaryFrame:
        """One product."""
        return self._median(lambda: self._cupy.matmul(self._left, self._right, out=self._product), 1)

    def copy_frame(self) -> CanaryFrame:
        """A few copies."""
        return self._median(lambda: self._cupy.copyto(self._target, self._source), 5)

    def _median(self, run: Any, count: int) -> CanaryFrame:
        launches = self._timer.time_launches(run, count=count, inner=1)
        return CanaryFrame(statistics.median(launches.wall_s), statistics.median(launches.cpu_s))
