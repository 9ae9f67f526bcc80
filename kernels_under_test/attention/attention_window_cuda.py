"""The sliding-window attention of `attention_window_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, blocks, cuda_launch, read_bf16
from .problem import sizes
from .window_problem import WINDOW

ROWS, THREADS, MOST_HEAD, LOG2_E = 32, 128, 128, 1.4426950408889634


@implementation(
    "attention_window_bf16_cuda",
    problem=WINDOW,
    device="cuda",
    dtype="bf16",
    sources=("attention_window_cuda.cu",),
    requires=("cupy",),
    supports=lambda axes: int(axes["d"]) % 16 == 0 and int(axes["d"]) <= MOST_HEAD,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    b, hq, hkv, sq, skv, d = sizes(axes)
    out = cupy.empty((b, hq, sq, d), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        grid = (blocks(sq, ROWS), hq, b)
        numbers = (hq, hkv, sq, skv, d, int(axes["window"]), d**-0.5 * LOG2_E)
        arguments = (held["q"], held["k"], held["v"], held["sinks"], out, *numbers)
        return [Step("attention_window_bf16", grid, THREADS, arguments)]

    return cuda_launch(
        ctx, inputs, convert=as_bf16("q", "k", "v", plain=("sinks",)), steps=steps, output=read_bf16(out)
    )
