"""CuPy behind the Events Protocol; imported only in a child that measures a GPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from runners.device.cuda.timer import Captured, CaptureError

_DELAY_SOURCE = r"""
extern "C" __global__ void kernelwatch_delay(long long nanoseconds) {
    long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}
"""


class CupyEvents:
    """Events, delay kernel, L2 flush and graphs on the current stream."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._delay = cupy.RawKernel(_DELAY_SOURCE, "kernelwatch_delay")
        self._flush: Any = None
        self._clock = time.perf_counter
        self.l2_bytes = int(cupy.cuda.Device().attributes["L2CacheSize"])

    def delay(self, seconds: float) -> None:
        """Queue a spin."""
        self._delay((1,), (1,), (self._cupy.int64(seconds * 1e9),))

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
        self._flush.fill(1)

    def capture(self, runs: list[Callable[[], object]]) -> Captured:
        """Record the launches of `runs` on a stream of their own (the default stream cannot capture).

        Memory that a launch takes from CuPy's pool would be given to others while the graph still writes to it, so a
        kernel that allocates is refused.
        """
        cupy = self._cupy
        cupy.cuda.Device().synchronize()
        stream = cupy.cuda.Stream(non_blocking=True)
        graph, allocations = None, _count_allocations(cupy)
        with stream, allocations:
            stream.begin_capture()
            try:
                for run in runs:
                    run()
            except Exception as error:
                with contextlib.suppress(Exception):  # the capture is void already, and this says so again
                    stream.end_capture()
                raise CaptureError(_sentence(error)) from error
            try:
                graph = stream.end_capture()
            except Exception as error:
                raise CaptureError(_sentence(error)) from error
        if allocations.count:
            raise CaptureError("it allocates memory at each launch")
        graph.upload()
        cupy.cuda.Device().synchronize()
        try:
            dot = str(graph.debug_dot_str())
        except (RuntimeError, OSError):
            dot = ""  # only names are lost with it
        return Captured(graph.launch, dot)

    def host_s(self) -> float:
        """The host's clock."""
        return self._clock()


def _sentence(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


def _count_allocations(cupy: Any) -> Any:
    class Allocations(cupy.cuda.MemoryHook):  # type: ignore[misc]
        """Counts what is taken from the pool while it is active."""

        name = "kernelwatch"
        count = 0

        def malloc_preprocess(self, **_: object) -> None:
            """Called by CuPy before each allocation."""
            self.count += 1

    return Allocations()
