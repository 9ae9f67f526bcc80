"""The activation of `silu_mul_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, blocks, cuda_launch, read_bf16
from .pieces_problem import ACTIVATION

THREADS, MOST_BLOCKS = 256, 4096


@implementation(
    "silu_mul_bf16_cuda",
    problem=ACTIVATION,
    device="cuda",
    dtype="bf16",
    sources=("silu_mul_cuda.cu",),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    rows, i = int(axes["rows"]), int(axes["i"])
    out = cupy.empty((rows, i), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        grid = (min(blocks(rows * i, THREADS), MOST_BLOCKS),)
        return [Step("silu_mul_bf16", grid, THREADS, (held["both"], out, rows, i))]

    return cuda_launch(ctx, inputs, convert=as_bf16("both"), steps=steps, output=read_bf16(out))
