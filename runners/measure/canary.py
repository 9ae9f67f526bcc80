"""The CPU canary: fixed work, shipped with the harness, that tells how fast the machine is right now.

A small float32 matrix product (its three matrices stay inside a 512 KiB L2) through the installed NumPy, never
through anything built from the commit. Figures are divided by it, so a slow machine is not mistaken for a slow
kernel. A copy larger than L2 is timed beside it as the health canary of memory. The BLAS and its version are part of
the environment's comparable key, because they are part of this canary.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from typing import Any, Protocol

from runners.measure.timer import CpuTimer, LaunchTimer

SIDE = 192
CANARY_FLOPS = 2.0 * SIDE**3
REPETITIONS = 12
COPY_BYTES = 8 << 20
COPY_REPETITIONS = 5
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class CanaryFrame:
    """One look at the machine: seconds of one canary product on both clocks."""

    wall_s: float
    cpu_s: float


class Canary(Protocol):
    """Fixed work that shows how fast the device is."""

    def frame(self) -> CanaryFrame:
        """The compute canary that frames every block."""

    def copy_frame(self) -> CanaryFrame:
        """The health canary of memory."""

    def launch_frame(self) -> CanaryFrame:
        """The health canary of launching: next to nothing."""


class CpuCanary:
    """Allocates its buffers once per process, on page boundaries, so that placement plays no part."""

    def __init__(self, timer: LaunchTimer) -> None:
        import numpy as np

        self._numpy = np
        self._timer = timer
        rng = np.random.default_rng(20_240_229)
        self._left, self._right, self._product = (self._matrix() for _ in range(3))
        self._left[:] = rng.standard_normal((SIDE, SIDE), dtype=np.float32)
        self._right[:] = rng.standard_normal((SIDE, SIDE), dtype=np.float32)
        self._source: Any = None
        self._target: Any = None

    def _matrix(self) -> Any:
        size = SIDE * SIDE * 4
        raw = self._numpy.zeros(size + _PAGE, self._numpy.uint8)
        start = -raw.ctypes.data % _PAGE
        return raw[start : start + size].view(self._numpy.float32).reshape(SIDE, SIDE)

    def frame(self) -> CanaryFrame:
        """Median of a few products on each clock, after one untimed product."""
        self._multiply()
        return self._median(self._multiply, REPETITIONS)

    def copy_frame(self) -> CanaryFrame:
        """The same for one copy larger than L2."""
        if self._source is None:
            self._source = self._numpy.ones(COPY_BYTES, self._numpy.uint8)
            self._target = self._numpy.ones(COPY_BYTES, self._numpy.uint8)
        self._copy()
        return self._median(self._copy, COPY_REPETITIONS)

    def launch_frame(self) -> CanaryFrame:
        """A call that does nothing."""
        return self._median(lambda: None, COPY_REPETITIONS)

    def _multiply(self) -> None:
        self._numpy.matmul(self._left, self._right, out=self._product)

    def _copy(self) -> None:
        self._numpy.copyto(self._target, self._source)

    def _median(self, run: Any, count: int) -> CanaryFrame:
        launches = self._timer.time_launches(run, count=count, inner=1)
        return CanaryFrame(statistics.median(launches.wall_s), statistics.median(launches.cpu_s))


def main() -> None:
    """Print this machine's canary seconds on the CPU clock: what a runner keeps once as its reference."""
    canary = CpuCanary(CpuTimer())
    sys.stdout.write(f"{statistics.median(canary.frame().cpu_s for _ in range(200)):.9f}\n")


if __name__ == "__main__":
    main()
