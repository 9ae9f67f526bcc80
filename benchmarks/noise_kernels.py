"""Two small CPU kernels with a slowdown that is real work: what `benchmarks/noise.py` times with every tool."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

NAMES = ("gemm", "softmax")
CALIBRATION = Path(os.environ.get("NOISE_CALIBRATION", "noise_calibration.json"))


def _base(name: str) -> Callable[[], object]:
    rng = np.random.default_rng(3)
    if name == "gemm":
        a, b = (rng.standard_normal((576, 576), dtype=np.float32) for _ in range(2))
        c = np.empty_like(a)
        return lambda: np.matmul(a, b, out=c)
    x = rng.standard_normal((768, 1024), dtype=np.float32)
    y = np.empty_like(x)

    def softmax() -> object:
        np.subtract(x, x.max(-1, keepdims=True), out=y)
        np.exp(y, out=y)
        return np.divide(y, y.sum(-1, keepdims=True), out=y)

    return softmax


def _extra() -> Callable[[int], None]:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((48, 48), dtype=np.float32) for _ in range(2))
    c = np.empty_like(a)

    def units(count: int) -> None:
        for _ in range(count):
            np.matmul(a, b, out=c)

    return units


def calibrate() -> None:
    """Find how many units of extra work are one per cent of each kernel, and keep that in the calibration file."""
    units, found = _extra(), {}
    for name in NAMES:
        base = _base(name)
        plain, slow = [], []
        for i in range(240):
            count = 80 * (i & 1)
            start = time.thread_time_ns()
            base()
            units(count)
            (slow if count else plain).append(time.thread_time_ns() - start)
        found[name] = 80 / (statistics.median(slow[5:]) / statistics.median(plain[5:]) - 1) / 100
    CALIBRATION.write_text(json.dumps(found))


def make(kernel: str, slow_pct: float = 0.0) -> Callable[[], object]:
    """The kernel, slower by `slow_pct` per cent."""
    base = _base(kernel)
    if not slow_pct:
        return base
    units = _extra()
    count = round(json.loads(CALIBRATION.read_text())[kernel] * slow_pct)

    def run() -> object:
        result = base()
        units(count)
        return result

    return run


if __name__ == "__main__":
    calibrate()
