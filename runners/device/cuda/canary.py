"""The GPU's canaries: fixed work of our own, so that neither a commit nor a new library changes it.

Three of them, because a board has three ways to be slow. A tensor-core kernel on random data that keeps every
multiprocessor busy for at least 15 ms feels heat and the power cap (long kernels suffer 33-48 % on a hot board, short
ones and copies nothing); a copy of 1 GiB feels the memory; an empty launch feels the driver.

The tensor-core kernel multiplies fragments held in registers: bfloat16 `mma.sync` m16n8k16 with float32 sums, sixteen
independent sums per warp (PTX ISA, "Matrix multiply-accumulate operation"), so that nothing but the tensor cores and
the clock decides how long it takes. Random data matter because zeros draw less power.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

from runners.device.cuda.timer import CudaTimer
from runners.measure.canary import CanaryFrame

COPY_BYTES = 1 << 30
COPY_REPETITIONS = 5
EMPTY_REPETITIONS = 20
FRAME_MIN_S = 15e-3
REPETITIONS_MAX = 64
ROUNDS = 60_000
SUMS = 16
THREADS = 256
BLOCKS_PER_MULTIPROCESSOR = 2
TABLE_WORDS = 1 << 16  # pairs of bfloat16
SOURCE = r"""
extern "C" __global__ void kernelwatch_empty() {}

extern "C" __global__ void __launch_bounds__(THREADS)
kernelwatch_canary(const unsigned* table, float* out, int rounds) {
    unsigned a[4][4], b[4][2];
    float sum[SUMS][4];
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned mask = TABLE_WORDS - 1;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) a[i][j] = table[(at * 29u + i * 4u + j) & mask];
        #pragma unroll
        for (int j = 0; j < 2; ++j) b[i][j] = table[(at * 31u + 977u + i * 2u + j) & mask];
    }
    #pragma unroll
    for (int i = 0; i < SUMS; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = 0.0f;
    }
    for (int round = 0; round < rounds; ++round) {
        #pragma unroll
        for (int i = 0; i < SUMS; ++i) {
            const unsigned* x = a[i & 3];
            const unsigned* y = b[(i >> 2) & 3];
            float* s = sum[i];
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        }
    }
    float total = 0.0f;
    #pragma unroll
    for (int i = 0; i < SUMS; ++i) total += sum[i][0] + sum[i][1] + sum[i][2] + sum[i][3];
    out[at] = total;
}
"""
OPTIONS = (f"-DSUMS={SUMS}", f"-DTHREADS={THREADS}", f"-DTABLE_WORDS={TABLE_WORDS}")


class GpuCanary:
    """Holds its kernels and buffers for the life of a process."""

    def __init__(self, timer: CudaTimer) -> None:
        import cupy
        import numpy as np

        self._cupy = cupy
        self._timer = timer
        multiprocessors = int(cupy.cuda.Device().attributes["MultiProcessorCount"])
        self._grid = (BLOCKS_PER_MULTIPROCESSOR * multiprocessors,)
        self._multiply = cupy.RawKernel(SOURCE, "kernelwatch_canary", options=OPTIONS)
        self._empty = cupy.RawKernel(SOURCE, "kernelwatch_empty", options=OPTIONS)
        values = np.random.default_rng(20_240_229).standard_normal(2 * TABLE_WORDS, dtype=np.float32)
        bits = (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)  # bfloat16 by cutting the float32 short
        self._table = cupy.asarray(bits.view(np.uint32))
        self._out = cupy.empty(self._grid[0] * THREADS, cupy.float32)
        self._copy: tuple[Any, Any] | None = None
        self._once()
        self._repetitions = repetitions(self._timer.time_launches(self._once, count=1, inner=1).wall_s[0])

    def frame(self) -> CanaryFrame:
        """The tensor-core kernel, as often as fills 15 ms."""
        return self._median(self._once, self._repetitions)

    def copy_frame(self) -> CanaryFrame:
        """A few copies of 1 GiB."""
        if self._copy is None:
            cupy = self._cupy
            self._copy = cupy.ones(COPY_BYTES, cupy.uint8), cupy.ones(COPY_BYTES, cupy.uint8)
        target, source = self._copy
        return self._median(lambda: self._cupy.copyto(target, source), COPY_REPETITIONS)

    def launch_frame(self) -> CanaryFrame:
        """Empty launches: what two events and the driver cost."""
        return self._median(lambda: self._empty((1,), (1,), ()), EMPTY_REPETITIONS)

    def multiply_for(self, launches: int) -> None:
        """Work without timing, and wait for its end."""
        for _ in range(launches):
            self._once()
        self._cupy.cuda.Device().synchronize()

    def _once(self) -> None:
        self._multiply(self._grid, (THREADS,), (self._table, self._out, self._cupy.int32(ROUNDS)))

    def _median(self, run: Callable[[], object], count: int) -> CanaryFrame:
        launches = self._timer.time_launches(run, count=count, inner=1)
        return CanaryFrame(statistics.median(launches.wall_s), statistics.median(launches.cpu_s))


def repetitions(launch_s: float) -> int:
    """How many launches of `launch_s` are long enough to feel heat and the power cap."""
    if not math.isfinite(launch_s) or launch_s <= 0:
        return REPETITIONS_MAX
    return max(1, min(REPETITIONS_MAX, math.ceil(FRAME_MIN_S / launch_s)))
